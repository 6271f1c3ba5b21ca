"""Reductions, windowed reductions and scans."""
