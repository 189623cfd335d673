"""Tuning: what a person asks for, from a space on this machine to the trial to use.

It uses every room below and knows nobody who is shown or given its results.
"""
