"""Files of conversations, as examples, as tokens with targets, in an order, as batches."""
