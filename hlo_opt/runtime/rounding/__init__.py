"""What another correct backend may compute: an enclosure for every element of every value of a module.

`analysis` runs a module on spreads; the rules per operation are in `elementwise`, `sums`, `order` and `control`.
"""
