"""Passes over loops: what no round needs or changes, loops within loops, rounds written out, and rounds that were
written out rolled up again."""
