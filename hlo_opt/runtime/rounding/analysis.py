"""What other correct backends may return for a module: an enclosure for every element of every output.

The module runs once, in the interpreter, on spreads (see `spread`): what every backend computes the same stays an array, everything else has the reference's
value, a lower and an upper bound, and moved values. The rules:

- arithmetic in the type itself, movement, choices, order and integers are exact: equal operands, equal results (`elementwise`, `movement`, `order`);
- functions with a tolerance in the op table, and sums, whose order is open, widen the bounds (`elementwise`, `sums`);
- a rounding to a narrow type, to an integer or to a truth value makes certain what has both bounds on one side; what has not is a tie, and may come out either way;
- bounds are held against moved values, which are K runs in lockstep in which each inexact operation is moved at random by an eighth to a quarter of its
  tolerance, which is still further than most real backends differ (`calibration`);
- of an operation that no rule is known of, such as a factorization, other backends are taken to compute the exact result of slightly other operands (backward
  stability; N. Higham, "Accuracy and Stability of Numerical Algorithms", 1.5): the moved values alone say how far its results may be off.

Interval arithmetic: R. E. Moore, R. B. Kearfott and M. J. Cloud, "Introduction to Interval Analysis", SIAM, 2009. Running error bounds: Higham, 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hlo_opt.evaluate import Interpreter, unflatten
from hlo_opt.evaluate.program import Evaluate, Program, compile_elementwise
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.dynamic import takes_dynamic
from hlo_opt.ops.reducers import monoid
from hlo_opt.runtime.rounding import control, sums
from hlo_opt.runtime.rounding.calibration import FACTOR, calibrated
from hlo_opt.runtime.rounding.elementwise import elementwise
from hlo_opt.runtime.rounding.indices import indexed
from hlo_opt.runtime.rounding.movement import movement
from hlo_opt.runtime.rounding.order import folded, sort
from hlo_opt.runtime.rounding.spread import (
    HIGH,
    LOW,
    MOVED,
    ROWS,
    VALUE,
    Loss,
    Spread,
    element_type_of,
    full,
    is_real,
    is_spread,
    leaves,
    ordered,
    picked,
    rows_of,
    set_aside,
    settled,
    stacked,
)

Array = Any
Value = Any

_HANDED = frozenset(
    {
        *("add-dependency", "after-all", "async-done", "async-start", "async-update", "call", "constant", "copy-done"),
        *("copy-start", "domain", "fusion", "get-tuple-element", "iota", "opt-barrier", "parameter", "tuple"),
        *(
            "partition-id",
            "replica-id",
            "rng-get-and-update-state",
            "infeed",
            "outfeed",
            "send",
            "recv",
            "send-done",
            "recv-done",
        ),
    }
)
"""Operations whose faces hand values on as they are."""

_HELD = 12
"""Elementwise operations in a row after which bounds are held against the moved values."""

_POOL = 1 << 16


@dataclass(frozen=True)
class Tie:
    """An operation that may decide one way or the other, for so many elements."""

    instruction: Instruction
    elements: int


@dataclass
class Analysis:
    """The spread of each output, tuples flattened, and the ties on the way."""

    outputs: list[Value]
    ties: list[Tie]


def analyse(
    module: Module, inputs: Sequence[Array], seed: int = 0, *, rewritten: bool = False, losses: bool = False
) -> Analysis:
    """Run the entry on spreads.

    inputs     one array per array of the entry's parameters
    seed       of the moved values
    rewritten  whether the other module may round where this one does not, and leave out roundings to narrow types
    losses     whether to find where digits are lost: see `Loss`
    """
    analyst = Analyst(np.random.default_rng([seed, ROWS]), rewritten=rewritten, losses=losses)
    arguments = unflatten([p.shape for p in module.entry.parameters], inputs)
    value = analyst.call(module.entry, arguments)
    return Analysis(list(leaves(value)), analyst.ties())


class Analyst(Interpreter):
    """The interpreter on spreads. One for each device."""

    def __init__(
        self, generator: np.random.Generator, *, rewritten: bool = False, losses: bool = False, **options: Any
    ) -> None:
        super().__init__(**options)
        self.rewritten = rewritten
        self._losses = losses
        self._generator = generator
        pool = generator.uniform(0.5, 1.0, _POOL)
        self._pool = np.where(generator.random(_POOL) < 0.5, -pool, pool)
        self._ties: dict[Instruction, int] = {}
        self._scalars: dict[Computation, Program | None] = {}

    def noise(self, shape: tuple[int, ...]) -> Array:
        count = int(np.prod(shape, dtype=np.int64))
        if count > _POOL // 2:
            far = self._generator.uniform(0.5, 1.0, shape)
            return np.where(self._generator.random(shape) < 0.5, -far, far)
        start = int(self._generator.integers(_POOL - count))
        return self._pool[start : start + count].reshape(shape)

    def tie(self, instruction: Instruction, elements: int) -> None:
        self._ties[instruction] = max(elements, self._ties.get(instruction, 0))

    def ties(self) -> list[Tie]:
        return [Tie(i, n) for i, n in self._ties.items()]

    def program(self, computation: Computation) -> Program:
        known = computation in self._programs
        program = super().program(computation)
        if not known:
            for step in program.steps:
                if not step.is_taken:
                    step.evaluate = self._wrapped(step.instruction, step.evaluate)
        return program

    def map_elements(self, computation: Computation, arguments: Sequence[Value], *, wide: bool = False) -> list[Value]:
        if wide:
            computation = self.widened(computation)
        if not any(type(a) is Spread for a in arguments):
            return super().map_elements(computation, arguments)
        if computation not in self._scalars:
            program = compile_elementwise(computation)
            if program is not None:
                for step in program.steps:
                    if step.instruction.opcode not in ("call", "fusion", "map") and _is_elementwise(step.instruction):
                        step.evaluate = self._wrapped(step.instruction, step.evaluate)
            self._scalars[computation] = program
        program = self._scalars[computation]
        if program is None:
            made = stacked(
                [
                    tuple(super(Analyst, self).map_elements(computation, [picked(a, k) for a in arguments]))
                    for k in range(ROWS)
                ]
            )
            return [_sampled(m) for m in made]
        sizes = np.broadcast_shapes(*(rows_of(a).shape[1:] for a in arguments))
        return [_sized(m, sizes) for m in leaves(self._run(program, computation, arguments))]

    def _wrapped(self, instruction: Instruction, evaluate: Evaluate) -> Evaluate:
        rule = _rule(instruction, evaluate)
        return _losing(rule) if self._losses and instruction.opcode not in _HANDED else rule


def _is_elementwise(instruction: Instruction) -> bool:
    spec = find(instruction.opcode)
    return spec is not None and spec.kind is OpKind.ELEMENTWISE


def _sized(value: Value, sizes: tuple[int, ...]) -> Value:
    if type(value) is Spread:
        rows = value.rows
        if rows.shape[1:] != sizes:
            value = Spread(
                np.broadcast_to(
                    rows.reshape(ROWS, *(1,) * (len(sizes) + 1 - rows.ndim), *rows.shape[1:]), (ROWS, *sizes)
                )
            )
        return value
    array = np.asarray(value)
    return array if array.shape == sizes else np.broadcast_to(array, sizes)


def _rule(instruction: Instruction, evaluate: Evaluate) -> Evaluate:
    """The face of an instruction for values that may be spreads."""
    opcode = instruction.opcode
    if opcode in _HANDED or opcode.rpartition("-")[2] in ("start", "update", "done"):
        return evaluate
    spec = find(opcode)
    if spec is None or spec.evaluate is None:
        return evaluate
    if takes_dynamic(instruction):
        return opaque(instruction, evaluate)
    special = _SPECIAL.get(opcode)
    found = special(instruction, evaluate) if special is not None else None
    if found is not None:
        return found
    if opcode == "map":
        return _map
    if spec.kind is OpKind.ELEMENTWISE and spec.tolerance is not None:
        return _held(elementwise(instruction, evaluate))
    if spec.kind is OpKind.MOVEMENT:
        return movement(instruction, evaluate)
    if spec.kind is OpKind.COLLECTIVE:
        return _together(instruction, evaluate)
    return opaque(instruction, evaluate)


def _held(rule: Evaluate) -> Evaluate:
    def run(analyst: Any, instruction: Instruction, values: list[Value]) -> Value:
        made = rule(analyst, instruction, values)
        if type(made) is Spread and made.depth >= _HELD and is_real(made.rows.dtype):
            made.rows, made.depth = calibrated(made.rows), 0
        return made

    return run


def _map(analyst: Any, instruction: Instruction, values: list[Value]) -> Value:
    return analyst.map_elements(instruction.called_by("to_apply"), values)[0]


def _dot(instruction: Instruction, evaluate: Evaluate) -> Evaluate | None:
    if instruction.shape.type.is_complex:
        return None
    sizes, along = instruction.operands[0].shape.dimensions, instruction.ints("lhs_contracting_dims")
    terms = max(1, int(np.prod([sizes[d] for d in along], dtype=np.int64)))
    other = instruction.ints("rhs_contracting_dims")
    plain = instruction.opcode == "dot" and along
    return sums.bilinear(terms, (along[0], other[0]) if plain else None)(instruction, evaluate)


def _convolution(instruction: Instruction, evaluate: Evaluate) -> Evaluate | None:
    from hlo_opt.ops.convolution import convolution_dimensions

    if instruction.shape.type.is_complex:
        return None
    kernel, dimensions = instruction.operands[1].shape, convolution_dimensions(instruction)
    terms = kernel.element_count // max(1, kernel.dimensions[dimensions.rhs[0]])
    plain = dimensions.feature_groups == dimensions.batch_groups == 1
    along = (dimensions.lhs[1], dimensions.rhs[1]) if plain else None
    return sums.bilinear(max(1, terms), along)(instruction, evaluate)


def _reduce(instruction: Instruction, evaluate: Evaluate) -> Evaluate:
    return sums.reduction(instruction, evaluate) or folded(instruction, evaluate)


_SPECIAL: dict[str, Callable[[Instruction, Evaluate], Evaluate | None]] = {
    "conditional": control.conditional,
    "convolution": _convolution,
    "dot": _dot,
    "dynamic-slice": indexed,
    "dynamic-update-slice": indexed,
    "gather": indexed,
    "ragged-dot": _dot,
    "reduce": _reduce,
    "reduce-window": sums.windows,
    "scatter": sums.scatter,
    "sort": sort,
    "while": control.while_,
}


def _together(instruction: Instruction, evaluate: Evaluate) -> Evaluate:
    """A collective: every device brings all rows, certain or not, as another one may not be certain of them. Sums have an open order."""
    called = next(instruction.called(), None)
    adds = called is not None and monoid(called) not in ("maximum", "minimum", "and", "or")

    def run(analyst: Any, instruction: Instruction, values: list[Value]) -> Value:
        members = analyst.device.replicas * analyst.device.partitions
        if members < 2 and not is_spread(tuple(values)):
            return evaluate(analyst, instruction, values)
        made = stacked([evaluate(analyst, instruction, [picked(v, k) for v in values]) for k in range(ROWS)])
        if not adds:
            return made
        sizes = evaluate(analyst, instruction, [_magnitude(v) for v in values])
        return _each(made, sizes, lambda m, s: _summed(analyst, m, s, members))

    return run


def _magnitude(value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(map(_magnitude, value))
    rows = rows_of(value)
    if not is_real(rows.dtype):
        return picked(value, VALUE)
    return np.abs(rows).max(axis=0)


def _each(value: Value, other: Value, change: Callable[[Value, Value], Value]) -> Value:
    if isinstance(value, tuple):
        return tuple(_each(v, o, change) for v, o in zip(value, other, strict=True))
    return change(value, other)


def _summed(analyst: Analyst, value: Value, size: Value, members: int) -> Value:
    rows = full(rows_of(value))
    if not is_real(rows.dtype) or members < 3:
        return value
    import ml_dtypes

    own = float(ml_dtypes.finfo(rows.dtype).eps) * members * np.abs(np.asarray(size).astype(np.float64))
    wide = rows.astype(np.float64)
    wide[LOW] -= own
    wide[HIGH] += own
    wide[MOVED:] += 0.25 * own * analyst.noise(wide[MOVED:].shape)
    return settled(wide.astype(rows.dtype))


_EXACT = {4: 2.0**-24, 8: 2.0**-53}
"""The relative width that what comes from certain values is measured against, by bytes; narrower types: 2^-8."""

_BACKWARD = 8.0
"""ULP of an operand by which it may differ from the one that another library's result is the exact one of."""
_FORWARD = 64.0
"""ULP of the largest element of a result's matrix by which results of two libraries may differ for equal operands."""


