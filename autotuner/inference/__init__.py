"""Inference: what a user's model imports. It notes the calls that a model makes, and serves them with tuned variants.

Its door is `record` and `load`. It knows ops by their part `OpCall.torch` alone, and devices by their records; what it
serves is written in a table (values/table.py).
"""
