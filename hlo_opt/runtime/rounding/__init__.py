"""What another correct backend may compute: an enclosure for every element of every value of a module.

`analysis` runs a module on spreads; `elementwise`, `sums`, `order` and `control` say what each kind of operation does to them.
"""
