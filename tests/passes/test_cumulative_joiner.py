"""Cumulative windows in XLA's parts of 16: which are joined, into what, and that the values stay."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hlo_opt

PASSES = "cse,cumulative-joiner,dce"
PART = 16
REDUCER = "f {{\n  x = {kind}[] parameter(0)\n  y = {kind}[] parameter(1)\n  ROOT z = {kind}[] {opcode}(x, y)\n}}\n"


class Parts:
    """The steps that XLA:GPU writes for a cumulative window (xla/service/reduce_window_rewriter.cc)."""

    def __init__(self, kind: str, opcode: str, init: str, *, reverse: bool) -> None:
        self.kind, self.opcode, self.reverse = kind, opcode, reverse
        self.lines = [f"  i = {kind}[] constant({init})"]

    def put(self, sizes: list[int], operation: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"  {name} = {self.kind}[{','.join(map(str, sizes))}] {operation}")
        return name

    def window(self, x: str, sizes: list[int], axis: int, size: int, far: int, grown: int = 0) -> str:
        """A window of `size` elements along an axis, with `far` elements of padding before the first of a line."""
        ends = ["0_0"] * len(sizes)
        ends[axis] = f"0_{far}" if self.reverse else f"{far}_0"
        of = ["1"] * len(sizes)
        of[axis] = str(size)
        result = [*sizes[:axis], sizes[axis] + grown, *sizes[axis + 1 :]]
        return self.put(
            result, f"reduce-window({x}, i), window={{size={'x'.join(of)} pad={'x'.join(ends)}}}, to_apply=f"
        )

    def cut(self, x: str, sizes: list[int], axis: int, start: int, limit: int) -> str:
        """A slice of a line: places count from where it starts."""
        low, high = (sizes[axis] - limit, sizes[axis] - start) if self.reverse else (start, limit)
        parts = [f"[{low}:{high}]" if d == axis else f"[0:{size}]" for d, size in enumerate(sizes)]
        return self.put([*sizes[:axis], limit - start, *sizes[axis + 1 :]], f"slice({x}), slice={{{', '.join(parts)}}}")

    def pad(self, x: str, sizes: list[int], axis: int, first: int, last: int) -> str:
        ends = ["0_0"] * len(sizes)
        ends[axis] = f"{last}_{first}" if self.reverse else f"{first}_{last}"
        result = [*sizes[:axis], sizes[axis] + first + last, *sizes[axis + 1 :]]
        return self.put(result, f"pad({x}, i), padding={'x'.join(ends)}")

    def folds(self, x: str, sizes: list[int], axis: int, last: int = PART - 1) -> str:
        """The folds of each element and those before it; `last` is the element of a part that the next parts take."""
        size = sizes[axis]
        count = -(-size // PART)
        if missing := count * PART - size:
            x = self.pad(x, sizes, axis, 0, missing)
        split = [*sizes[:axis], count, PART, *sizes[axis + 1 :]]
        x = self.put(split, f"bitcast({x})")
        within = self.window(x, split, axis + 1, PART, PART - 1)
        totals = self.cut(within, split, axis + 1, last, last + 1)
        outer = [*sizes[:axis], count, *sizes[axis + 1 :]]
        totals = self.put(outer, f"bitcast({totals})")
        grown = [*sizes[:axis], count + 1, *sizes[axis + 1 :]]
        if count > PART:
            sums = self.pad(self.folds(totals, outer, axis), outer, axis, 1, 0)
        else:
            sums = self.window(totals, outer, axis, count, count, grown=1)
        before = self.cut(sums, grown, axis, 0, count)
        kept = ",".join(str(d) for d in range(len(split)) if d != axis + 1)
        front = self.put(split, f"broadcast({before}), dimensions={{{kept}}}")
        whole = self.put(split, f"{self.opcode}({front}, {within})")
        padded = [*sizes[:axis], count * PART, *sizes[axis + 1 :]]
        whole = self.put(padded, f"bitcast({whole})")
        return self.cut(whole, padded, axis, 0, size) if missing else whole


def in_parts(
    sizes: list[int],
    axis: int,
    kind: str = "s32",
    opcode: str = "add",
    init: str = "0",
    *,
    reverse: bool = False,
    last: int = PART - 1,
) -> str:
    """A module with XLA's steps for the folds of lines."""
    parts = Parts(kind, opcode, init, reverse=reverse)
    parts.lines.append(f"  p = {kind}[{','.join(map(str, sizes))}] parameter(0)")
    parts.folds("p", sizes, axis, last)
    parts.lines[-1] = f"  ROOT{parts.lines[-1][1:]}"
    entry = "\n".join(parts.lines)
    return f"HloModule m\n{REDUCER.format(kind=kind, opcode=opcode)}ENTRY e {{\n{entry}\n}}\n"


def windows(module: hlo_opt.Module) -> int:
    return sum(i.opcode == "reduce-window" for i in module.entry.instructions)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("sizes", "axis", "kind", "opcode", "init"),
    [
        ([64], 0, "s32", "add", "0"),
        ([3, 256], 1, "s32", "add", "0"),
        ([2, 1000], 1, "u32", "multiply", "1"),  # padding at two levels
        ([1000, 3], 0, "s32", "add", "0"),
        ([2, 300, 3], 1, "f32", "maximum", "-inf"),
        ([5000], 0, "pred", "or", "false"),  # three levels
    ],
)
def test_parts_are_joined(sizes: list[int], axis: int, kind: str, opcode: str, init: str, reverse: bool) -> None:
    module = hlo_opt.parse(in_parts(sizes, axis, kind, opcode, init, reverse=reverse))
    joined, _ = hlo_opt.fuse(module, passes=PASSES, simplify="never")
    hlo_opt.verify(joined)
    assert windows(joined) == 1 and len(joined.entry.instructions) <= 5, str(joined)
    given = (np.random.default_rng(1).integers(-9, 9, sizes)).astype(module.entry.root.shape.type.dtype)
    (want,), (got,) = hlo_opt.evaluate(module, [given]), hlo_opt.evaluate(joined, [given])
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("size", "old", "new"),
    [
        (64, "pad=4_0", "pad=3_1"),  # the part itself counts as before it
        (64, "constant(0)", "constant(1)"),
        (64, "window={size=1x16 pad=0_0x15_0}", "window={size=1x16 pad=0_0x0_15}"),
        (256, "dimensions={0}", "dimensions={1}"),
    ],
)
def test_other_steps_stay(size: int, old: str, new: str) -> None:
    text = in_parts([size], 0)
    assert old in text
    made, _ = hlo_opt.fuse(hlo_opt.parse(text.replace(old, new)), passes=PASSES, simplify="never")
    assert windows(made) == 2


def test_another_element_of_each_part_is_no_total() -> None:
    made, _ = hlo_opt.fuse(hlo_opt.parse(in_parts([64], 0, last=PART - 2)), passes=PASSES, simplify="never")
    assert windows(made) == 2


def test_default_computes_them_in_one_kernel() -> None:
    module = hlo_opt.parse(in_parts([3, 1000], 1, "f32"))
    fused, _ = hlo_opt.fuse(module)
    assert math.prod(fused.entry.root.shape.dimensions) == 3000 and len(fused.entry.instructions) <= 3, str(fused)
