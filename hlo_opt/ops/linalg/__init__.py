"""Factorizations, triangular solves, Fourier transforms and batch normalizations."""
