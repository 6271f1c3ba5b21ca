"""Modules in which slices of an array share values that take many instructions."""

from __future__ import annotations


def shared_by_slices(
    sizes: str, *, t: str = "f32", made: str = "sine", along: tuple[int, ...] = (), layout: str = "", outputs: int = 1
) -> str:
    """An array of `sizes`, to which what is made of a table is added. The table lacks the major-most dimension, or has
    the dimensions `along`; `layout` is that of the array."""
    extents = sizes.split(",")
    axes = along or tuple(range(len(extents)))[-2:]
    table = ",".join(extents[d] for d in axes)
    whole = f"{t}[{sizes}]{layout}"
    root = "ROOT r = " + whole + " add(x, b)"
    if outputs > 1:
        root = f"r = {whole} add(x, b)\n  u = f32[{sizes}]{layout} convert(r)\n"
        root += f"  ROOT t = ({whole}, f32[{sizes}]{layout}) tuple(r, u)"
    return f"""HloModule m
ENTRY e {{
  x = {whole} parameter(0)
  y = f32[{table}] parameter(1)
  m = f32[{table}] {made}(y)
  n = f32[{table}] {made}(m)
  o = f32[{table}] {made}(n)
  p = f32[{table}] {made}(o)
  c = {t}[{table}] convert(p)
  b = {whole} broadcast(c), dimensions={{{",".join(map(str, axes))}}}
  {root}
}}
"""
