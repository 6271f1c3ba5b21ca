"""The graph of values: clusters, numbers of equal values, reachability, loops, inlining."""
