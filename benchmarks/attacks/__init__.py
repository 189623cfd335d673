"""Attacks on the judge, through the commands that people call."""
