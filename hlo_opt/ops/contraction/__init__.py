"""Dot products and convolutions."""
