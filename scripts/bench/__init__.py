"""Timings, as ratios against something real."""
