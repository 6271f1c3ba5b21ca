"""Which function of a library computes an instruction that has no kernel, on a GPU."""
