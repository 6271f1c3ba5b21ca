"""What `--emit` writes: kernels, and a program that runs them with only CuPy and NumPy."""
