"""Random programs whose values every right implementation agrees on, to be compared with one: `@given(programs())`, or
`drawn.program(seed, number)`.

A program is a module with an interval for each of its inputs. It is grown instruction by instruction, over what HLO
defines: each value's interval is known, operands are clamped to where an operation is defined and well-conditioned, and
steps (floor, compare, sort, conversion to integers..) are only taken of values that no rounding has touched; the
recipes say which uses are left out. What has an effect is answered by whoever evaluates the program.
"""

from __future__ import annotations

from hypothesis import strategies as st

from hlo_opt.ir import Instruction, edit
from random_modules.builder import Draw, tup
from random_modules.comparable import (
    collectives,
    control,
    effects,
    elementwise,
    indexing,
    movement,
    products,
    reductions,
)
from random_modules.comparable.writer import FAMILIES, RECIPES, Program, Writer

__all__ = [
    "EFFECTS", "FAMILIES", "RECIPES", "UNKNOWN_TO_XLA_CPU", "Program", "collectives", "control", "effects",
    "elementwise", "fusible_programs", "grown",
    "indexing", "movement", "products", "programs", "reductions",
]  # fmt: skip

EFFECTS = frozenset(o for o, name in FAMILIES.items() if name in ("random draws", "transfers", "unknown custom calls"))
"""Opcodes that the world outside answers: left out where nobody plays it."""

UNKNOWN_TO_XLA_CPU = {
    "async-start": "XLA's way of a module into the CPU compiler, by MLIR, loses the types of asynchronous values",
    "async-update": "as async-start",
    "async-done": "as async-start",
    "bitcast": "XLA:CPU refuses those of a module before its own layout assignment",
    "collective-broadcast": "XLA:CPU does not implement it",
    "copy-start": "XLA:CPU does not implement it",
    "copy-done": "XLA:CPU does not implement it",
    "mulhi": "MLIR has no such operation",
    "ragged-all-to-all": "XLA:CPU does not implement it",
    "ragged-dot": "XLA:CPU does not implement it",
    "scaled-dot": "MLIR has no such operation",
}
"""Left out of programs for XLA:CPU only."""


FUSIBLE = frozenset(
    {
        "control flow", "call and fusion", "tuples", "elementwise functions", "complex numbers",
        "elementwise arithmetic", "rounding", "bits", "comparison",
        "conversion", "map", "gather", "scatter", "broadcast and iota", "reshape", "transpose", "copy", "slice and pad",
        "dynamic slices", "reduce",
        "reduce-window",
    }
)  # fmt: skip
"""Families that kernels compute, and what is around kernels."""

NEVER_WAIT = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "after-all"})


def grown(w: Writer, opcodes: list[str]) -> Program:
    """A program with an instruction of each of these opcodes, and what they need. What nothing uses is returned."""
    for opcode in opcodes:
        RECIPES[opcode](w, opcode)
    ends = [i for i in w.frame.values if not i.users and i.opcode != "parameter"]
    roots = ends or [w.emit("copy", i.shape, [i]) for i in w.frame.values[-1:]]
    root: Instruction = roots[0]
    if len(roots) > 1 or w.flag() or w.partitions > 1:
        # XLA's partitioner takes no tuple in a tuple
        if len(roots) > 2 and w.partitions == 1 and not w.number(0, 3):
            inner = w.emit("tuple", tup(*(r.shape for r in roots[1:])), roots[1:])
            roots = [roots[0], inner]
        root = w.emit("tuple", tup(*(r.shape for r in roots)), roots)
    edit.set_root(w.frame.computation, root)
    edit.add_computation(w.module, w.frame.computation, entry=True)
    return Program(w.module, tuple(w.parameters), tuple(w.forms))


@st.composite
def programs(draw: Draw, opcodes: tuple[str, ...] = (), most: int = 10, tile_edges: bool = False) -> Program:
    """Programs with one instruction of each given opcode and up to `most` of drawn ones, computations that they call
    not counted. `tile_edges`: arrays are larger, with sizes at which kernels change their ways."""
    w = Writer(draw, EFFECTS, tile_edges)
    several = [w.opcode() for _ in range(w.number(0 if opcodes else 1, most))]
    return grown(w, [*opcodes, *several])


@st.composite
def fusible_programs(draw: Draw, most: int = 40) -> Program:
    """Programs of what kernels compute, mostly of one size and with few values that nothing else uses, so that much can
    be fused in many ways. Some instructions wait for others that they do not read."""
    w = Writer(
        draw, [opcode for opcode, family in FAMILIES.items() if family not in FUSIBLE], sizes=draw(st.integers(1, 2))
    )
    program = grown(w, [w.opcode() for _ in range(w.number(2, most))])
    instructions = [i for i in program.module.entry.instructions if i.opcode not in NEVER_WAIT]
    for _ in range(max(0, w.number(-4, 2)) if len(instructions) > 1 else 0):
        later = w.number(1, len(instructions) - 1)
        first = instructions[w.number(0, later - 1)]
        if first not in instructions[later].control_predecessors:
            instructions[later].control_predecessors.append(first)
    return program
