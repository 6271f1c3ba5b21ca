"""Custom calls, by target."""
