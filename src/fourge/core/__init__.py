"""What every other package may use: errors, units, whole-file writes, counter-based random bits."""
