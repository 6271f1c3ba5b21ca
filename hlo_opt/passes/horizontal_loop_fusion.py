"""Horizontal loop fusion: many small kernels that feed one consumer, such as the updates of an optimizer's parameters,
become one launch.

Source: xla/service/gpu/horizontal_loop_fusion.cc, as it was before XLA dropped it. There kernels of different shapes
are concatenated and sliced; here each shape has blocks of its own in the launch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.properties import is_generic_triton
from hlo_opt.diag import Reason
from hlo_opt.fusion import compatibility
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.horizontal import (
    POINTER_BYTES,
    Joiner,
    argument_room,
    buffer_count,
    consumers,
    impossible,
    is_forced,
    operand_kernels,
    other_users,
    size_of,
)
from hlo_opt.ir import Computation, Instruction, Shape
from hlo_opt.ops.sets import is_elementwise
from hlo_opt.passes.base import FusionPass, Refusal


@dataclass(frozen=True)
class HorizontalLoopFusion(FusionPass):
    """Join loops that a common consumer reads, whether or not their shapes are equal, from the end of the computation
    to its start.

    max_elements          the most elements of an output of a kernel that is joined; larger ones fill the device alone
    max_mixed_elements    the same where the shapes of neighbours differ
    any_mixed_alike       join kernels of different shapes whatever their sizes, if they have equally many instructions
                          and so need equally many registers
    max_instructions      instructions of a kernel that is joined
    max_outputs           outputs of a joint kernel
    max_plain_outputs     the same for a kernel of plain operations
    max_argument_bytes    bytes of the pointers that a kernel takes
    reductions_pay        join kernels that hold reductions only where one launch takes no longer than two
    mixed_types           join kernels whose outputs have several element types, or other numbers of outputs
    """

    name: ClassVar[str] = "horizontal-loop-fusion"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"
    kind: ClassVar[str] = "horizontal"

    max_elements: int = 8192 * 8192
    max_mixed_elements: int = 128 * 2048
    max_instructions: int = 128
    max_outputs: int = 32
    max_plain_outputs: int = 64
    max_argument_bytes: int = 4000
    mixed_types: bool = False
    any_mixed_alike: bool = False
    reductions_pay: bool = False

    def fuse_in(self, computation: Computation, engine: Engine) -> bool:
        changed = False
        joiner = Joiner(engine, computation)
        for consumer in consumers(computation, joiner.instructions):
            for span in self._spans(engine, consumer):
                changed |= joiner.join_all(span, self._checks)
        return changed

    @property
    def _checks(self) -> tuple[compatibility.PairCheck, ...]:
        return (compatibility.reductions_pay,) if self.reductions_pay else ()

    def _spans(self, engine: Engine, consumer: Instruction) -> Iterator[list[Instruction]]:
        """Runs of candidates, in the order of type, outputs, instructions and elements, that one launch takes."""
        candidates = [k for k in operand_kernels(consumer) if self._unfit(engine, k, consumer) is None]
        candidates.sort(key=lambda k: self._order(engine, k))
        span: list[Instruction] = []
        for candidate in candidates:
            if span and next(self._apart(engine, span, candidate), None) is not None:
                yield span
                span = []
            span.append(candidate)
        if span:
            yield span

    def _order(self, engine: Engine, kernel: Instruction) -> tuple[str, int, int, int, tuple[int, ...]]:
        outputs = list(kernel.shape.leaves())
        kind = "" if self.mixed_types else outputs[0].type.name
        count = 0 if self.mixed_types else len(outputs)
        return kind, count, size_of(engine, kernel), outputs[0].element_count, outputs[0].dimensions

    def _unfit(self, engine: Engine, kernel: Instruction, consumer: Instruction) -> Reason | None:
        """What keeps a kernel from being a candidate."""
        return next(itertools.chain(self._against(engine, kernel, consumer), impossible(engine, kernel, kernel)), None)

    def _against(self, engine: Engine, kernel: Instruction, consumer: Instruction) -> Iterator[Reason]:
        return engine.switched_on(self._unsuited(engine, kernel, consumer))

    def _unsuited(self, engine: Engine, kernel: Instruction, consumer: Instruction) -> Iterator[Reason]:
        form = self._form(engine, kernel)
        if form:
            yield Reason.of("FUS142", instruction=kernel.name, form=form)
        shared = other_users(kernel, consumer)
        if shared is not None:
            yield shared
        outputs = list(kernel.shape.leaves())
        elements = outputs[0].element_count
        if elements > self.max_elements:
            yield Reason.of(
                "FUS441", instruction=kernel.name, elements=elements, limit=self.max_elements, option="max-elements"
            )
        size = size_of(engine, kernel)
        if size > self.max_instructions:
            yield Reason.of("FUS442", instruction=kernel.name, size=size, limit=self.max_instructions)
        types = sorted({o.type.name for o in outputs})
        if len(types) > 1 and not self.mixed_types:
            yield Reason.of("FUS443", instruction=kernel.name, types=", ".join(types))

    def _form(self, engine: Engine, kernel: Instruction) -> str:
        """What the kernel is when it is no loop; empty for a loop."""
        if engine.state.traits(kernel).library:
            return "library call"
        if engine.state.lowering(kernel) is not None:
            return "kernel of its own"
        if kernel.opcode != "fusion":
            return "" if is_elementwise(kernel) and kernel.operands else f"single {kernel.opcode}"
        if is_generic_triton(kernel):
            return "Triton fusion"
        emitter, _ = engine.state.emitter(kernel)
        return "" if emitter == "loop" else f"{emitter} kernel"

    def _apart(self, engine: Engine, span: list[Instruction], candidate: Instruction) -> Iterator[Reason]:
        """Why a candidate begins a new launch."""
        if not any(is_forced(engine, member, candidate) for member in span):
            yield from engine.switched_on(self._limits(engine, span, candidate))

    def _limits(self, engine: Engine, span: list[Instruction], candidate: Instruction) -> Iterator[Reason]:
        last = span[-1]
        one, other = _first_output(last), _first_output(candidate)
        outputs = [sum(1 for _ in k.shape.leaves()) for k in (*span, candidate)]
        if not self.mixed_types and (one.type is not other.type or outputs[-1] != outputs[-2]):
            yield Reason.of(
                "FUS444",
                first=last.name,
                first_outputs=f"{outputs[-2]} {one.type.name}",
                second=candidate.name,
                second_outputs=f"{outputs[-1]} {other.type.name}",
            )
        largest = max((last, candidate), key=lambda k: _first_output(k).element_count)
        elements = _first_output(largest).element_count
        may_differ = self.any_mixed_alike and size_of(engine, last) == size_of(engine, candidate)
        if one.dimensions != other.dimensions and elements > self.max_mixed_elements and not may_differ:
            yield Reason.of(
                "FUS441",
                instruction=largest.name,
                elements=elements,
                limit=self.max_mixed_elements,
                option="max-mixed-elements",
            )
        most = self.max_plain_outputs if all(k.opcode != "fusion" for k in (*span, candidate)) else self.max_outputs
        if sum(outputs) > most:
            yield Reason.of("FUS241", outputs=sum(outputs), limit=most)
        argument_bytes = POINTER_BYTES * sum(buffer_count(k) for k in (*span, candidate))
        most_bytes = min(self.max_argument_bytes, argument_room(engine.context.options.target))
        if argument_bytes >= most_bytes:
            yield Reason.of("FUS242", bytes=argument_bytes, limit=most_bytes)

    def sibling_refusals(self, engine: Engine, computation: Computation) -> Iterator[Refusal]:
        """Neighbours among the kernels that a consumer reads: what each has against it, then what closed the launch
        between them."""
        joiner = Joiner(engine, computation)
        for consumer in consumers(computation, joiner.instructions):
            kernels = [k for k in operand_kernels(consumer) if _is_generated(engine, k)]
            kernels.sort(key=lambda k: self._order(engine, k))
            for first, second in itertools.pairwise(kernels):
                reasons: list[Reason] = []
                for kernel in (first, second):
                    reasons += self._against(engine, kernel, consumer)
                reasons += self._apart(engine, [first], second)
                if self._checks and not is_forced(engine, first, second):
                    pair = compatibility.Beside(first, second, engine.state, engine.origins)
                    reasons += engine.against(self._checks, pair)
                reasons += joiner.connected(first, second)
                yield Refusal(first, second, [*reasons, *impossible(engine, first, second)])


def _is_generated(engine: Engine, kernel: Instruction) -> bool:
    """Whether code is generated for the kernel: a library call cannot share a launch."""
    return engine.state.lowering(kernel) is None and not engine.state.traits(kernel).library


def _first_output(kernel: Instruction) -> Shape:
    return next(kernel.shape.leaves())
