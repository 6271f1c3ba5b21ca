"""Sorts, and windows that select."""
