"""Whole runs: from a run file to a trained, saved and exported model."""
