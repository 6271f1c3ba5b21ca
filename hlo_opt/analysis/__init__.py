"""Facts about a module that do not change it: costs, loops, equal values; and inlining, which the proof and CSE
share."""
