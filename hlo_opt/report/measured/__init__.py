"""Measured times of kernels, from what profilers write, joined with the instructions of a module by name.

Only `explain --measured` loads these files: `events` holds what every reader gives, `xplane`, `chrome` and `nsys` read
a form each, `read` tells the forms apart, `join` finds the instructions.
"""
