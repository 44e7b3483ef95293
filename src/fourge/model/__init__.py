"""Open any source of a model, build it without a second copy, quantise it, write it anywhere."""
