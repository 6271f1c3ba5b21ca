"""Reduces of dimensions that lie apart: which are split, into what, and that the values stay."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ir import Module
from tests.small_modules import reduce_text

PASSES = "reduction-splitter,dce"


def reduce(
    shape: str, dimensions: str, result: str, opcode: str = "add", init: str = "0", kind: str = "f32", order: str = ""
) -> str:
    return reduce_text(kind, opcode, init, dimensions, shape, result, order=order, more=', metadata={op_name="sum"}')


GROUPS = "4,40,40,8,6", "1,2,4", "4,8"


def split(text: str) -> Module:
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), passes=PASSES)
    hlo_opt.verify(made)
    return made


def reduces(module: Module) -> list[tuple[int, ...]]:
    return [i.ints("dimensions") for i in module.entry.instructions if i.opcode == "reduce"]


@pytest.mark.parametrize(
    ("case", "parts"),
    [
        (reduce(*GROUPS, kind="s32"), [(1, 2), (2,)]),
        (reduce(*GROUPS, kind="u8", opcode="multiply", init="1"), [(1, 2), (2,)]),
        (reduce(*GROUPS, kind="f32", opcode="maximum", init="-inf"), [(1, 2), (2,)]),
        (reduce(*GROUPS, kind="pred", opcode="or", init="false"), [(1, 2), (2,)]),
        (reduce("4,9,9,4,8", "1,2,4", "4,4", kind="s32"), [(1, 2), (2,)]),  # a small group norm
        (reduce("4,4,5,300,31", "1,3", "4,5,31", kind="s32"), [(3,), (1,)]),  # the longest run
        (reduce("3,16,4,16,4,16", "1,3,5", "3,4,4", kind="s32"), [(5,), (1, 3)]),
        (reduce("40,40,8,6", "0,1,3", "8", kind="s32"), [(0, 1), (1,)]),  # short rows below a run
        (reduce("1,40,40,8,4", "1,2,4", "1,8", kind="s32"), [(1, 2), (2,)]),
        (reduce("40,8,6,4,40", "0,2,4", "8,4", kind="s32", order="{2,1,4,0,3}"), [(0, 4), (1,)]),  # as they lie
    ],
)
def test_the_values_stay(case: str, parts: list[tuple[int, ...]]) -> None:
    module = hlo_opt.parse(case)
    made = split(case)
    assert reduces(made)[:2] == parts
    (given,) = [p.shape for p in module.entry.parameters]
    drawn = np.random.default_rng(1).integers(0, 7, given.dimensions).astype(given.type.dtype)
    (want,), (got,) = hlo_opt.evaluate(module, [drawn]), hlo_opt.evaluate(made, [drawn])
    np.testing.assert_array_equal(got, want)
    fused, _ = hlo_opt.fuse(module)
    np.testing.assert_array_equal(hlo_opt.compile(fused, backend="host")(drawn)[0], want)


def two_reduces(kind: str, opcode: str, inner: str, outer: str, init: str = "0") -> str:
    """Two reduces of an array that nothing has written, and that is large."""
    sizes = [(str(d), str(n)) for d, n in enumerate((8, 64, 96))]
    kept = [",".join(n for d, n in sizes if d not in gone.split(",")) for gone in (inner, outer)]
    return f"""HloModule m

fold {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT c = {kind}[] {opcode}(a, b)
}}

