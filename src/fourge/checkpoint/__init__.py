"""Resumable training state: named tensors and JSON, written whole, and checked to the last bit."""
