"""Batch normalisations as plain operations, so that kernels can contain them, and operations beside them are fused.

Source: xla/service/batchnorm_expander.cc, which does the same before XLA:CPU and XLA:GPU fuse. Two things differ, so
that less is lost to rounding: f16 and bf16 are computed in f32 and rounded once, and a variance is the mean of squared
distances from the mean, not a difference of large numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar
from typing import Literal as OneOf

import numpy as np

from hlo_opt.ir import Attribute, Called, Computation, ElementType, Instruction, Module, Shape, edit
from hlo_opt.ir.element_type import F32, F64
from hlo_opt.ops.shapes import integer
from hlo_opt.passes.base import PassContext
from hlo_opt.passes.expansion import BroadcastingWriter, Expansion, scalar_reducer

_NORMS = frozenset({"batch-norm-grad", "batch-norm-inference", "batch-norm-training"})


@dataclass(frozen=True)
class BatchNormExpander(Expansion):
    """Write every batch normalisation as plain operations."""

    name: ClassVar[str] = "batch-norm-expander"
    preserves: ClassVar[OneOf["graph", "meaning"]] = "meaning"
    idempotent: ClassVar[bool] = True

    def concerns(self, module: Module) -> bool:
        return any(i.opcode in _NORMS for c in module.computations for i in c.instructions)

    def computations(self, module: Module) -> Iterable[Computation]:
        return module.computations

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        adders: dict[ElementType, Computation] = {}
        for norm in [i for i in computation.instructions if i.opcode in _NORMS]:
            yield partial(_expand, norm, adders)


def _expand(norm: Instruction, adders: dict[ElementType, Computation]) -> None:
    plain = _Norm(norm, adders)
    expansions = {"training": plain.training, "inference": plain.inference, "grad": plain.grad}
    edit.replace_all_uses(norm, expansions[norm.opcode.removeprefix("batch-norm-")]())
    edit.remove(norm)


class _Norm:
    """One normalisation: its operands in a wide type, and the operations that replace it."""

    def __init__(self, norm: Instruction, adders: dict[ElementType, Computation]) -> None:
        self.norm = norm
        self.writer = BroadcastingWriter(norm.computation)
        operand = norm.operands[0].shape
        self.wide = F64 if operand.type == F64 else F32
        self.feature = integer(norm, "feature_index")
        self.whole = replace(operand, element_type=self.wide)
        self.features = replace(norm.operands[1].shape, element_type=self.wide)
        self.x, *self.others = (self.writer.convert(o, self.wide) for o in norm.operands)
        if self.wide not in adders:
            adders[self.wide] = scalar_reducer(norm.computation, "add", Shape(self.wide))
        self.adder = adders[self.wide]
        self.count = max(operand.element_count // max(self.features.element_count, 1), 1)
        # XLA keeps epsilon as a float of 32 bits (xla/hlo/ir/hlo_instructions.h, HloBatchNormInstruction)
        self.epsilon = self.writer.scalar(self.wide, float(np.float32(str(norm.value("epsilon", 0.0)))))

    def training(self) -> Instruction:
        """The tuple (normalised, mean, variance), computed from the operand: batch-norm-training."""
        scale, offset = self.others
        mean = self.mean(self.x)
        centred = self.binary("subtract", self.x, self.spread(mean))
        variance = self.mean(self.binary("multiply", centred, centred))
        return self.results(self.scaled(centred, variance, scale, offset), mean, variance)

    def inference(self) -> Instruction:
        """The operand normalised by a given mean and variance: batch-norm-inference."""
        scale, offset, mean, variance = self.others
        return self.narrowed(
            self.scaled(self.binary("subtract", self.x, self.spread(mean)), variance, scale, offset), self.norm.shape
        )

    def grad(self) -> Instruction:
        """The tuple of the gradients of operand, scale and offset: batch-norm-grad."""
        scale, mean, variance, gradient = self.others
        centred = self.binary("subtract", self.x, self.spread(mean))
        total, product = self.sum(gradient), self.sum(self.binary("multiply", gradient, centred))
        shifted = self.writer.binary("add", variance, self.epsilon)
        inverse = self.writer.emit("rsqrt", self.features, shifted)
        count = self.writer.scalar(self.wide, self.count)
        slope = self.writer.binary("divide", self.writer.binary("divide", product, shifted), count)
        shared = self.binary(
            "add",
            self.spread(self.writer.binary("divide", total, count)),
            self.binary("multiply", centred, self.spread(slope)),
        )
        changed = self.binary("subtract", gradient, shared)
        steepness = self.spread(self.writer.binary("multiply", scale, inverse))
        return self.results(
            self.binary("multiply", changed, steepness), self.writer.binary("multiply", product, inverse), total
        )

    def scaled(
        self, centred: Instruction, variance: Instruction, scale: Instruction, offset: Instruction
    ) -> Instruction:
        """centred / sqrt(variance + epsilon) * scale + offset"""
        deviation = self.writer.emit("sqrt", self.features, self.writer.binary("add", variance, self.epsilon))
        normal = self.binary("divide", centred, self.spread(deviation))
        return self.binary("add", self.binary("multiply", normal, self.spread(scale)), self.spread(offset))

    def binary(self, opcode: str, left: Instruction, right: Instruction) -> Instruction:
        """An operation on two arrays of the operand's dimensions."""
        return self.writer.emit(opcode, self.whole, left, right)

    def spread(self, features: Instruction) -> Instruction:
        """A number for each feature, broadcast to the operand's dimensions."""
        return self.writer.emit("broadcast", self.whole, features, dimensions=(self.feature,))

    def sum(self, value: Instruction) -> Instruction:
        """The sum over all dimensions but that of the features: [features]."""
        over = tuple(d for d in range(self.whole.rank) if d != self.feature)
        attributes: dict[str, Attribute | Called] = {"dimensions": Attribute.of(over), "to_apply": Called(self.adder)}
        operands = (value, self.writer.scalar(self.wide, 0))
        return edit.create(self.norm.computation, "reduce", "reduce", self.features, operands, attributes)

    def mean(self, value: Instruction) -> Instruction:
        """The mean over all dimensions but that of the features: [features]."""
        return self.writer.binary("divide", self.sum(value), self.writer.scalar(self.wide, self.count))

    def narrowed(self, value: Instruction, shape: Shape) -> Instruction:
        """The value in the type and layout of a result."""
        opcode = "copy" if value.shape.type == shape.type else "convert"
        return value if value.shape == shape else self.writer.emit(opcode, shape, value)

    def results(self, *values: Instruction) -> Instruction:
        """The tuple of the values, in the types and layouts of the normalisation's results."""
        outputs = [self.narrowed(v, leaf) for v, leaf in zip(values, self.norm.shape.leaves(), strict=True)]
        return self.writer.emit("tuple", self.norm.shape, *outputs)
