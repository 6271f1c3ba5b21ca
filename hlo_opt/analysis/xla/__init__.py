"""XLA's model of GPU kernels: emitters, launches, microseconds."""
