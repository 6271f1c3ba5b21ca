"""Kernels for a range of sizes (`--dynamic`): building them, running them, and the folder that holds them."""
