"""What a run will need in memory, before anything is loaded."""
