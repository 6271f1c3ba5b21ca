"""What other correct backends may return for a module: an enclosure for every element of every output.

The module runs once, in the interpreter, on spreads (see `hlo_opt.ops.spread`). What every backend computes alike stays
an array; everything else has the reference's value, a lower and an upper bound, and moved values. The rules:

- arithmetic in the type itself, movement, choices, order and integers are exact: equal operands give equal results
  (`elementwise`, `movement`, `order`);
- functions with a tolerance in the op table, and sums, whose order is open, widen the bounds (`elementwise`, `sums`);
- a rounding to a narrow type, to an integer or to a boolean makes an element certain if both bounds round alike; if
  not, it is a tie, and may come out either way;
- bounds are checked against moved values: K runs in lockstep in which each inexact operation is moved at random by an
  eighth to a quarter of its tolerance, which is still more than most real backends differ (`calibration`);
- what rounds in a softmax between two products may be left out, or done before the division: one kernel computes all
  three (`hlo_opt.plans.attention`);
- a weight that is no number, at a place of a convolution's window in the padding, may count or not (`convolutions`);
- for an operation without a rule, such as a factorization, other backends are assumed to compute the exact result of
  slightly different operands (backward stability; N. Higham, "Accuracy and Stability of Numerical Algorithms", 1.5):
  the moved values alone determine its bounds.

Interval arithmetic: R. E. Moore, R. B. Kearfott and M. J. Cloud, "Introduction to Interval Analysis", SIAM, 2009.
Running error bounds: Higham, 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np

from hlo_opt.evaluate import Interpreter, unflatten
from hlo_opt.evaluate.devices import SimulatedDevice, play
from hlo_opt.evaluate.program import Program, compile_elementwise, face
from hlo_opt.ir import Called, Computation, Instruction, Module, array
from hlo_opt.ir.element_type import F64
from hlo_opt.ir.values import Array
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.calls.products import multiplies_tf32
from hlo_opt.ops.control.meaning import zeros
from hlo_opt.ops.dynamic import Evaluate, takes_dynamic
from hlo_opt.ops.reduction.reducers import monoid
from hlo_opt.ops.reduction.softmax import roundings_between
from hlo_opt.ops.sets import IDEMPOTENT, started
from hlo_opt.ops.spread import (
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
from hlo_opt.ops.values import HIGH, LOW, MOVED, ROWS, VALUE, Loss, Spread, Value, packed
from hlo_opt.ops.writer import Writer
from hlo_opt.runtime.rounding import control, sums
from hlo_opt.runtime.rounding.calibration import MOST, calibrated
from hlo_opt.runtime.rounding.control import indexed, movement
from hlo_opt.runtime.rounding.convolutions import open_at_padding
from hlo_opt.runtime.rounding.elementwise import TIES, Analyst, Face, elementwise
from hlo_opt.runtime.rounding.order import folded, rounds, sort
from hlo_opt.runtime.rounding.scatters import scatter

_HELD = 12
"""Consecutive elementwise operations after which bounds are calibrated against the moved values."""

_POOL = (1 << 16) + 1  # odd, so that rows do not repeat at the same place


@dataclass(frozen=True)
class TiedOperation:
    """An operation that may decide either way, for `elements` elements; `on` says on what these hang."""

    instruction: Instruction
    elements: int
    on: str = TIES


@dataclass
class Analysis:
    """The spread of each output, tuples flattened, and the ties on the way."""

    outputs: list[Value]
    ties: list[TiedOperation]


def analyse(
    module: Module, inputs: Sequence[Array], seed: int = 0, *, rewritten: bool = False, precise: bool = True
) -> Analysis:
    """Run the entry on spreads.

    inputs     one array per array of the entry's parameters
    seed       of the moved values
    rewritten  whether the other module may round at other places, and leave out roundings to narrow types
    precise    whether the other backend's division and square root follow IEEE 754 (`hlo_opt.codegen.options`)
    """
    analyst = SpreadInterpreter(np.random.default_rng([seed, ROWS]), rewritten=rewritten, precise=precise)
    arguments = unflatten([p.shape for p in module.entry.parameters], inputs)
    value = analyst.call(module.entry, arguments)
    return Analysis(list(leaves(value)), analyst.ties())


def analyse_devices(
    module: Module,
    inputs: Sequence[Sequence[Array]],
    seed: int = 0,
    *,
    rewritten: bool = False,
    precise: bool = True,
) -> list[Analysis]:
    """Run the entry on every simulated device, with a list of inputs for each; a single list means one device.
    Otherwise as `analyse`."""
    if len(inputs) == 1:
        return [analyse(module, inputs[0], seed, rewritten=rewritten, precise=precise)]

    def work(device: SimulatedDevice) -> Analysis:
        generator = np.random.default_rng([seed, ROWS, device.number])
        device.player = analyst = SpreadInterpreter(generator, rewritten=rewritten, precise=precise, device=device)
        arguments = unflatten([p.shape for p in module.entry.parameters], inputs[device.number])
        return Analysis(list(leaves(analyst.call(module.entry, arguments))), analyst.ties())

    return play(module, work)


class SpreadInterpreter(Interpreter):
    """The interpreter on spreads; one per device."""

    def __init__(
        self, generator: np.random.Generator, *, rewritten: bool = False, precise: bool = True, **options: Any
    ) -> None:
        super().__init__(**options)
        self.rewritten, self.precise = rewritten, precise
        self._generator = generator
        self.plain = Interpreter(**options)
        """Runs operations on plain arrays."""
        pool = generator.uniform(0.5, 1.0, _POOL)
        self._pool = np.where(generator.random(_POOL) < 0.5, -pool, pool)
        self.loose: set[Instruction] = set()
        self._ties: dict[Instruction, TiedOperation] = {}
        self._scalars: dict[Computation, Program | None] = {}

    def noise(self, shape: tuple[int, ...]) -> Array:
        count = int(np.prod(shape, dtype=np.int64))
        if count > _POOL // 2:  # reuse the numbers, from another offset each time
            return np.resize(np.roll(self._pool, int(self._generator.integers(_POOL))), shape)
        start = int(self._generator.integers(_POOL - count))
        return self._pool[start : start + count].reshape(shape)

    def tie(self, instruction: Instruction, elements: int, on: str = TIES) -> None:
        known = self._ties.get(instruction)
        if known is None or known.elements < elements:
            self._ties[instruction] = TiedOperation(instruction, elements, on)

    def ties(self) -> list[TiedOperation]:
        return list(self._ties.values())

    def program(self, computation: Computation) -> Program:
        known = computation in self._programs
        program = super().program(computation)
        if not known:
            self.loose |= roundings_between(computation.instructions)
            for step in program.steps:
                if not step.is_taken:
                    step.evaluate = cast("Evaluate", self._wrapped(step.instruction, step.evaluate))
        return program

    def map_elements(self, computation: Computation, arguments: Sequence[Value], *, wide: bool = False) -> list[Value]:
        if wide:
            computation = self.widened(computation)
        if computation not in self._scalars:
            self._scalars[computation] = self._on_scalars(computation)
        program = self._scalars[computation]
        if program is None:
            return self._one_by_one(computation, arguments)
        if not any(type(a) is Spread for a in arguments):
            return super().map_elements(computation, arguments)
        sizes = np.broadcast_shapes(*(rows_of(a).shape[1:] for a in arguments))
        return [_sized(m, sizes) for m in leaves(self._run(program, computation, arguments))]

    def _one_by_one(self, computation: Computation, arguments: Sequence[Value]) -> list[Value]:
        """What `map_elements` gives for a computation that branches or works on small arrays inside."""
        rows = [rows_of(a) for a in arguments]
        sizes = np.broadcast_shapes(*(r.shape[1:] for r in rows))
        spread = [np.broadcast_to(r, (r.shape[0], *sizes)) for r in rows]
        outputs = [np.empty((ROWS, *sizes), leaf.type.dtype) for leaf in computation.root.shape.leaves()]
        is_uncertain = [False] * len(outputs)
        for at in np.ndindex(*sizes):
            own = [Spread(r[(slice(None), *at)]) if len(r) > 1 else r[(0, *at)] for r in spread]
            for k, leaf in enumerate(leaves(self.call(computation, own))):
                outputs[k][(slice(None), *at)] = rows_of(leaf).reshape(-1)
                is_uncertain[k] |= type(leaf) is Spread
        return [Spread(out) if u else out[0] for out, u in zip(outputs, is_uncertain, strict=True)]

    def _on_scalars(self, computation: Computation) -> Program | None:
        """A computation over scalars compiled for arrays of them, with the rules in place of the faces."""
        program = compile_elementwise(computation)
        for step in program.steps if program is not None else ():
            if step.instruction.opcode != "map" and _is_elementwise(step.instruction):
                step.evaluate = cast("Evaluate", self._wrapped(step.instruction, step.evaluate))
        return program

    def _wrapped(self, instruction: Instruction, evaluate: Face) -> Face:
        rule = _rule(instruction, evaluate)
        spec = find(instruction.opcode)
        return rule if spec is not None and spec.hands_on else _losing(instruction, rule)


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


def _rule(instruction: Instruction, evaluate: Face) -> Face:
    """The rule of an instruction: its face for values that may be spreads."""
    opcode = instruction.opcode
    spec = find(opcode)
    if (spec is not None and spec.hands_on) or opcode.rpartition("-")[2] in ("update", "done"):
        return evaluate
    if spec is None:
        return _begun(instruction, evaluate)
    if spec.evaluate is None or (spec.kind is OpKind.ELEMENTWISE and not instruction.shape.is_array):
        return evaluate  # the latter is a copy of a tuple
    if takes_dynamic(instruction):
        return opaque(instruction, evaluate)
    special = _SPECIAL.get(opcode)
    rule = special(instruction, evaluate) if special is not None else None
    if rule is not None:
        return rule
    if opcode == "map":
        return _map
    if spec.kind is OpKind.ELEMENTWISE and spec.tolerance is not None:
        return _held(elementwise(instruction, evaluate))
    if spec.kind is OpKind.MOVEMENT:
        return movement(instruction, evaluate)
    if spec.kind is OpKind.COLLECTIVE:
        return _together(instruction, evaluate)
    return opaque(instruction, evaluate)


def _begun(instruction: Instruction, evaluate: Face) -> Face:
    """The rule of `X-start`, the short spelling of an asynchronous operation."""
    inner, elements = started(instruction), instruction.shape.elements
    if inner is None or elements is None:
        return evaluate
    rule = _rule(inner, face(inner))

    def run(analyst: Any, instruction: Instruction, values: list[Value]) -> Value:
        return tuple(values), rule(analyst, inner, values), *(zeros(shape) for shape in elements[2:])

    return run


def _held(rule: Face) -> Face:
    def run(analyst: Any, instruction: Instruction, values: list[Value]) -> Value:
        result = rule(analyst, instruction, values)
        if type(result) is Spread and result.depth >= _HELD and is_real(result.rows.dtype):
            result.rows, result.depth = calibrated(result.rows), 0
        return result

    return run


def _map(analyst: Any, instruction: Instruction, values: list[Value]) -> Value:
    return analyst.map_elements(instruction.called_by("to_apply"), values)[0]


def _dot(instruction: Instruction, evaluate: Face) -> Face | None:
    if instruction.shape.type.is_complex:
        return None
    sizes, along = instruction.operands[0].shape.dimensions, instruction.ints("lhs_contracting_dims")
    terms = max(1, int(np.prod([sizes[d] for d in along], dtype=np.int64)))
    other = instruction.ints("rhs_contracting_dims")
    plain = instruction.opcode == "dot" and along
    return sums.bilinear(terms, (along[0], other[0]) if plain else None)(instruction, evaluate)


def _convolution(instruction: Instruction, evaluate: Face) -> Face:
    from hlo_opt.ops.contraction.table import convolution_dimensions

    if instruction.shape.type.is_complex:
        return open_at_padding(instruction, opaque(instruction, evaluate))
    kernel, dimensions = instruction.operands[1].shape, convolution_dimensions(instruction)
    terms = kernel.element_count // max(1, kernel.dimensions[dimensions.rhs[0]])
    plain = dimensions.feature_groups == dimensions.batch_groups == 1
    along = (dimensions.lhs[1], dimensions.rhs[1]) if plain else None
    return open_at_padding(instruction, sums.bilinear(max(1, terms), along)(instruction, evaluate))


def _reduce(instruction: Instruction, evaluate: Face) -> Face:
    return sums.reduction(instruction, evaluate) or folded(instruction, evaluate)


def _scatter(instruction: Instruction, evaluate: Face) -> Face:
    is_fold = rounds(instruction.called_by("to_apply"))
    return scatter(instruction, evaluate) or _at_places(instruction, opaque(instruction, evaluate, is_fold))


def _at_places(instruction: Instruction, rule: Face) -> Face:
    """The rule of a scatter, for the elements that it updates: the others are those of its operands."""
    half = len(instruction.operands) // 2
    adder, number = Writer("add"), array(F64)
    total = adder.emit("add", number, adder.parameter(0, number), adder.parameter(1, number))
    count = sums.retyped(instruction, F64)
    count.operands = [count.operands[k] for k in (0, half, half + 1)]
    for values in (count.operands[0], count.operands[2]):
        values.shape = values.shape.with_type(F64)
    count.shape = count.operands[0].shape
    count.attributes["to_apply"] = Called(adder.finish([total], [number]))
    run_count = face(count)

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        result = rule(analyst, instruction, values)
        if not any(type(leaf) is Spread for leaf in leaves(result)) or type(values[half]) is Spread:
            return result
        updates = np.ones(count.operands[2].shape.dimensions)
        touched = run_count(Interpreter(), count, [np.zeros(count.shape.dimensions), values[half], updates])
        is_kept = np.asarray(touched) == 0
        return packed(
            instruction,
            [
                settled(np.where(is_kept, full(rows_of(old)), full(rows_of(new))))
                for old, new in zip(values[:half], leaves(result), strict=True)
            ],
        )

    return run


def _topk(instruction: Instruction, evaluate: Face) -> Face:
    """The rule of a `topk`: computed NaN have any sign and payload, and it orders by these."""
    rule = opaque(instruction, evaluate)

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        results = cast("tuple[Value, ...]", rule(analyst, instruction, values))
        (of_lines,) = values
        lines = np.any(picked(of_lines, VALUE) != picked(of_lines, VALUE), axis=-1, keepdims=True)
        if not is_spread((of_lines,)) or not lines.any():
            return results
        analyst.tie(instruction, int(np.count_nonzero(lines)))
        return tuple(map(partial(_open, lines), results))

    return run


def _open(where: Array, value: Value) -> Spread:
    rows = np.array(full(rows_of(value)))
    set_aside(rows, np.broadcast_to(where, rows.shape[1:]), element_type_of(rows.dtype))
    return Spread(rows)


_SPECIAL: dict[str, Callable[[Instruction, Face], Face | None]] = {
    "conditional": control.conditional,
    "convolution": _convolution,
    "dot": _dot,
    "dynamic-slice": indexed,
    "dynamic-update-slice": indexed,
    "gather": indexed,
    "ragged-dot": _dot,
    "reduce": _reduce,
    "reduce-window": sums.windows,
    "scatter": _scatter,
    "select-and-scatter": sums.selected,
    "sort": sort,
    "topk": _topk,
    "while": control.while_,
}


def _together(instruction: Instruction, evaluate: Face) -> Face:
    """The rule of a collective: every device contributes all rows, because others may not be certain even where it is.
    The order of sums is open."""
    called = next(instruction.called(), None)
    adds = called is not None and monoid(called) not in IDEMPOTENT
    adds = adds and any(leaf.is_array and leaf.type.is_float for leaf in instruction.shape.leaves())
    target = sums.retyped(instruction, F64) if adds else instruction
    run_wide = face(target) if adds else evaluate

    def run(analyst: Any, instruction: Instruction, values: list[Value]) -> Value:
        members = analyst.device.replicas * analyst.device.partitions
        if members < 2 and not is_spread(tuple(values)):
            return evaluate(analyst, instruction, values)
        if not adds:
            return stacked([evaluate(analyst.plain, instruction, [picked(v, k) for v in values]) for k in range(ROWS)])
        rows = [run_wide(analyst.plain, target, [_in_f64(picked(v, k)) for v in values]) for k in range(ROWS)]
        sizes = run_wide(analyst.plain, target, [_magnitude(v) for v in values])
        outputs = []
        parts = zip(
            zip(*(leaves(r) for r in rows), strict=True), leaves(sizes), instruction.shape.leaves(), strict=True
        )
        for row, size, leaf in parts:
            moved = np.stack([np.asarray(r) for r in row])
            own = 2 * sums.unit(leaf.type) * members * np.abs(np.asarray(size).astype(np.float64))
            own = own if members > 2 else np.zeros_like(own)
            outputs.append(sums.rounded(analyst, moved, own, leaf.type) if leaf.type.is_float else settled(moved))
        return packed(instruction, outputs)

    return run


def _in_f64(value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(map(_in_f64, value))
    array = np.asarray(value)
    return array.astype(np.float64) if is_real(array.dtype) else value


def _magnitude(value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(map(_magnitude, value))
    rows = rows_of(value)
    if not is_real(rows.dtype):
        return picked(value, VALUE)
    return np.abs(rows.astype(np.float64)).max(axis=0)


_LOOKED_AT = 4096
"""Elements (up to twice as many) that are sampled to measure the width of a value."""
_EXACT = {4: 2.0**-24, 8: 2.0**-53}
"""The width that a result of certain operands is compared with, by bytes of the type; narrower types: 2^-8."""

_BACKWARD = 8.0
"""Backward error, in ULP: other libraries' results are exact for operands within this distance."""
_FORWARD = 64.0
"""Forward error, in ULP of the largest element of a result's matrix, between two libraries for equal operands."""


