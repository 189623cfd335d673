"""Figures as SVG, made here: they need no script, work in print and follow the page's colours by their classes."""
