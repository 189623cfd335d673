"""Variants a minute, and what the parts of a sweep cost."""