def opaque(instruction: Instruction, evaluate: Face, is_fold: bool = False) -> Face:
    """The face of an operation without a rule: the moved values alone determine its bounds. `is_fold`: it rounds, in
    any order."""
    spec = find(instruction.opcode)
    exact = spec is not None and spec.kind in (OpKind.RANDOM, OpKind.MOVEMENT, OpKind.INDEXING, OpKind.ELEMENTWISE)
    exact = exact and not is_fold
    exact = exact or (
        instruction.opcode == "custom-call"
        and not any(
            leaf.is_array and (leaf.type.is_float or leaf.type.is_complex) for leaf in instruction.shape.leaves()
        )
    )
    exact = exact or instruction.opcode == "topk"
    is_rounded = multiplies_tf32(instruction)
    shapes = [leaf for i in (instruction, *instruction.operands) for leaf in i.shape.leaves()]
    is_complex = any(shape.is_array and shape.type.is_complex for shape in shapes)

    def run(analyst: Any, instruction: Instruction, values: list[Value]) -> Value:
        if exact and not is_spread(tuple(values)):
            return evaluate(analyst.plain, instruction, values)
        value = evaluate(analyst.plain, instruction, [picked(v, VALUE) for v in values])
        moved = []
        backward = sums.TF32_UNIT if is_rounded and not analyst.precise else None
        for k in range(MOVED, ROWS):
            operands = [picked(v, k) for v in values]
            if not exact:
                operands = [_nudged(analyst, v, backward) for v in operands]
            moved.append(evaluate(analyst.plain, instruction, operands))
        rows = stacked([value, value, value, *moved], look=False)
        return _sampled(rows, 0.0 if exact else _FORWARD, mixes=is_complex and not exact)

    return run


