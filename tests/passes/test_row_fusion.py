"""Kernels over the same rows as one: which are joined, into what, and that the values stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hlo_opt
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.runtime.check.compare import check
from tests.small_modules import H100

PASSES = "instruction-fusion,cse,dce,row-fusion,cse,dce"
SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
ROWS, COLUMNS = 1056, 2048
SMALL = replace(H100, core_count=8, memory_bandwidth=H100.memory_bandwidth / 16, l2_cache_size=2**20)
"""A device that has enough to do with arrays of a few megabytes."""


def gradient(after: str = "", result: str = "dx, first, second", shapes: str = "") -> str:
    """A sum of rows, what it is subtracted from, and two sums of columns."""
    whole, columns = f"f32[{ROWS},{COLUMNS}]", f"f32[{COLUMNS}]"
    shapes = shapes or f"{whole}, {columns}, {columns}"
    return f"""HloModule m

{SUM}
ENTRY e {{
  x = {whole} parameter(0)
  g = {whole} parameter(1)
  w = {columns} parameter(2)
  zero = f32[] constant(0)
  wide = {whole} broadcast(w), dimensions={{1}}
  gw = {whole} multiply(g, wide)
  s = f32[{ROWS}] reduce(gw, zero), dimensions={{1}}, to_apply=sum
  many = {whole} broadcast(s), dimensions={{0}}
  dx = {whole} subtract(gw, many)
  dxg = {whole} multiply(dx, x)
  first = {columns} reduce(dxg, zero), dimensions={{0}}, to_apply=sum
  second = {columns} reduce(g, zero), dimensions={{0}}, to_apply=sum
{after}  ROOT t = ({shapes}) tuple({result})
}}
"""


def joined(text: str, passes: str | None = PASSES) -> hlo_opt.Module:
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), passes=passes, target=SMALL)
    hlo_opt.verify(made)
    return made


def test_rows_are_read_twice_where_the_edge_is_forbidden() -> None:
    module = hlo_opt.parse(gradient())
    apart, decisions = hlo_opt.fuse(module, passes=PASSES, target=SMALL, forbid=[("s", "many")])
    assert len(kinds(apart)) > len(kinds(joined(gradient())))
    assert {r.code for d in decisions if (d.producer, d.consumer) == ("s", "many") for r in d.reasons} >= {"FUS505"}
    free, _ = hlo_opt.fuse(module, passes=PASSES, target=SMALL, forbid=[("s", "many")], what_if=["FUS505"])
    assert kinds(free) == kinds(joined(gradient()))


def kinds(module: hlo_opt.Module) -> list[str]:
    found = []
    for i in module.entry.instructions:
        if i.opcode in ("fusion", "reduce"):
            made = plan(region_of(module, i), SMALL)
            assert isinstance(made, Plan)
            found.append(made.kind)
    return sorted(found)


def inputs(module: hlo_opt.Module) -> list[np.ndarray]:
    random = np.random.default_rng(5)
    return [random.integers(-4, 4, p.shape.dimensions).astype(np.float32) for p in module.entry.parameters]


def same(text: str, made: hlo_opt.Module) -> None:
    """Whole numbers: sums come out the same in any order."""
    module = hlo_opt.parse(text)
    given = inputs(module)
    wanted = hlo_opt.evaluate(module, given)
    for got, ran, want in zip(
        hlo_opt.evaluate(made, given), hlo_opt.compile(made, backend="host")(*given), wanted, strict=True
    ):
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(ran, want)


@pytest.mark.parametrize("passes", [PASSES, None])
def test_rows_with_sums_of_columns_are_two_kernels(passes: str | None) -> None:
    made = joined(gradient(), passes)
    assert kinds(made)[-1] == "row-and-column-reduction" and len(kinds(made)) <= 3
    same(gradient(), made)


def test_parts_of_narrow_sums_are_wide() -> None:
    """The sums of columns are bf16, each rounded once: their parts are f32."""
    whole = f"bf16[{ROWS},{COLUMNS}]"
    narrow = f"""  n = {whole} convert(dxg)
  zn = bf16[] constant(0)
  third = bf16[{COLUMNS}] reduce(n, zn), dimensions={{0}}, to_apply=narrow
"""
    reducer = SUM.replace("sum {", "narrow {").replace("f32", "bf16")
    shapes = f"f32[{ROWS},{COLUMNS}], f32[{COLUMNS}], bf16[{COLUMNS}]"
    text = gradient(narrow, "dx, first, third", shapes).replace(SUM, SUM + reducer)
    made = joined(text)
    assert kinds(made)[-1] == "row-and-column-reduction" and len(kinds(made)) <= 3
    parts = [i.shape.type.name for c in made.computations for i in c.instructions if i.name.startswith("parts")]
    assert parts == ["f32", "f32"]
    hlo_opt.parse(str(made))
    same(text, made)


def test_what_follows_a_sum_of_columns_goes_into_the_second_kernel() -> None:
    after = f"""  p = f32[{COLUMNS}] parameter(3)
  half = f32[] constant(0.5)
  halves = f32[{COLUMNS}] broadcast(half), dimensions={{}}
  step = f32[{COLUMNS}] multiply(first, halves)
  new = f32[{COLUMNS}] subtract(p, step)
