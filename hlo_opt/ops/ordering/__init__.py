"""Sorts, and select-and-scatter."""
