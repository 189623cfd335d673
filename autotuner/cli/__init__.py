"""The command line: with `views` the only room that speaks to people.

`app` has the program, its options and its errors; each other module has the commands on one noun. A command takes
words, calls one thing of a room below, and shows what it returns. It imports what it needs when it is called: `--help`
and questions about a store start at once.
"""
