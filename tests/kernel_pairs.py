"""Kernels of many kinds, and two of them as a pair, for tests of the rules about pairs."""

from __future__ import annotations

from small_modules import module_of, named, state_of

from hlo_opt.fusion.compatibility import Beside, MultiOutputEdge, Pair
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Instruction

WIDE, TALL, ROW, COLUMN = "f32[64,96]{1,0}", "f32[96,64]{1,0}", "f32[64]{0}", "f32[96]{0}"
SMALL = "f32[7,96]{1,0}"
INPUTS = (
    f"p = {WIDE} parameter(0)",
    f"q = {TALL} parameter(1)",
    f"v = {ROW} parameter(2)",
    f"w = {WIDE} parameter(3)",
    f"u = {SMALL} parameter(4)",
    "few = f32[64,4]{1,0} parameter(5)",
    "places = s32[5,1]{1,0} parameter(6)",
    "some = f32[5,96]{1,0} parameter(7)",
    "i = s32[] parameter(8)",
    "s = f32[8,32]{1,0} parameter(9)",
    "near = f32[5,51]{1,0} parameter(10)",
    "z = f32[] constant(0)",
)
TRITON = 'kind=kCustom, backend_config={"fusion_backend_config":{"kind":"__triton"}}'
ROWS, COLUMNS, TURNED = (
    "dimensions={1}, to_apply=sum",
    "dimensions={0}, to_apply=sum",
    "dimensions={1,0}",
)
KERNELS = {
    "negated": (f"x0 = {WIDE} parameter(0)", f"y0 = {WIDE} negate(x0)"),
    "sums": (f"x1 = {WIDE} parameter(0)", "z1 = f32[] constant(0)", f"y1 = {ROW} reduce(x1, z1), {ROWS}"),
    "turned": (f"x2 = {WIDE} parameter(0)", f"y2 = {TALL} transpose(x2), {TURNED}"),
    "updated": (
        f"x3 = {WIDE} parameter(0)",
        f"u3 = {SMALL} parameter(1)",
        "i3 = s32[] constant(3)",
        f"y3 = {WIDE} dynamic-update-slice(x3, u3, i3, i3)",
    ),
    "joined": (f"x4 = {WIDE} parameter(0)", "y4 = f32[128,96]{1,0} concatenate(x4, x4), dimensions={0}"),
    "scattered": (
        f"x5 = {WIDE} parameter(0)",
        "i5 = s32[5,1]{1,0} parameter(1)",
        "u5 = f32[5,96]{1,0} parameter(2)",
        f"y5 = {WIDE} scatter(x5, i5, u5), update_window_dims={{1}}, inserted_window_dims={{0}}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum",
    ),
    "of_two": (
        f"x6 = {WIDE} parameter(0)",
        f"y6 = {WIDE} negate(x6)",
        f"z6 = {WIDE} tanh(x6)",
        f"t6 = ({WIDE}, {WIDE}) tuple(y6, z6)",
    ),
    "turned_later": (
        f"x7 = {WIDE} parameter(0)",
        f"v7 = {WIDE} parameter(1)",
        f"n7 = {WIDE} add(x7, v7)",
        f"y7 = {TALL} transpose(n7), {TURNED}",
    ),
    "turned_and_more": (
        f"x8 = {WIDE} parameter(0)",
        f"y8 = {TALL} transpose(x8), {TURNED}",
        f"a8 = {TALL} abs(y8)",
    ),
    "read_twice": (
        f"x9 = {WIDE} parameter(0)",
        f"a9 = {WIDE} abs(x9)",
        f"n9 = {WIDE} add(a9, x9)",
        f"y9 = {TALL} transpose(n9), {TURNED}",
    ),
    "cut_twice": (
        "xa = f32[8,32]{1,0} parameter(0)",
        "aa = f32[4,32]{1,0} slice(xa), slice={[4:8], [0:32]}",
        "ba = f32[4,32]{1,0} slice(xa), slice={[0:4], [0:32]}",
        "ya = f32[4,32]{1,0} add(aa, ba)",
    ),
}
FUSED = f"{WIDE} fusion(p), kind=kLoop, calls=negated"

NEGATED, TANH = f"{WIDE} negate(p)", f"{WIDE} tanh(p)"
REVERSED = f"{WIDE} reverse(p), dimensions={{0}}"
ROW_SUM, COLUMN_SUM = f"{ROW} reduce(p, z), {ROWS}", f"{COLUMN} reduce(p, z), {COLUMNS}"


def part(rows: str) -> str:
    """Some of the eight rows of `s`: 1,024 bytes."""
    start, limit = map(int, rows.split(":"))
    return f"f32[{limit - start},32]{{1,0}} slice(s), slice={{[{rows}], [0:32]}}"


def both(first: str, second: str, *more: str, kept: bool = False, parent: str = "") -> Pair:
    """`a` and `b`, whose values are given, as one kernel; `kept`: `a` is kept for others and moves into `b`, which
    reads it."""
    module = module_of(*INPUTS, *more, f"a = {first}", f"b = {second}", "t = f32[] add(z, z)", **KERNELS)
    ends = named(module, "a"), named(module, "b"), state_of(module)
    return MultiOutputEdge(*ends) if kept else Beside(*ends, parent=named(module, parent) if parent else None)


def one(line: str, *more: str) -> tuple[FusionState, Instruction]:
    module = module_of(*INPUTS, *more, f"r = {line}", **KERNELS)
    return state_of(module), module.entry.root
