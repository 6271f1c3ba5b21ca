"""Which outputs may be made in the memory of an operand: by what each thread reads and writes."""

import pytest

import hlo_opt
from hlo_opt.analysis.targets import InLanes, target_of
from hlo_opt.plans import region_of
from hlo_opt.plans.choose import plan
from hlo_opt.plans.in_place import sharing_of
from hlo_opt.plans.plan import Plan, Region
from tests.codegen.conftest import region_of_text
from tests.loops import LANES
from tests.small_modules import H100

ADD = "f {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT z = f32[] add(x, y)\n}\n"


def planned(body: str, *, in_lanes: bool = False) -> Plan:
    """The plan of a fusion with these instructions. A is f32[64,128], B f32[128,64], R f32[64], C f32[128]."""
    kinds = {"A": "f32[64,128]{1,0}", "B": "f32[128,64]{1,0}", "R": "f32[64]{0}", "C": "f32[128]{0}"}
    lines = [line.strip() for line in body.strip().splitlines()]
    for short, kind in kinds.items():
        lines = [
            line.replace(f" {short} ", f" {kind} ")
            .replace(f" {short},", f" {kind},")
            .replace(f"({short},", f"({kind},")
            .replace(f" {short})", f" {kind})")
            for line in lines
        ]
    given = [line for line in lines if " parameter(" in line]
    root = lines[-1].split(" = ")[1]
    shape = root[: root.index(")") + 1] if root.startswith("(") else root.split(" ")[0]
    names = [line.split(" = ")[0] for line in given]
    entry = "\n".join(f"  {line}" for line in given)
    text = (
        f"HloModule m\n{ADD}g {{\n  "
        + "\n  ".join(lines)
        + f"\n}}\nENTRY e {{\n{entry}\n  ROOT r = {shape} fusion({', '.join(names)}), kind=kLoop, calls=g\n}}\n"
    )
    module = hlo_opt.parse(text)
    target = target_of(module)
    made = plan(region_of(module, module.entry.root), InLanes.of(target) if in_lanes else target)
    assert isinstance(made, Plan)
    return made