def opaque(instruction: Instruction, evaluate: Evaluate) -> Evaluate:
    """The face of an operation that no rule is known of: the moved values say how far its result may be off."""
    spec = find(instruction.opcode)
    exact = spec is not None and spec.kind in (OpKind.RANDOM, OpKind.MOVEMENT, OpKind.INDEXING, OpKind.ELEMENTWISE)
    exact = exact or (
        instruction.opcode in ("topk", "custom-call")
        and not any(
            leaf.is_array and (leaf.type.is_float or leaf.type.is_complex) for leaf in instruction.shape.leaves()
        )
    )
    exact = exact or instruction.opcode == "topk"

    def run(analyst: Any, instruction: Instruction, values: list[Value]) -> Value:
        if exact and not is_spread(tuple(values)):
            return evaluate(analyst, instruction, values)
        value = evaluate(analyst, instruction, [picked(v, VALUE) for v in values])
        moved = []
        for k in range(MOVED, ROWS):
            given = [picked(v, k) for v in values]
            if not exact:
                given = [_nudged(analyst, v) for v in given]
            moved.append(evaluate(analyst, instruction, given))
        made = stacked([value, value, value, *moved])
        return _sampled(made, 0.0 if exact else _FORWARD)

    return run


def _nudged(analyst: Analyst, value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(_nudged(analyst, v) for v in value)
    array = np.asarray(value)
    if array.dtype.kind not in "fc" or array.dtype.itemsize < 4:
        return value
    eps = np.finfo(array.dtype).eps
    return (array * (1 + _BACKWARD * eps * analyst.noise(array.shape))).astype(array.dtype)


def _sampled(value: Value, forward: float = 0.0) -> Value:
    """Bounds from the moved values alone: `FACTOR` times their distance, the mean one of all elements at least."""
    if isinstance(value, tuple):
        return tuple(_sampled(v, forward) for v in value)
    if type(value) is not Spread and not forward:
        return value
    if not isinstance(value, Spread | np.ndarray | np.generic):
        return value
    rows = np.array(full(rows_of(value)))
    sizes = value.sizes if type(value) is Spread else None
    dtype = rows.dtype
    if not is_real(dtype) and dtype.kind != "c":
        if type(value) is not Spread:
            return value
        open_ = (rows != rows[VALUE]).any(axis=0)
        rows[LOW], rows[HIGH] = rows.min(axis=0), rows.max(axis=0)
        return Spread(rows, sizes=sizes) if open_.any() else (rows[VALUE] if sizes is None else value)
    wide = rows.astype(np.complex128 if dtype.kind == "c" else np.float64)
    with np.errstate(all="ignore"):
        moves = np.abs(wide[MOVED:] - wide[VALUE]).max(axis=0)
        moves = np.where(np.isnan(wide).all(axis=0), 0.0, moves)
        finite = np.isfinite(moves)
        mean = float(moves[finite].mean()) if finite.any() else 0.0
        far = FACTOR * np.maximum(moves, mean)
        if forward:
            size = np.where(np.isfinite(np.abs(wide[VALUE])), np.abs(wide[VALUE]), 0.0)
            scale = size.max(axis=tuple(range(max(0, size.ndim - 2), size.ndim)), keepdims=True, initial=0.0)
            eps = 2.0**-52 if dtype.itemsize // (2 if dtype.kind == "c" else 1) == 8 else 2.0**-23
            far = far + forward * eps * scale
        both = far * (1 + 1j) if dtype.kind == "c" else far
        lost = ~np.isfinite(far)
        rows[LOW] = np.where(lost, wide[VALUE], wide[VALUE] - both).astype(dtype)
        rows[HIGH] = np.where(lost, wide[VALUE], wide[VALUE] + both).astype(dtype)
    element_type = element_type_of(dtype)
    set_aside(rows, lost, element_type)
    ordered(rows, element_type)
    return Spread(rows, sizes=sizes)


def _losing(rule: Evaluate) -> Evaluate:
    """The rule, with where digits are lost noted in what it makes."""

    def run(analyst: Any, instruction: Instruction, values: list[Value]) -> Value:
        made = rule(analyst, instruction, values)
        given = [v for value in values for v in leaves(value) if type(v) is Spread]
        widest = max(given, key=_width, default=None)
        before = 0.0 if widest is None else _width(widest)
        for leaf in leaves(made):
            if type(leaf) is not Spread:
                continue
            width = _width(leaf)
            gain = width / max(before, _EXACT.get(leaf.rows.dtype.itemsize, 2.0**-8))
            old = None if widest is None else widest.loss
            leaf.loss = old if old is not None and old.gain >= gain else Loss(instruction, gain, width)
        return made

    return run


def _width(value: Spread) -> float:
    """The relative width of a spread: of all elements together, those set aside as wide as they are."""
    rows = value.rows
    if not is_real(rows.dtype) or not rows.size:
        return 1.0
    with np.errstate(all="ignore"):
        wide = rows[: HIGH + 1].astype(np.float64)
        size = np.abs(wide[VALUE])
        far = np.minimum(np.maximum(wide[HIGH] - wide[VALUE], wide[VALUE] - wide[LOW]), np.maximum(size, 1e-300))
        total = float(np.nansum(np.where(np.isfinite(size), size, 0.0)))
        return float(np.nansum(far)) / total if total else 1.0


__all__ = ["Analysis", "Analyst", "Tie", "analyse", "field"]