def _nudged(analyst: SpreadInterpreter, value: Value, backward: float | None = None) -> Value:
    """The value with relative errors of `backward`, or `_BACKWARD` ULP."""
    if isinstance(value, tuple):
        return tuple(_nudged(analyst, v, backward) for v in value)
    array = np.asarray(value)
    if array.dtype.kind not in "fc" or array.dtype.itemsize < 4:
        return value
    size = backward or _BACKWARD * np.finfo(array.dtype).eps
    return (array * (1 + size * analyst.noise(array.shape))).astype(array.dtype)


def _sampled(value: Value, forward: float = 0.0, *, mixes: bool = False) -> Value:
    """Bounds from the moved values alone: `MOST` times their distance, and at least `MOST` times the mean distance of
    all elements. `mixes`: real and imaginary parts are multiplied and added in an open order, so that of an element
    that is infinite or NaN in one part, either part may be infinite or NaN."""
    if isinstance(value, tuple):
        return tuple(_sampled(v, forward, mixes=mixes) for v in value)
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
        far = MOST * np.maximum(moves, mean)
        if forward:
            size = np.where(np.isfinite(np.abs(wide[VALUE])), np.abs(wide[VALUE]), 0.0)
            scale = size.max(axis=tuple(range(max(0, size.ndim - 2), size.ndim)), keepdims=True, initial=0.0)
            eps = 2.0**-52 if dtype.itemsize // (2 if dtype.kind == "c" else 1) == 8 else 2.0**-23
            far = far + forward * eps * scale
        both = far * (1 + 1j) if dtype.kind == "c" else far
        lost = ~np.isfinite(far)
        if mixes:
            lost |= ~np.isfinite(wide[VALUE])
        rows[LOW] = np.where(lost, wide[VALUE], wide[VALUE] - both).astype(dtype)
        rows[HIGH] = np.where(lost, wide[VALUE], wide[VALUE] + both).astype(dtype)
    element_type = element_type_of(dtype)
    set_aside(rows, lost, element_type)
    ordered(rows, element_type)
    return Spread(rows, sizes=sizes) if sizes is not None else settled(rows)


