"""Memory layout of operations, and their bytes and flops."""
