"""Rules that make modules simpler: one declaration each, by family, and the worklist that applies them until none finds
anything."""
