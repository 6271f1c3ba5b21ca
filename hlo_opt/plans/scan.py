"""The scan plan: a thread walks one line along the scanned dimension, with the carried values in registers.

The body of the scan must be elementwise; the interpreter runs others. XLA:GPU expands every scan to a loop of kernels
(xla/hlo/transforms/expanders/scan_expander.cc).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hlo_opt.ir import Computation, Instruction, Shape
from hlo_opt.ir.index_map import delinearize, variable
from hlo_opt.ir.size import most
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.lowering import Elementwise
from hlo_opt.ops.shapes import integer
from hlo_opt.plans.instructions import of_body
from hlo_opt.plans.loop import BLOCK
from hlo_opt.plans.plan import Launch, Region, Segment, Unshared
from hlo_opt.plans.walks import ROUND, THREAD, Walk


@dataclass(frozen=True)
class ScanRuns(Unshared):
    """A scan; `roots` are positions of outputs, all of them its results."""

    kind: ClassVar[str] = "scan"
    hero: Instruction
    roots: tuple[int, ...]

    @property
    def carries(self) -> int:
        """The number of carried values: the last operands, and the last results."""
        return integer(self.hero, "num_carries")

    @property
    def inputs(self) -> Sequence[Instruction]:
        """The scanned operands."""
        return self.hero.operands[: len(self.hero.operands) - self.carries]

    @property
    def axis(self) -> int:
        """The scanned dimension."""
        return self.hero.ints("dimensions")[0]

    @property
    def whole(self) -> Shape | None:
        """The shape of a scanned operand or result; None if there is none."""
        results = list(self.hero.shape.leaves())
        shapes = [*(o.shape for o in self.inputs), *results[: len(results) - self.carries]]
        return next(iter(shapes), None)

    @property
    def length(self) -> int:
        """The number of steps."""
        return self.whole.dimensions[self.axis] if self.whole is not None else 0

    @property
    def line_dimensions(self) -> tuple[int, ...]:
        """The sizes of the dimensions that are not scanned."""
        assert self.whole is not None
        return tuple(size for d, size in enumerate(self.whole.dimensions) if d != self.axis)

    @property
    def block(self) -> int:
        return max(1, min(BLOCK, most(self.lines)))

    @property
    def lines(self) -> int:
        """The number of lines, which is that of threads."""
        return math.prod(self.line_dimensions)

    def segment(self, block: int) -> Segment[ScanRuns]:
        """The segment, alone in its launch."""
        return Segment(self, -(-self.lines // block))


def match(region: Region) -> ScanRuns | None:
    """The region as a scan with independent lines, or None."""
    heroes = [i for i in region.computation.instructions if i.opcode == "scan"]
    if len(heroes) != 1 or any(_maker(root) is not heroes[0] for root in region.roots):
        return None
    part = ScanRuns(heroes[0], tuple(range(len(region.roots))))
    body = part.hero.called_by("to_apply")
    fits = part.whole is not None and _works_on_elements(body, part.line_dimensions)
    return part if fits else None


def _works_on_elements(body: Computation, dimensions: tuple[int, ...]) -> bool:
    """Whether every value of the body has those dimensions and is elementwise, or is a scalar constant."""
    for i in body.instructions:
        shapes = list(i.shape.leaves())
        if i.opcode == "constant" and not i.shape.is_tuple and not i.shape.rank:
            continue
        if i.opcode == "broadcast" and not i.operands[0].shape.rank and i.operands[0].opcode == "constant":
            shapes = [i.shape]
        elif i.opcode not in ("parameter", "tuple", "get-tuple-element") and not _is_elementwise(i):
            return False
        if any(not s.is_array or s.dimensions != dimensions for s in shapes):
            return False
    return True


def _is_elementwise(instruction: Instruction) -> bool:
    spec = find(instruction.opcode)
    return spec is not None and spec.kind is OpKind.ELEMENTWISE and isinstance(spec.cuda, Elementwise)


def _maker(root: Instruction) -> Instruction:
    return root.operands[0] if root.opcode == "get-tuple-element" else root


def walks(region: Region, segment: Segment[ScanRuns], launch: Launch) -> list[Walk]:
    """The walk of a thread along its line."""
    part = segment.part
    place, step = list(delinearize(variable("line", part.lines), part.line_dimensions)), variable("step", part.length)
    along = (*place[: part.axis], step, *place[part.axis :])
    results = list(part.hero.shape.leaves())
    written = [(shape, along) for shape in results[: len(results) - part.carries]]
    places = {"line": variable(THREAD, max(1, part.lines)), "step": variable(ROUND, part.length)}
    wanted = [(operand, along) for operand in part.inputs]
    body = part.hero.called_by("to_apply")
    return [
        Walk(
            max(1, part.lines),
            wanted,
            written,
            places=places,
            rounds=max(1, part.length),
            body=of_body(body),
            steps=len(list(body.instructions)) - len(body.parameters),
        )
    ]
