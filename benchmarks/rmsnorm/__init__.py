"""Latencies of rmsnorm."""
