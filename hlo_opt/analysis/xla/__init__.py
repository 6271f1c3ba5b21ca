"""XLA's performance model of GPU kernels: emitters, launch dimensions, microseconds."""
