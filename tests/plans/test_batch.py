"""Outputs that are small arrays for each element of a batch: which regions are, and what a thread does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import DeviceTarget, InLanes
from hlo_opt.ir.index_map import variable
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.batch import Batch, match
from hlo_opt.plans.price import price
from hlo_opt.plans.reads import address_of
from hlo_opt.plans.samples import value_of
from tests.small_modules import H100


def chain(shape: str, *, steps: int = 3, layout: str = "") -> str:
    """A fusion of matrices, each element of which is multiplied by the sum of its column, several times."""
    n, k, m = shape.split(",")
    lines = [f"  v0 = f32[{shape}]{layout} parameter(0)"]
    for s in range(steps):
        total = ""
        for row in range(int(k)):
            lines += [
                f"  a{s}.{row} = f32[{n},1,{m}] slice(v{s}), slice={{[0:{n}], [{row}:{row + 1}], [0:{m}]}}",
                f"  b{s}.{row} = f32[{n},{m}] reshape(a{s}.{row})",
            ]
            if total:
                lines.append(f"  t{s}.{row} = f32[{n},{m}] add({total}, b{s}.{row})")
            total = f"t{s}.{row}" if total else f"b{s}.{row}"
        lines += [
            f"  c{s} = f32[{shape}]{layout} broadcast({total}), dimensions={{0,2}}",
            f"  d{s} = f32[{shape}]{layout} multiply(v{s}, c{s})",
            f"  v{s + 1} = f32[{shape}]{layout} subtract(d{s}, v{s})",
        ]
    inside = "\n".join(lines).replace(f"v{steps} =", f"ROOT v{steps} =")
    return (
        f"HloModule m\n\nfused {{\n{inside}\n}}\n\nENTRY e {{\n  x = f32[{shape}]{layout} parameter(0)\n"
        f"  ROOT f = f32[{shape}]{layout} fusion(x), kind=kLoop, calls=fused\n}}\n"
    )


def normed(shape: str, dtype: str, operations: int = 25) -> str:
    """A fusion that scales an array along its last dimension, by the results of several operations on two rows."""
    row, last = f"f32[{shape.split(',')[-1]}]", shape.count(",")
    given = f"  x = {dtype}[{shape}] parameter(0)\n  m = {row} parameter(1)\n  v = {row} parameter(2)\n"
    steps = "".join(
        f"  t{n} = {row} {('maximum', 'subtract')[n % 2]}({f't{n - 1}' if n else 'm'}, {('v', 'm')[n % 2]})\n"
        for n in range(operations)
    )
    return f"""HloModule m

fused {{
{given}{steps}  w = f32[{shape}] convert(x)
  n = f32[{shape}] broadcast(t{operations - 1}), dimensions={{{last}}}
  d = f32[{shape}] subtract(w, n)
  p = f32[{shape}] broadcast(t{operations - 2}), dimensions={{{last}}}
  o = f32[{shape}] multiply(d, p)
  ROOT r = {dtype}[{shape}] convert(o)
}}