ENTRY e {{
  x = {kind}[8,64,96] parameter(0)
  z = {kind}[] constant({init})
  y = {kind}[8,64,96] multiply(x, x)
  few = {kind}[{kept[0]}] reduce(y, z), dimensions={{{inner}}}, to_apply=fold
  all = {kind}[{kept[1]}] reduce(y, z), dimensions={{{outer}}}, to_apply=fold
  ROOT r = ({kind}[{kept[0]}], {kind}[{kept[1]}]) tuple(few, all)
}}
"""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (two_reduces("f32", "add", "2", "1,2"), [(2,), (1,)]),
        (two_reduces("s32", "add", "1", "0,1"), [(1,), (0,)]),
        (two_reduces("f32", "add", "0,2", "0,1,2"), [(0, 2), (0,)]),
        (two_reduces("bf16", "maximum", "2", "0,1,2", "-inf"), [(2,), (0, 1)]),
        (two_reduces("bf16", "add", "2", "1,2"), [(2,), (1, 2)]),  # the first sum is rounded
        (two_reduces("f32", "add", "2", "0,1"), [(2,), (0, 1)]),  # other dimensions
        (two_reduces("f32", "add", "2", "1,2", "1"), [(2,), (1, 2)]),  # starts with 1 twice
    ],
)
def test_a_reduce_goes_on_from_another(text: str, wanted: list[tuple[int, ...]]) -> None:
    made, parsed = split(text), hlo_opt.parse(text)
    assert sorted(reduces(made)) == sorted(wanted)
    given = np.random.default_rng(1).integers(0, 4, (8, 64, 96)).astype(parsed.entry.parameters[0].shape.type.dtype)
    for got, want in zip(hlo_opt.evaluate(made, [given]), hlo_opt.evaluate(parsed, [given]), strict=True):
        np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


def test_narrow_sums_are_rounded_once() -> None:
    case = reduce(*GROUPS, kind="bf16")
    module = hlo_opt.parse(case)
    ones = np.ones(module.entry.parameters[0].shape.dimensions, module.entry.root.shape.type.dtype)
    (got,) = hlo_opt.evaluate(split(case), [ones])
    assert (got.astype(np.float32) == np.float32(9600).astype(ones.dtype)).all()


@pytest.mark.parametrize(
    "case",
    [
        reduce("40,40,8,6", "0,1", "8,6"),  # columns
        reduce("40,40,8,6", "2,3", "40,40"),  # rows
        reduce("40,40,8,60", "0,3", "40,8"),  # rows that lie apart in major dimensions
        reduce("4,40,8,60", "1,3", "4,8"),  # a row kernel walks runs as long as a warp
        reduce(*GROUPS, init="1"),  # would be added twice
        reduce("2,5,5,3,2", "1,2,4", "2,3"),  # a thread folds few elements
        reduce("400,8,400,8", "1,3", "400,400"),  # short runs
    ],
)
def test_what_is_not_split(case: str) -> None:
    assert len(reduces(split(case))) == 1


def test_parts_keep_what_is_said_of_the_whole() -> None:
    made = split(reduce(*GROUPS))
    said = [i.attributes["metadata"] for i in made.entry.instructions if i.opcode == "reduce"]
    assert ['op_name="sum"' in str(s) for s in said] == [True, True]


def test_a_group_norm_is_kernels_of_columns() -> None:
    module = hlo_opt.parse(reduce("8,56,56,32,8", "1,2,4", "8,32"))
    whole, _ = hlo_opt.fuse(module, simplify="never")
    parts, _ = hlo_opt.fuse(module)
    assert hlo_opt.stats(parts).summary.est_us < hlo_opt.stats(whole).summary.est_us / 4


def beside(
    image: str = "reduce(deviations, z), dimensions={1,2}",
    images: str = "reduce(scaled, z), dimensions={0,1,2}",
    of: str = "x",
    more: str = "",
    result: str = "24",
    size: int = 16,
) -> str:
    """Sums of an image for each channel, and of all images, that read one array."""
    shape, wide = f"f32[8,{size},{size},24]", f"f32[8,{size},{size},4,6]"
    return f"""HloModule m

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY e {{
  x = {shape} parameter(0)
  y = {shape} parameter(1)
  z = f32[] constant(0)
  groups = {wide} reshape({of})
  deviations = {wide} multiply(groups, groups)
  first = f32[8,4,6] {image}, to_apply=sum
  flat = f32[8,24] reshape(first)
  spread = {shape} broadcast(flat), dimensions={{0,3}}
  scaled = {shape} multiply(x, {more or "y"})
  second = f32[{result}] {images}, to_apply=sum
  ROOT r = (f32[8,4,6], f32[{result}]) tuple(first, second)
}}
"""


def test_sums_of_one_array_are_folded_side_by_side() -> None:
    module = hlo_opt.parse(beside())
    made = split(beside())
    assert sorted(reduces(made)) == [(0,), (1, 2), (1, 2)]
    fused, _ = hlo_opt.fuse(module)
    assert sum(i.opcode in ("fusion", "reduce") for i in fused.entry.instructions) == 2
    rng = np.random.default_rng(1)
    given = [rng.integers(0, 7, p.shape.dimensions).astype(np.float32) for p in module.entry.parameters]
    want = hlo_opt.evaluate(module, given)
    for results in (hlo_opt.evaluate(made, given), hlo_opt.compile(fused, backend="host")(*given)):
        for expected, got in zip(want, results, strict=True):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    "text",
    [
        beside(of="y", more="x"),
        beside(more="spread"),
        beside(images="reduce(scaled, z), dimensions={1,2}", result="8,24"),
        beside(images="reduce(scaled, z), dimensions={1,2,3}", result="8"),
        beside(size=4),
    ],
    ids=["of other arrays", "one after the other", "of as much", "of rows", "of few elements"],
)
def test_other_sums_are_folded_at_once(text: str) -> None:
    assert len(reduces(split(text))) == 2


def test_parts_beside_still_shorter_sums_are_split_where_the_pass_is_repeated() -> None:
    text = """HloModule m

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  x = f32[4,4,32,64]{3,2,1,0} parameter(0)
  z = f32[] constant(0)
  y = f32[4,4,32,64]{3,2,1,0} multiply(x, x)
  w = f32[4,4,32,64]{3,2,1,0} exponential(x)
  all = f32[64]{0} reduce(x, z), dimensions={0,1,2}, to_apply=sum
  most = f32[4,64]{1,0} reduce(y, z), dimensions={1,2}, to_apply=sum
  few = f32[4,4,64]{2,1,0} reduce(w, z), dimensions={2}, to_apply=sum
  ROOT r = (f32[64]{0}, f32[4,64]{1,0}, f32[4,4,64]{2,1,0}) tuple(all, most, few)
}
"""
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), passes="fixpoint(reduction-splitter)", simplify="never")
    assert sorted(reduces(made)) == [(0,), (1,), (1,), (2,), (2,), (2,)]
