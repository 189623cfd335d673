"""Exports: documents with the best configuration of a study and its proof, for programs to read.

The door is `best.export`: the best configuration of a study in one of `best.FORMATS`.
"""
