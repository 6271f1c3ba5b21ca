"""Passes over loops: values that no round needs or changes, nested loops, unrolling, and rolling up rounds that were
written out."""
