"""Files as collections of named tensors, and collections of named tensors as files."""
