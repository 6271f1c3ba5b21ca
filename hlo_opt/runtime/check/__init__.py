"""Whether two modules compute the same, and how much an agreement proves."""
