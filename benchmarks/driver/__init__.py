"""What a driver survives."""
