"""Spaces: space files, their expressions, the valid points enumerated, and parameters that never reach a program.

The door is `space.Space` (the points on one device), `space_file.SpaceFile` (the document) and `limits.Limits` (what a
kernel family adds to it).
"""
