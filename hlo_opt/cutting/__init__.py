"""Cutting modules down: the smallest module that still shows something, a part of a module that runs on its own, and
the step of a series at which something changes."""
