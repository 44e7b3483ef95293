"""What a run needs, what the machine has, and what to change if that is not enough."""
