"""Values: the frozen nouns that rooms hand to each other, our errors, and the settings from the environment.

The lowest room: it imports no other. Only config.py reads the environment, only first_documents.py knows the names that
earlier versions gave. Its modules are the door.
"""
