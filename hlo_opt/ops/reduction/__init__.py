"""Folds."""
