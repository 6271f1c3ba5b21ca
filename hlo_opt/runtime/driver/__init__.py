"""What `--emit` writes: kernels, and a program that runs them with CuPy and NumPy alone."""
