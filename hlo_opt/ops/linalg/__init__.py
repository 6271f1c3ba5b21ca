"""Factorizations, triangular systems, Fourier transforms and batch normalisations."""
