"""What the gate finds, what it costs, and what its references are worth."""
