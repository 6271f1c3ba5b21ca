"""The `call` faces of the table: which library function computes an instruction on a GPU."""
