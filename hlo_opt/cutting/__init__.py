"""Cutting down: the smallest module that still shows something, a part of a module that runs on its own, and the step
at which something turns."""
