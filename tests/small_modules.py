"""Small modules for tests of single rules: the lines of an entry, and kernels of several instructions beside it."""

from __future__ import annotations

from typing import Any

import hlo_opt
from hlo_opt.analysis.targets import DeviceTarget, target
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Instruction, Module
from hlo_opt.plans import Plan, Region, plan
from hlo_opt.plans.region import array_roots

SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
ARGMAX_STEP = """argmax {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  gt = pred[] compare(a, b), direction=GT
  eq = pred[] compare(a, b), direction=EQ
  less = pred[] compare(i, j), direction=LT
  tie = pred[] and(eq, less)
  first = pred[] or(gt, tie)
  x = f32[] select(first, a, b)
  k = s32[] select(first, i, j)
  ROOT t = (f32[], s32[]) tuple(x, k)
}
"""
"""The reducer of an argmax over f32: of equal values the first position."""
SUM_AND_LARGEST = (
    "a = f32[] parameter(0)",
    "b = f32[] parameter(1)",
    "c = f32[] parameter(2)",
    "d = f32[] parameter(3)",
    "s = f32[] add(a, c)",
    "m = f32[] maximum(b, d)",
    "t = (f32[], f32[]) tuple(s, m)",
)
"""The lines of a reducer of two arrays: the sum of one, the largest element of the other."""
H100 = target("h100_sxm")


def text_of(*lines: str, **kernels: tuple[str, ...]) -> str:
    """The last line of each computation is its root. `kernels` are computations that fusions call."""
    parts = [f"{name} {{\n{_body(body)}\n}}\n" for name, body in kernels.items()]
    return "HloModule m\n\n" + "\n".join([SUM, *parts, f"ENTRY e {{\n{_body(lines)}\n}}\n"])


def module_of(*lines: str, **kernels: tuple[str, ...]) -> Module:
    """As `text_of`, read, with users known."""
    module = hlo_opt.parse(text_of(*lines, **kernels))
    for computation in module.computations:
        computation.index_users()
    return module


def reduce_text(
    kind: str, opcode: str, init: str, dimensions: str, shape: str, result: str, *, order: str = "", more: str = ""
) -> str:
    """A module that reduces a parameter `x` from an init value `i` on; `order` is the parameter's layout,
    `more` are attributes."""
    return f"""HloModule m

f {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT c = {kind}[] {opcode}(a, b)
}}

ENTRY e {{
  x = {kind}[{shape}]{order} parameter(0)
  i = {kind}[] constant({init})
  ROOT r = {kind}[{result}] reduce(x, i), dimensions={{{dimensions}}}, to_apply=f{more}
}}
"""


def state_of(module: Module) -> FusionState:
    return FusionState(module, H100)


def engine_of(module: Module, **options: Any) -> tuple[Engine, dict[str, Instruction]]:
    """The engine of a module on an H100, with these `FuseOptions`, and the entry's instructions by name."""
    return Engine(module, PassContext(FuseOptions(H100, **options))), {i.name: i for i in module.entry.instructions}


def named(module: Module, name: str) -> Instruction:
    """The instruction of a name in the entry."""
    return next(i for i in module.entry.instructions if i.name == name)


def _body(lines: tuple[str, ...]) -> str:
    return "\n".join(f"  {'ROOT ' if n == len(lines) else ''}{line}" for n, line in enumerate(lines, start=1))


def planned(module: Module, target: DeviceTarget = H100) -> Plan:
    """The plan of a region that is the whole entry."""
    entry = module.entry
    found = plan(Region(entry.root, entry, tuple(entry.parameters), tuple(array_roots(entry.root))), target)
    assert isinstance(found, Plan), found
    return found
