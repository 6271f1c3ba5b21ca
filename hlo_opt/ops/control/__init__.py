"""Control flow, tuples, calls and transfers."""
