"""Matching the instructions of two modules without names."""