def _losing(instruction: Instruction, rule: Face) -> Face:
    """The rule, which also records in its results where digits are lost.

    It measures only the first, second, fourth, ... evaluation: later iterations of a loop resemble the earlier ones.
    """
    times = 0

    def run(analyst: Any, instruction: Instruction, values: list[Value]) -> Value:
        nonlocal times
        result = rule(analyst, instruction, values)
        spreads = [v for v in leaves(result) if type(v) is Spread]
        if not spreads:
            return result
        operands = [v for value in values for v in leaves(value) if type(v) is Spread]
        times += 1
        if times & (times - 1):
            known = max((v.loss for v in operands if v.loss is not None), key=lambda loss: loss.gain, default=None)
            for leaf in spreads:
                leaf.loss = leaf.loss or known
            return result
        widths = [_width(v) for v in operands]
        before = max(widths, default=0.0)
        old = operands[widths.index(before)].loss if operands else None
        for leaf in spreads:
            gain = _width(leaf) / max(before, _EXACT.get(leaf.rows.dtype.itemsize, 2.0**-8))
            leaf.loss = old if old is not None and old.gain >= gain else Loss(instruction, gain)
        return result

    return run


def _width(value: Spread) -> float:
    """The relative width of a spread: total width over total magnitude, with each element's width at most its
    magnitude."""
    rows = value.rows
    if not is_real(rows.dtype) or not rows.size:
        return 1.0
    with np.errstate(all="ignore"):
        wide = rows[: HIGH + 1].reshape(HIGH + 1, -1)
        wide = wide[:, :: 1 + wide.shape[1] // _LOOKED_AT].astype(np.float64)
        size = np.abs(wide[VALUE])
        far = np.minimum(np.maximum(wide[HIGH] - wide[VALUE], wide[VALUE] - wide[LOW]), np.maximum(size, 1e-300))
        total = float(np.nansum(np.where(np.isfinite(size), size, 0.0)))
        return float(np.nansum(far)) / total if total else 1.0


__all__ = ["Analysis", "SpreadInterpreter", "TiedOperation", "analyse", "field"]
