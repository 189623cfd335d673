"""Samplers on recorded spaces: how good a search is, what it gains from another, and the spaces themselves."""
