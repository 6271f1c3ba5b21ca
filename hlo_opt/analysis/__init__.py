"""What can be known about a module without changing it: costs, loops, equal values; and inlining, which the proof and CSE share."""
