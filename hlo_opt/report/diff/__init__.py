"""What changed between two dumps: instructions, kernels, what they cost, and why they are no longer, or not yet,
one."""
