"""The NVFP4 number format: its definition, its fast form, the linear layer, the GEMM backends."""
