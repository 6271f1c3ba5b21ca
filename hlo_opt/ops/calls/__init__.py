"""Which function of a library computes an instruction on a GPU: the `call` faces of the table."""
