"""Outputs that are small arrays for each element of a batch: which regions are, and what a thread does."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.batch import Batch
from hlo_opt.plans.price import price
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


def planned(text: str) -> Plan:
    module = hlo_opt.parse(text)
    made = plan(region_of(module, module.entry.root), H100)
    assert isinstance(made, Plan)
    return made


@pytest.mark.parametrize("layout", ["", "{1,2,0}", "{0,1,2}"])
def test_a_thread_has_a_matrix(layout: str) -> None:
    (segment,) = planned(chain("1000,4,4", layout=layout)).segments
    part = segment.part
    assert isinstance(part, Batch) and part.dimensions == (1000,) and part.lanes == 1000 and part.along == ((0,),)


@pytest.mark.parametrize("text", [chain("1000,9,9"), chain("1000000,4,4", steps=1)], ids=["large", "by price"])
def test_others_are_loops(text: str) -> None:
    assert planned(text).kind == "loop"


def test_each_value_is_computed_once() -> None:
    few, some, many = (price(planned(chain("1000,4,4", steps=steps)), H100).instructions for steps in (3, 4, 5))
    assert many - some == pytest.approx(some - few, rel=0.2)
