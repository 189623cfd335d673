"""Latencies of the tuned kernels against those of PyTorch's SDPA."""
