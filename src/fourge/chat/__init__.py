"""Talking to a model: a cache that lives over turns, sampling, sessions that can be kept."""