ENTRY e {{
{given}  ROOT y = {dtype}[{shape}] fusion(x, m, v), kind=kLoop, calls=fused
}}
"""


SMALL = replace(H100, core_count=1)
"""A device that few threads fill."""


def planned(text: str, target: DeviceTarget = H100) -> Plan:
    module = hlo_opt.parse(text)
    made = plan(region_of(module, module.entry.root), target)
    assert isinstance(made, Plan)
    return made


@pytest.mark.parametrize("layout", ["", "{1,2,0}", "{0,1,2}"])
def test_a_thread_has_a_matrix(layout: str) -> None:
    (segment,) = planned(chain("1000,4,4", layout=layout)).segments
    part = segment.part
    assert isinstance(part, Batch) and part.dimensions == (1000,) and part.lanes == 1000 and part.along == ((0,),)


@pytest.mark.parametrize("text", [chain("1000,9,9"), chain("1000000,3,3", steps=1)], ids=["large", "by price"])
def test_others_are_loops(text: str) -> None:
    assert planned(text).kind == "loop"


def test_each_value_is_computed_once() -> None:
    few, some, many = (price(planned(chain("1000,4,4", steps=steps)), H100).instructions for steps in (3, 4, 5))
    assert many - some == pytest.approx(some - few, rel=0.2)


def matched(text: str) -> tuple[Plan, Batch]:
    """The plan, and the part that the matcher finds, whether or not the plan has it."""
    made = planned(text, SMALL)
    ((part,), rest) = match(made.region, [0], SMALL)
    assert not rest
    return made, part


@pytest.mark.parametrize(
    ("shape", "dtype", "shares", "vector"),
    [
        ("16,64,64", "f32", 1, 4),
        ("64,32,128", "f32", 4, 4),
        ("64,32,128", "bf16", 4, 8),
        ("64,32,128", "f16", 4, 8),
        ("16,24,255", "f32", 1, 4),
        ("16,33,255", "f32", 1, 1),
        ("16,33,255", "bf16", 1, 1),
        ("16,4,63", "f32", 1, 1),
    ],
)
def test_neighbouring_lanes_have_one_thread(shape: str, dtype: str, shares: int, vector: int) -> None:
    _, part = matched(normed(shape, dtype))
    assert (part.shares, part.vector) == (shares, vector)


@pytest.mark.parametrize(("shape", "bits"), [("16,64,64", 128), ("16,24,255", 128), ("16,33,255", 32)])
def test_neighbouring_lanes_move_together(shape: str, bits: int) -> None:
    made = planned(normed(shape, "f32"), SMALL)
    assert made.kind == "batch"
    assert price(made, SMALL).stores == (bits, bits) and price(made, SMALL).loads[0] == bits


@pytest.mark.parametrize("shape", ["64,32,128", "16,64,64", "16,24,255"])
def test_an_element_is_written_once(shape: str) -> None:
    made, part = matched(normed(shape, "bf16"))
    place = {"lane": np.arange(part.places)}
    elements = part.written(made.region, variable("lane", part.places))
    written = [value_of(address_of(made.region.roots[n].shape, index), place) for n, index in elements]
    assert sorted(np.concatenate(written)) == list(range(made.region.roots[0].shape.element_count))


@pytest.mark.parametrize(
    ("shape", "operations", "shares"),
    [("64,32,128", 4, 16), ("64,32,128", 25, 4), ("16,64,64", 4, 4), ("4,64,64", 4, 1), ("31,33,255", 25, 1)],
    ids=["four elements each", "much would be computed again", "sixteen rows", "few streams", "a prime"],
)
def test_on_a_processor_a_lane_is_a_lane_and_writes_few_streams(shape: str, operations: int, shares: int) -> None:
    made = planned(normed(shape, "f32", operations), SMALL)
    ((part,), _) = match(made.region, [0], InLanes.of(SMALL))
    assert (part.shares, part.vector) == (shares, 1)


@pytest.mark.parametrize("text", [chain("1000,4,4"), chain("1000,4,4", layout="{0,2,1}")], ids=["rows", "lanes apart"])
def test_on_a_processor_threads_do_not_share_what_would_be_computed_again(text: str) -> None:
    made = planned(text)
    ((part,), _) = match(made.region, [0], InLanes.of(H100))
    assert part.shares == 1


@pytest.mark.parametrize("shape", ["", "1"])
def test_on_a_processor_what_one_number_takes_is_nothing(shape: str) -> None:
    """A step of an optimizer scales all parameters by what it computes of the step's number. A processor computes that
    once for all lanes, so that a lane with 64 elements saves nothing, and is 64 times as much code."""
    steps = "".join(f"  t{n + 1} = f32[{shape}] {('sine', 'tanh')[n % 2]}(t{n})\n" for n in range(6))
    text = f"""HloModule m

fused {{
  x = f32[64,64] parameter(0)
  t0 = f32[{shape}] parameter(1)
{steps}  t = f32[] reshape(t6)
  b = f32[64,64] broadcast(t), dimensions={{}}
  ROOT r = f32[64,64] multiply(x, b)
}}

ENTRY e {{
  x = f32[64,64] parameter(0)
  t = f32[{shape}] parameter(1)
  ROOT f = f32[64,64] fusion(x, t), kind=kLoop, calls=fused
}}
"""
    made = planned(text)
    assert match(made.region, [0], InLanes.of(H100)) == ([], [0])
    ((part,), rest) = match(made.region, [0], H100)
    assert part.dimensions == (64,) and not rest


def test_outputs_of_one_shape_that_share_a_chain_are_a_loop() -> None:
    """A thread of a loop computes for both outputs what they share, so that a batch has nothing to save."""
    lines = [f"  v{n + 1} = f32[16,32] tanh(v{n})" for n in range(6)]
    inside = "\n".join(lines)
    text = f"""HloModule m

fused {{
  p = f32[16,64] parameter(0)
  c = f32[16,64] negate(p)
  v0 = f32[16,32] slice(c), slice={{[0:16], [32:64]}}
{inside}
  w = f32[16,32] negate(v6)
  ROOT t = (f32[16,32], f32[16,32]) tuple(v6, w)
}}

ENTRY e {{
  x = f32[16,64] parameter(0)
  ROOT f = (f32[16,32], f32[16,32]) fusion(x), kind=kLoop, calls=fused
}}
"""
    module = hlo_opt.parse(text)
    assert not match(region_of(module, module.entry.root), [0, 1], H100)[0]
