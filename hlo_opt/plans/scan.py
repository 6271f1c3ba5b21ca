"""The scan plan: a thread goes along one line of the scanned dimension and keeps what is carried in registers.

Only where the body of the scan works on each element of its slices by itself; another body is left to the interpreter.
XLA:GPU makes a loop of kernels of every scan (xla/hlo/transforms/expanders/scan_expander.cc).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hlo_opt.ir import Computation, Instruction, Shape
from hlo_opt.ir.index_map import delinearize, variable
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.lowering import Elementwise
from hlo_opt.ops.shapes import integer
from hlo_opt.plans.instructions import of_body
from hlo_opt.plans.loop import BLOCK
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.walks import ROUND, THREAD, Walk


@dataclass(frozen=True)
class Runs:
    """A scan; `roots` are positions of outputs, all of them the scan's."""

    kind: ClassVar[str] = "scan"
    hero: Instruction
    roots: tuple[int, ...]

    @property
    def carries(self) -> int:
        """How many values are handed on from step to step: the last operands, and the last results."""
        return integer(self.hero, "num_carries")

    @property
    def inputs(self) -> Sequence[Instruction]:
        """The operands that are gone through."""
        return self.hero.operands[: len(self.hero.operands) - self.carries]

    @property
    def axis(self) -> int:
        """The dimension along which it goes."""
        return self.hero.ints("dimensions")[0]

    @property
    def whole(self) -> Shape | None:
        """The shape of an array that a scan reads or writes step by step; None where there is none."""
        made = list(self.hero.shape.leaves())
        shapes = [*(o.shape for o in self.inputs), *made[: len(made) - self.carries]]
        return next(iter(shapes), None)

    @property
    def length(self) -> int:
        """Steps."""
        return self.whole.dimensions[self.axis] if self.whole is not None else 0

    @property
    def line_dimensions(self) -> tuple[int, ...]:
        """Sizes of the dimensions across which threads lie."""
        assert self.whole is not None
        return tuple(size for d, size in enumerate(self.whole.dimensions) if d != self.axis)

    @property
    def block(self) -> int:
        """Threads per block."""
        return max(1, min(BLOCK, self.lines))

    @property
    def lines(self) -> int:
        """How many lines there are."""
        return math.prod(self.line_dimensions)

    def segment(self, block: int) -> Segment[Runs]:
        """The segment, alone in its launch."""
        return Segment(self, -(-self.lines // block))

    def shared_bytes(self, block: int) -> int:
        """None."""
        return 0


def match(region: Region) -> Runs | None:
    """The region as a scan whose lines do not need each other, or None."""
    heroes = [i for i in region.computation.instructions if i.opcode == "scan"]
    if len(heroes) != 1 or any(_maker(root) is not heroes[0] for root in region.roots):
        return None
    found = Runs(heroes[0], tuple(range(len(region.roots))))
    body = found.hero.called_by("to_apply")
    fits = found.whole is not None and _works_on_elements(body, found.line_dimensions)
    return found if fits else None


def _works_on_elements(body: Computation, dimensions: tuple[int, ...]) -> bool:
    """Whether every value of the body has those dimensions and is computed from elements at the same place, or is a
    constant number everywhere."""
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


def walks(region: Region, segment: Segment[Runs], launch: Launch) -> list[Walk]:
    """A thread goes along its line, step after step."""
    part = segment.part
    place, step = list(delinearize(variable("line", part.lines), part.line_dimensions)), variable("step", part.length)
    along = (*place[: part.axis], step, *place[part.axis :])
    made = list(part.hero.shape.leaves())
    written = [(shape, along) for shape in made[: len(made) - part.carries]]
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
