"""One run on several processes or machines: PyTorch's FSDP2, fed with 4-bit weights."""
