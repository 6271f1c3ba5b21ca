"""Scans: which get a kernel, and that it goes along each line as the table does."""

from __future__ import annotations

from typing import Any

import pytest

import hlo_opt
from hlo_opt.diag import Reason
from hlo_opt.plans import plan, region_of
from tests.small_modules import H100

BODIES = {
    "sum": ("f32 f32", "s = T1 add(a, b)", "(s, s)"),
    "exclusive": ("f32 f32", "s = T1 multiply(a, b)", "(b, s)"),
    "widened": ("s8 s32", "w = s32SLICE convert(a)\n  s = s32SLICE add(w, b)", "(s, s)"),
    "rounded": ("bf16 bf16", "s = T1 add(a, b)", "(s, s)"),
    "swapped": ("f32 f32 f32", "s = T1 add(a, c)", "(s, c, b)"),
    "decayed": (
        "f32 f32",
        "h = f32[] constant(0.5)\n  k = T1 broadcast(h), dimensions={}\n  m = T1 multiply(b, k)\n  s = T1 add(a, m)",
        "(s, s)",
    ),
}


def scan(
    body: str, shape: tuple[int, ...], axis: int, *, layout: str = "", reverse: bool = False, root: str = ""
) -> str:
    """An entry that scans one parameter of a shape, with the carries of a body of `BODIES`."""
    types, lines, results = BODIES[body]
    kinds = types.split()
    slice_shape = "[" + ",".join(str(size) for d, size in enumerate(shape) if d != axis) + "]"
    whole = "[" + ",".join(map(str, shape)) + "]"
    given = [f"  {'abc'[k]} = {t}{slice_shape} parameter({k})" for k, t in enumerate(kinds)]
    made = lines.replace("T1", f"{kinds[1]}{slice_shape}").replace("SLICE", slice_shape)
    if slice_shape == "[]":
        made = made.replace(" broadcast(h), dimensions={}", " negate(h)")
    of_output = kinds[1] if body != "swapped" else "f32"
    carried = [f"{t}{slice_shape}" for t in kinds[1:]]
    elements = f"({of_output}{slice_shape}, {', '.join(carried)})"
    arrays = f"({of_output}{whole}{layout}, {', '.join(carried)})"
    entry = [
        f"  p{k} = {t}{whole if k == 0 else slice_shape}{layout if k == 0 else ''} parameter({k})"
        for k, t in enumerate(kinds)
    ]
    names = ", ".join(f"p{k}" for k in range(len(kinds)))
    how = f"dimensions={{{axis}}}, num_carries={len(carried)}, is_reverse={str(reverse).lower()}, to_apply=body"
    entry.append(f"  {'' if root else 'ROOT '}s = {arrays} scan({names}), {how}")
    if root:
        entry.append(f"  ROOT {root}")
    body_text = "\n".join([*given, f"  {made}", f"  ROOT t = {elements} tuple{results}"])
    return f"HloModule m\n\nbody {{\n{body_text}\n}}\n\nENTRY e {{\n" + "\n".join(entry) + "\n}\n"


def made(text: str) -> Any:
    module = hlo_opt.parse(text)
    scans = [i for i in module.entry.instructions if i.opcode == "scan"]
    return plan(region_of(module, scans[0]), H100)


@pytest.mark.parametrize("body", BODIES)
def test_bodies(body: str, tool: Any) -> None:
    texts = [scan(body, shape, axis) for shape, axis in (((7,), 0), ((4, 3), 0), ((2, 5, 3), 1))]
    tool.all_agree([*texts, scan(body, (6, 2), 0, reverse=True)])


def test_lengths_and_lines(tool: Any) -> None:
    sizes = [(n, lines) for n in (0, 1, 2, 17, 257) for lines in (0, 1, 31, 127, 129)]
    tool.all_agree([scan("sum", size, 0) for size in sizes] + [scan("exclusive", size, 1) for size in sizes])


def test_layouts(tool: Any) -> None:
    texts = [
        scan("decayed", (3, 4, 5), axis, layout=layout)
        for axis in range(3)
        for layout in ("{2,1,0}", "{0,1,2}", "{1,2,0}")
    ]
    tool.all_agree(texts)


def test_neighbouring_threads_take_neighbouring_lines() -> None:
    found = made(scan("sum", (9, 40), 0))
    assert found.segments[0].kind == "scan" and (found.segments[0].part.lines, found.segments[0].part.length) == (40, 9)
    assert made(scan("sum", (9,), 0)).launch.block == 1


def test_a_body_that_mixes_lines_has_none() -> None:
    text = scan("sum", (4, 3), 0)
    assert not isinstance(made(text), Reason)
    mixed = made(text.replace("add(a, b)", "reverse(a), dimensions={0}"))
    assert isinstance(mixed, Reason) and mixed.code == "FUS302"
