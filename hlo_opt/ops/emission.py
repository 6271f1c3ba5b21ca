"""XLA:GPU's emitters as far as single operations decide: which operation selects which emitter, and what affects the
launch.

Source: xla/service/gpu/ir_emission_utils.cc, hlo_fusion_analysis.cc, gpu_fusible.cc
(MayCausePerformanceDropIfUnrolled).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from enum import StrEnum, auto

from hlo_opt.ir import Instruction


def _opcodes(names: str) -> frozenset[str]:
    return frozenset(names.split())


UNROLLED_OPERANDS = 10
"""A kernel with a concatenate of more operands than this is slower when unrolled."""
UNROLLED_WINDOW = 8
"""A kernel with a reduce-window of more elements than this is slower when unrolled."""


class XlaEmitter(StrEnum):
    """An emitter of XLA:GPU."""

    LOOP = auto()
    REDUCTION = auto()
    TRANSPOSE = auto()
    CONCATENATE = auto()
    SCATTER = auto()
    IN_PLACE = "in-place"


HEROES = {
    "concatenate": XlaEmitter.CONCATENATE,
    "dynamic-update-slice": XlaEmitter.IN_PLACE,
    "reduce": XlaEmitter.REDUCTION,
    "scatter": XlaEmitter.SCATTER,
    "transpose": XlaEmitter.TRANSPOSE,
}
"""Operations that can be the hero of a fusion, and the emitter they select."""


@functools.lru_cache(maxsize=4096)
def emitters_of(opcodes: frozenset[str]) -> frozenset[XlaEmitter]:
    """The emitters selected by some of the operations."""
    return frozenset(HEROES[opcode] for opcode in opcodes if opcode in HEROES)


ORDERS: dict[str, Callable[[Instruction], tuple[int, ...]]] = {
    "copy": lambda instruction: tuple(range(instruction.shape.rank)),
    "transpose": lambda instruction: instruction.ints("dimensions"),
}
"""Operations that may reorder elements in memory: for each result dimension, the operand dimension."""
MOVERS = frozenset({*ORDERS, "reshape"})
"""The same, and reshapes, which reorder the elements of an array that does not lie in the order of its dimensions."""

_SLOWER_UNROLLED: dict[str, Callable[[Instruction], bool]] = {
    "concatenate": lambda instruction: len(instruction.operands) > UNROLLED_OPERANDS,
    "dot": lambda instruction: True,
    "reduce": lambda instruction: instruction.shape.is_tuple,
    "reduce-window": lambda instruction: (
        math.prod(d.size for d in getattr(instruction.value("window", ""), "dimensions", ())) > UNROLLED_WINDOW
    ),
    "sort": lambda instruction: True,
}


def is_slower_unrolled(instruction: Instruction) -> bool:
    """Whether a kernel with this instruction should compute one element per thread."""
    rule = _SLOWER_UNROLLED.get(instruction.opcode)
    return rule is not None and rule(instruction)


NOTABLE = frozenset({*HEROES, *ORDERS, *_SLOWER_UNROLLED, "convolution", "pad"})
"""Operations that can affect how their kernel is launched."""

TILED_FLOATS = _opcodes(
    "acos acosh asin asinh atan2 atanh cbrt ceil cosh cosine divide erf exponential exponential-minus-one "
    "floor is-finite log log-plus-one logistic power reduce-precision remainder round-nearest-afz "
    "round-nearest-even rsqrt sine sinh sqrt tan tanh"
)
"""Operations that Triton kernels support for floats only (xla/backends/gpu/codegen/triton/support.cc)."""

TILED = _opcodes(
    "abs add and bitcast broadcast clamp compare constant convert copy iota maximum minimum multiply negate "
    "not or parameter reduce reshape select slice subtract transpose tuple xor"
)
"""Operations that Triton kernels support for all their types."""

LOOP_PRODUCERS = _opcodes(
    "bitcast broadcast concatenate dynamic-slice gather iota pad reduce reduce-window reshape reverse slice transpose"
)
"""Operations besides elementwise ones that a loop can compute next to another output (IsProducerMultiOutputFusible)."""

PRIORITY_FUSED = _opcodes(
    "broadcast concatenate constant copy dynamic-slice dynamic-update-slice gather iota pad reduce "
    "reduce-window reshape reverse scatter slice transpose"
)
"""Operations besides elementwise ones that priority fusion accepts (IsFusible in
xla/backends/gpu/transforms/priority_fusion.cc)."""

NEVER_PRIORITY_FUSED = frozenset({"map", "rng"})
"""Elementwise operations that it does not accept."""

CHEAP_FUNCTIONS = frozenset({"divide", "sqrt", "rsqrt", "exponential"})
"""Functions computed fast by a GPU's special function units."""

WIDENINGS = frozenset({"bitcast", "bitcast-convert", "convert"})
"""Operations that may follow a reduction in its kernel: type changes of its elements."""
