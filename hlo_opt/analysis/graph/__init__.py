"""The graph of values: clusters, value numbering, loops, inlining."""
