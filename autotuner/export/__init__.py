"""Exports: documents with the best configuration of a study and its proof, for programs to read."""
