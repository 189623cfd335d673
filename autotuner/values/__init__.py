"""Values: the frozen nouns that rooms hand to each other, our errors, and the settings from the environment.

The lowest room: it imports no other. Only config.py reads the environment. Its modules are the door.
"""