"""
    text = gradient(after, "dx, new", f"f32[{ROWS},{COLUMNS}], f32[{COLUMNS}]")
    made = joined(text)
    assert kinds(made) == ["loop", "row-and-column-reduction"]  # a thread adds up 16 parts
    same(text, made)


def test_rows_that_wait_for_columns_stay_apart() -> None:
    after = f"""  back = f32[{ROWS},{COLUMNS}] broadcast(first), dimensions={{1}}
  end = f32[{ROWS},{COLUMNS}] multiply(dx, back)
"""
    text = gradient(after, "end", f"f32[{ROWS},{COLUMNS}]")
    made = joined(text)
    same(text, made)
    assert len(kinds(made)) >= 2


def test_a_kernel_between_two_keeps_them_apart() -> None:
    """What a library computes of the rows' sums is needed by the second kernel: both as one would wait for itself."""
    text = f"""HloModule m

{SUM}
ENTRY e {{
  x = f32[{ROWS},{COLUMNS}] parameter(0)
  m = f32[{ROWS},{ROWS}] parameter(1)
  zero = f32[] constant(0)
  s = f32[{ROWS}] reduce(x, zero), dimensions={{1}}, to_apply=sum
  d = f32[{ROWS}] dot(m, s), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  b = f32[{ROWS}] add(s, d)
  many = f32[{ROWS},{COLUMNS}] broadcast(b), dimensions={{0}}
  dx = f32[{ROWS},{COLUMNS}] subtract(x, many)
  ROOT r = f32[{ROWS}] reduce(dx, zero), dimensions={{1}}, to_apply=sum
}}
"""
    made = joined(text)
    assert kinds(made) == ["row-reduction", "row-reduction"]


def test_rows_of_a_prime_number_are_in_no_stretches() -> None:
    text = gradient().replace(f"[{ROWS}", "[1051")
    made = joined(text)
    assert "row-and-column-reduction" not in kinds(made)
    same(text, made)


def test_a_limit_of_steps_is_kept() -> None:
    text = gradient()
    before, _ = hlo_opt.fuse(hlo_opt.parse(text), passes="instruction-fusion,cse,dce,row-fusion", stop_after_step=0)
    assert len([i for i in before.entry.instructions if i.opcode == "fusion"]) == 0


def test_what_is_waited_for_stays_a_kernel() -> None:
    text = """HloModule m

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  x = f32[8,64]{1,0} parameter(0)
  g = f32[8,64]{1,0} parameter(1)
  zero = f32[] constant(0)
  first = f32[8]{0} reduce(x, zero), dimensions={1}, to_apply=sum
  many = f32[8,64]{1,0} broadcast(first), dimensions={0}
  gm = f32[8,64]{1,0} multiply(g, many)
  gmx = f32[8,64]{1,0} multiply(gm, x)
  ROOT second = f32[8]{0} reduce(gmx, zero), dimensions={1}, to_apply=sumWAIT
}
"""
    kernels = {}
    for wait in ("", ", control-predecessors={first}"):
        fused, _ = hlo_opt.fuse(hlo_opt.parse(text.replace("WAIT", wait)))
        hlo_opt.verify(hlo_opt.parse(str(fused)))
        kernels[wait] = [i.opcode for i in fused.entry.instructions if i.opcode in ("fusion", "reduce")]
    one, several = kernels.values()
    assert len(one) == 1 and len(several) > 1


def test_rotations_in_few_long_rows_are_counted_in_the_joint_kernel() -> None:
    """How many blocks share a row depends on the work for an element, and a rotation's on what reads its shifts: a row
    of the joint kernel must be planned from the members of that kernel."""
    whole, columns = "8,16384", "16384"
    text = f"""HloModule m

{SUM}
ENTRY e {{
  bits = u32[{whole}] parameter(0)
  g = f32[{whole}] parameter(1)
  zero = f32[] constant(0)
  thirteen = u32[] constant(13)
  rest = u32[] constant(19)
  left = u32[{whole}] broadcast(thirteen), dimensions={{}}
  right = u32[{whole}] broadcast(rest), dimensions={{}}
  up = u32[{whole}] shift-left(bits, left)
  down = u32[{whole}] shift-right-logical(bits, right)
  turned = u32[{whole}] or(up, down)
  noise = f32[{whole}] convert(turned)
  gw = f32[{whole}] multiply(g, noise)
  s = f32[8] reduce(gw, zero), dimensions={{1}}, to_apply=sum
  many = f32[{whole}] broadcast(s), dimensions={{0}}
  dx = f32[{whole}] subtract(gw, many)
  first = f32[{columns}] reduce(dx, zero), dimensions={{0}}, to_apply=sum
  ROOT t = (f32[{whole}], f32[{columns}]) tuple(dx, first)
}}
"""
    module = hlo_opt.parse(text)
    made = hlo_opt.fuse(module, target=H100)[0]
    hlo_opt.verify(made)
    assert not check(module, made, backend="host").wrong
