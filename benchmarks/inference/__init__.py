"""What it costs to be served in a user's program."""
