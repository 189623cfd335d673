"""What a measured latency is worth: devices whose truth is known, and sweeps in which nobody can win."""
