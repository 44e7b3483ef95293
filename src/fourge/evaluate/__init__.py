"""Probes, answers, scores, and what base and tuned differ by."""
