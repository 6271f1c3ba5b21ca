"""The graph of values: clusters, numbers of equal values, loops, inlining."""