CASES: dict[str, tuple[str, set[tuple[int, int]]]] = {
    "an element": ("p = A parameter(0)\nROOT n = A negate(p)", {(0, 0)}),
    "either operand": ("p = A parameter(0)\nq = A parameter(1)\nROOT n = A add(p, q)", {(0, 0), (0, 1)}),
    "several outputs": (
        "p = A parameter(0)\nq = A parameter(1)\na = A add(p, q)\nb = A subtract(p, q)\nROOT t = (A, A) tuple(a, b)",
        {(0, 0), (0, 1), (1, 0), (1, 1)},
    ),
    "a neighbour": ("p = A parameter(0)\nROOT n = A reverse(p), dimensions={1}", set()),
    "an element and a neighbour": (
        "p = A parameter(0)\nn = A reverse(p), dimensions={1}\nROOT s = A add(p, n)",
        set(),
    ),
    "spread out": (
        "p = C parameter(0)\nq = A parameter(1)\nb = A broadcast(p), dimensions={1}\nROOT s = A add(b, q)",
        {(0, 1)},
    ),
    "a part of it": (
        "p = A parameter(0)\nq = R parameter(1)\ns = f32[64,1]{1,0} slice(p), slice={[0:64], [3:4]}\n"
        "r = R reshape(s)\nROOT a = R add(r, q)",
        {(0, 1)},
    ),
    "a transpose": ("p = A parameter(0)\nROOT t = B transpose(p), dimensions={1,0}", set()),
    "beside a transpose": (
        "p = A parameter(0)\nq = B parameter(1)\nt = B transpose(p), dimensions={1,0}\nROOT s = B subtract(q, t)",
        {(0, 1)},
    ),
    "a row alone, over its sum": (
        "p = R parameter(0)\nz = f32[] constant(0)\ns = f32[] reduce(p, z), dimensions={0}, to_apply=f\n"
        "b = R broadcast(s), dimensions={}\nROOT n = R divide(p, b)",
        {(0, 0)},
    ),
    "sums of rows": (
        "p = A parameter(0)\nq = R parameter(1)\nz = f32[] constant(0)\n"
        "s = R reduce(p, z), dimensions={1}, to_apply=f\nROOT a = R add(s, q)",
        {(0, 1)},
    ),
    "sums of columns": (
        "p = A parameter(0)\nq = C parameter(1)\nz = f32[] constant(0)\n"
        "s = C reduce(p, z), dimensions={0}, to_apply=f\nROOT a = C subtract(q, s)",
        {(0, 1)},
    ),
    "rows less their sums": (
        "p = A parameter(0)\nz = f32[] constant(0)\ns = R reduce(p, z), dimensions={1}, to_apply=f\n"
        "b = A broadcast(s), dimensions={0}\nROOT a = A subtract(p, b)",
        {(0, 0)},
    ),
    "columns less their sums": (
        "p = A parameter(0)\nz = f32[] constant(0)\ns = C reduce(p, z), dimensions={0}, to_apply=f\n"
        "b = A broadcast(s), dimensions={1}\nROOT a = A subtract(p, b)",
        {(0, 0)},
    ),
    "rows written before they are read again": (
        "p = A parameter(0)\nz = f32[] constant(0)\ns = R reduce(p, z), dimensions={1}, to_apply=f\n"
        "b = A broadcast(s), dimensions={0}\na = A subtract(p, b)\nn = A negate(p)\nROOT t = (A, A) tuple(n, a)",
        {(1, 0)},
    ),
    "a factor that all of a row read": (
        "p = A parameter(0)\nq = R parameter(1)\nz = f32[] constant(0)\nc = A broadcast(q), dimensions={0}\n"
        "m = A multiply(p, c)\ns = R reduce(m, z), dimensions={1}, to_apply=f\nROOT a = R add(s, q)",
        set(),
    ),
    "halves that change places": (
        "p = A parameter(0)\na = f32[64,64]{1,0} slice(p), slice={[0:64], [0:64]}\n"
        "b = f32[64,64]{1,0} slice(p), slice={[0:64], [64:128]}\nn = f32[64,64]{1,0} negate(b)\n"
        "ROOT c = A concatenate(n, a), dimensions={1}",
        {(0, 0)},
    ),
    "parts of other sizes": (
        "p = A parameter(0)\na = f32[64,32]{1,0} slice(p), slice={[0:64], [0:32]}\n"
        "b = f32[64,96]{1,0} slice(p), slice={[0:64], [32:128]}\nROOT c = A concatenate(b, a), dimensions={1}",
        set(),
    ),
    "halves that read their neighbours": (
        "p = A parameter(0)\na = f32[64,64]{1,0} slice(p), slice={[0:64], [0:64]}\n"
        "b = f32[64,64]{1,0} slice(p), slice={[0:64], [1:65]}\nROOT c = A concatenate(b, a), dimensions={1}",
        set(),
    ),
    "another type": ("p = A parameter(0)\nROOT n = s32[64,128]{1,0} bitcast-convert(p)", set()),
    "elements that share bytes": ("p = s4[64,128]{1,0} parameter(0)\nROOT n = s4[64,128]{1,0} negate(p)", set()),
    "where data say": (
        "p = R parameter(0)\ni = s32[64,1]{1,0} parameter(1)\nROOT g = R gather(p, i), offset_dims={}, "
        "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}",
        set(),
    ),
    "in two segments": (
        "p = A parameter(0)\nq = C parameter(1)\nn = A negate(p)\n"
        "s = f32[1,128]{1,0} slice(p), slice={[5:6], [0:128]}\n"
        "r = C reshape(s)\na = C add(r, q)\nROOT t = (A, C) tuple(n, a)",
        {(1, 1)},
    ),
}


@pytest.mark.parametrize("in_lanes", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_what_may_lie_in_an_operand(case: str, in_lanes: bool) -> None:
    body, expected = CASES[case]
    assert sharing_of(planned(body, in_lanes=in_lanes)) == expected


def test_a_table_that_other_lanes_still_read_is_not_overwritten() -> None:
    name = "a table that no round changes"
    text = LANES[name][0].replace("s32[9]", "s32[64]")
    region = region_of_text(text)
    assert (0, 0) in sharing_of(_of(region))
    both = text.replace("tuple(z, p1, p2)", "tuple(z, p1, p1)")
    assert sharing_of(_of(region_of_text(both))) == frozenset()


def _of(region: Region) -> Plan:
    made = plan(region, H100)
    assert isinstance(made, Plan)
    return made
