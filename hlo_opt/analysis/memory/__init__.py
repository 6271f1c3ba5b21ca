"""How operations lie in memory, and what they read, write and compute."""
