"""What holds of the command line."""
