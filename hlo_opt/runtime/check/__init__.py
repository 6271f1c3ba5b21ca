"""Whether two modules compute the same, and what agreement says."""
