"""Which instruction of one module is which of another, without names."""
