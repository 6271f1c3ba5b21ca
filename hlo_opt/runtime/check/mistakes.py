"""Which faults the inputs of a check would show: small faults are injected into the original, one at a time.

A fault changes the value of one instruction wherever it is computed: a term left out, a constant one hundredth
larger, a choice that always goes one way. It is seen if some output leaves the bounds that `check` grants to a
rewritten module. Where no set of inputs shows a fault, agreement proves nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hlo_opt.diag import EvaluationError
from hlo_opt.evaluate import Interpreter, evaluate_devices, flatten, unflatten
from hlo_opt.evaluate.reach import VAIN, Draw, Reached, Way, other_draws
from hlo_opt.evaluate.threads import bounded_libraries
from hlo_opt.ir import Computation, ElementType, Instruction, Module
from hlo_opt.ir.values import Array
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.control.meaning import same_bits
from hlo_opt.ops.sets import CHOSEN_BY_ORDER, COPIES, EXTREMES, UPDATES
from hlo_opt.ops.values import Value, parts
from hlo_opt.runtime.differences import Enclosure, is_floating, real_parts
from hlo_opt.runtime.rounding.analysis import analyse_devices
from hlo_opt.runtime.rounding.verdict import enclosures

WORK = 1_500_000_000
"""Elements that all trials together may compute; if they need more, only some are tried: see `_affordable`."""
EVENT = 3000
"""The cost of an instruction with almost no work, in elements."""
PRECISE = 5_000_000
"""Elements of a run above which the exact bounds take too long to compute."""
ROUGHLY = 1e-3
"""Without bounds, a difference is visible if it exceeds this part of the largest element of its output."""
LARGER, OFF = 0.01, 0.05
"""Relative changes: of a constant that is enlarged, and of other values."""

THIN = 0.05
"""The share of the elements that a fault changes which must leave their bounds: of fewer, luck decides. It is asked
only of a constant that is a little larger: other faults change what they change by more than rounding does."""

UNSEEN = "would not be noticed if it"
"""How the text of an unseen fault begins."""
BARELY = f"would be noticed in less than {100 * THIN:.0f} % of the elements that change if it"
"""How that of a fault begins which shows in few elements."""

ON_NAN, ON_TIES, BY_LITTLE = "were wrong on NaN", "were wrong on equal values", f"were {100 * LARGER:.0f} % larger"

Substitute = Callable[[Sequence[Array], Array], Array]


@dataclass(frozen=True, eq=False)
class Trial:
    """A fault: `substitute` maps an instruction's operands and value to the wrong value. `words` follow the
    instruction's name in reports."""

    instruction: Instruction
    words: str
    substitute: Substitute

    @property
    def is_subtle(self) -> bool:
        """Whether few inputs show the fault."""
        return self.words.removeprefix(f"{UNSEEN} ") in (ON_NAN, ON_TIES, BY_LITTLE)

    @property
    def enough(self) -> float:
        """The share of the elements it changes that must show it: 0 where one element is enough."""
        return THIN if self.words.endswith(BY_LITTLE) else 0.0

    def way(self, shown: float) -> Way:
        """What is said of it where so great a share of the elements shows it, at most."""
        return Way(self.instruction, self.words.replace(UNSEEN, BARELY) if shown else self.words)

    def asks_nan_order(self, folds: Collection[Computation]) -> bool:
        """Whether the fault is one of comparing NaN with another value in a reducer or a comparator, which may give it
        no place in the order."""
        one = self.instruction
        is_of_two = _compares(one) and one.operands[0] is not one.operands[1]
        return is_of_two and self.words.endswith(ON_NAN) and one.parent in folds

    @property
    def loses_nans(self) -> bool:
        """Whether the fault is a larger, smaller or narrower value that is none of NaN."""
        one = self.instruction
        return (one.opcode in CHOSEN_BY_ORDER or _narrows(one)) and self.words.endswith(ON_NAN)


@dataclass(frozen=True)
class Tried:
    """The draws that a check should use, the faults that none of them shows, or only in few elements, and how many were
    tried. `steps` are the most iterations that all loops of a run take together; None where they were not counted."""

    draws: tuple[Draw, ...]
    unseen: tuple[Way, ...] = ()
    trials: int = 0
    steps: int | None = None


@bounded_libraries(1)
def tried(module: Module, reached: Reached, seed: int = 0, most: int = 8) -> Tried:
    """Inject faults on the draws of a check; add another draw if it shows a fault that none of these shows, or shows in
    few elements.

    seed  of the analysis of rounding
    most  the most draws to use
    """
    draws = list(reached.draws)
    runs = [_Run(module, draw, seed) for draw in draws]
    work = sum(run.work for run in runs)
    executed = set().union(*(run.executed for run in runs))
    folds = _folds(module)
    planned = [t for i in sorted(executed, key=_order(module)) for t in trials(i) if not t.asks_nan_order(folds)]
    planned = _affordable(_last_of_types(planned), int(WORK / max(work, 1)))
    if len(planned) * runs[0].work > WORK:
        return Tried(tuple(draws), steps=_most_steps(runs))
    left = {t: shown for t in planned if not _is_clear(t, shown := _most_shown(t, runs))}
    vain = 0
    for draw in other_draws(module, seed, draws, 2 * runs[0].steps + 100) if len(runs[0].draw.inputs) == 1 else ():
        run = _Run(module, draw, seed)
        work += run.work
        tried_on = left if work * len(left) <= WORK else {t: shown for t, shown in left.items() if not shown}
        if not tried_on or len(draws) >= most or vain >= VAIN or work * len(tried_on) > WORK:
            break
        shares = {} if run.is_open else {t: share for t in tried_on if (share := run.shown(t)) > left[t]}
        vain = vain + 1 if not any(_is_clear(t, share) or not left[t] for t, share in shares.items()) else 0
        if not vain:
            draws.append(draw)
            runs.append(run)
            left = {t: share for t in left if not _is_clear(t, share := shares.get(t, left[t]))}
    told = {t for t, shown in left.items() if shown or t.instruction.parent in folds or any(r.changed(t) for r in runs)}
    ways = tuple(t.way(shown) for t, shown in left.items() if t in told and not t.loses_nans)
    return Tried(tuple(draws), ways, len(planned), _most_steps(runs))


def _is_clear(trial: Trial, shown: float) -> bool:
    return shown > trial.enough


def _most_shown(trial: Trial, runs: Sequence[_Run]) -> float:
    """The greatest share of the elements that a fault changes which show it, over the runs up to one that is clear."""
    most = 0.0
    for run in runs:
        most = max(most, run.shown(trial))
        if _is_clear(trial, most):
            break
    return most


def _most_steps(runs: Sequence[_Run]) -> int | None:
    """The most iterations of a run; None for runs on several devices, where they are not counted."""
    return max(run.steps for run in runs) if all(len(run.draw.inputs) == 1 for run in runs) else None


def _last_of_types(planned: list[Trial]) -> list[Trial]:
    """The trials, with the last one of those with conversions between the same types: one function computes them."""
    last = {_types(t.instruction): t for t in planned if _narrows(t.instruction)}
    return [t for t in planned if not _narrows(t.instruction) or last[_types(t.instruction)] is t]


def _types(instruction: Instruction) -> tuple[ElementType, ElementType]:
    return instruction.operands[0].shape.type, instruction.shape.type


def _affordable(planned: list[Trial], most: int) -> list[Trial]:
    """About `most` of the trials, in order: subtle ones first, and every k-th of each sort."""
    if len(planned) <= most:
        return planned
    kept: set[Trial] = set()
    for subtle in (True, False):
        own = [t for t in planned if t.is_subtle == subtle]
        room = most - len(kept)
        if own and room > 0:
            kept.update(own[:: math.ceil(len(own) / room)])
    return [t for t in planned if t in kept]


def _folds(module: Module) -> set[Computation]:
    """Computations applied to parts of arrays (reducers, comparators), whose branches are not watched: faults that
    change nothing in them count as unseen, too."""
    instructions = itertools.chain.from_iterable(c.instructions for c in module.computations)
    return {c for i in instructions if i.opcode in _FOLDING for c in i.called()}


def _order(module: Module) -> Callable[[Instruction], int]:
    instructions = itertools.chain.from_iterable(c.instructions for c in module.computations)
    return {instruction: number for number, instruction in enumerate(instructions)}.__getitem__


@dataclass(eq=False)
class _Run:
    """Runs of a module on one draw: `executed` are the instructions that a run evaluates, `work` is its cost in
    elements. `is_open`: it sorts NaN by a comparator that gives it no place, so that HLO leaves the result open."""

    module: Module
    draw: Draw
    seed: int
    executed: set[Instruction] = field(default_factory=set)
    work: int = 0
    steps: int = 0
    is_open: bool = False
    local: set[Trial] = field(default_factory=set)
    _bounds: list[list[Enclosure]] | None = None

    def __post_init__(self) -> None:
        own = {i for c in self.module.computations for i in c.instructions}
        self._interpreter = Interpreter() if len(self.draw.inputs) == 1 else None

        def watch(instruction: Instruction, operands: Sequence[Array], value: Array) -> Array:
            if instruction in own:
                self.executed.add(instruction)
            if instruction.opcode in _ORDERING and not self.is_open and any(map(_has_nan, operands)):
                self.is_open = not orders_nans(instruction)
            self.work += EVENT + _work(instruction, operands, value)
            return value

        self._outputs(watch, None)
        self.steps = 0 if self._interpreter is None else self._interpreter.steps

    def changed(self, trial: Trial) -> bool:
        """Whether a run with the fault had another value there."""
        return trial in self.local

    def shown(self, trial: Trial) -> float:
        """The share of the elements of outputs that the fault changes which are out of bounds: 0 where none is."""
        if trial.instruction not in self.executed:
            return 0.0

        def change(instruction: Instruction, operands: Sequence[Array], value: Array) -> Array:
            if instruction is not trial.instruction:
                return value
            wrong = trial.substitute(operands, value)
            if trial not in self.local and not _same(wrong, value):
                self.local.add(trial)
            return wrong

        try:
            outputs = self._outputs(change, 2 * self.steps + 100)
        except EvaluationError:
            return 1.0
        if trial not in self.local:
            return 0.0
        pairs = [(w, g) for own in zip(self.draw.outputs, outputs, strict=True) for w, g in zip(*own, strict=True)]
        if all(same_bits(w, g) for w, g in pairs):
            return 0.0
        return self._beyond(outputs, pairs)

    def _outputs(self, change: Any, most: int | None) -> list[list[Array]]:
        if self._interpreter is None:
            return evaluate_devices(self.module, self.draw.inputs, change=change, max_steps=most)
        interpreter = self._interpreter
        interpreter.change, interpreter.steps, interpreter.max_steps = change, 0, most
        entry = self.module.entry
        arguments = unflatten([p.shape for p in entry.parameters], self.draw.inputs[0])
        return [[np.asarray(a) for a in flatten(interpreter.call(entry, arguments))]]

    def _beyond(self, outputs: Sequence[Sequence[Array]], pairs: Sequence[tuple[Array, Array]]) -> float:
        """The share of changed elements that exceed their bounds. For long runs, 1 where the outputs are `_is_far`
        instead of exact bounds."""
        if self.work > PRECISE:
            return float(any(_is_far(w, g) for w, g in pairs))
        if self._bounds is None:
            analyses = analyse_devices(self.module, self.draw.inputs, self.seed, rewritten=True)
            self._bounds = [enclosures(a, own) for a, own in zip(analyses, self.draw.outputs, strict=True)]
        every = zip(itertools.chain(*self._bounds), itertools.chain(*outputs), strict=True)
        beyond = sum(_out_of_bounds(bounds, array) for bounds, array in every)
        changed = sum(int(np.count_nonzero(real_parts(w) != real_parts(g))) for w, g in pairs)
        return beyond / max(beyond, changed, 1)


def _work(instruction: Instruction, operands: Sequence[Array], value: Array) -> int:
    """The cost of an instruction, in f32 additions of the same duration."""
    size: int = getattr(value, "size", 1)
    if instruction.opcode in ("dot", "convolution"):
        return size + int(math.sqrt(float(operands[0].size) * operands[1].size * size) / 8)
    size = max([size, *(getattr(o, "size", 1) for o in operands)])
    narrow = instruction.shape.is_array and instruction.shape.type.is_narrow_float
    spec = find(instruction.opcode)
    return size * (6 if spec is not None and spec.is_slow else 5 if narrow else 1)


def _is_far(want: Array, value: Array) -> bool:
    """Whether some element differs by more than `ROUGHLY` of the largest one."""
    if not is_floating(want.dtype):
        return not same_bits(want, value)
    with np.errstate(all="ignore"):
        a, b = (
            x if x.dtype in (np.float32, np.float64) else x.astype(np.float64) for x in map(real_parts, (want, value))
        )
        off = np.abs(a - b)
        farthest = float(np.max(off, initial=0.0))  # NaN where either is
        if not np.isfinite(farthest):
            farthest = float(np.max(off, initial=0.0, where=np.isfinite(off)))
        return farthest > ROUGHLY * float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a)))


def _has_nan(array: Array) -> bool:
    return is_floating(array.dtype) and bool(np.isnan(real_parts(array)).any())


def _out_of_bounds(bounds: Enclosure, array: Array) -> int:
    """How many elements are."""
    value = real_parts(array)
    with np.errstate(invalid="ignore"):
        within = value == bounds.low
        if is_floating(value.dtype):
            within |= np.isnan(value) & np.isnan(bounds.low)
        within |= bounds.set_aside() | ((value >= bounds.low) & (value <= bounds.high))
    return int(np.count_nonzero(~np.asarray(within)))


def _same(a: Value, b: Value) -> bool:
    if isinstance(a, tuple):
        return all(_same(x, y) for x, y in zip(a, parts(b), strict=True))
    return same_bits(np.asarray(a), np.asarray(b))


# ---- the mistakes

_ORDERING = frozenset({"sort"})
_FOLDING = _ORDERING | {"all-reduce", "reduce", "reduce-scatter", "reduce-window", "scatter", "select-and-scatter"}

_SKIPPED = COPIES | {"broadcast", "convert"}
"""Opcodes that only pass values on. (Control flow is skipped as well; its computations have trials of their own.)"""


def trials(instruction: Instruction) -> Iterator[Trial]:
    """The faults to try with an instruction."""
    for words, substitute in _changes(instruction):
        yield Trial(instruction, f"{UNSEEN} {words}", substitute)


def _changes(i: Instruction) -> Iterator[tuple[str, Substitute]]:
    spec = find(i.opcode)
    if _narrows(i):
        yield ON_NAN, lambda o, v: np.where(np.isnan(o[0]), np.zeros((), v.dtype), v)
    if i.opcode in _SKIPPED or spec is None or not all(leaf.is_array for leaf in i.shape.leaves()):
        return
    if spec.kind is OpKind.CONTROL and i.literal is None:
        return
    if i.literal is not None and i.shape.is_array:
        yield from _constants(i)
    elif _compares(i):
        if is_floating(i.operands[0].shape.type.dtype):
            yield ON_NAN, lambda o, v: np.where((o[0] != o[0]) | (o[1] != o[1]), ~v, v)
        yield ON_TIES, lambda o, v: np.where(o[0] == o[1], ~v, v)
        if i.operands[0] is not i.operands[1]:
            yield "were wrong where the first is less", lambda o, v: np.where(o[0] < o[1], ~v, v)
            yield "were wrong where the first is greater", lambda o, v: np.where(o[0] > o[1], ~v, v)
    elif i.opcode == "select":
        yield "always took its first choice", lambda o, v: o[1]
        yield "always took its second choice", lambda o, v: o[2]
    elif spec.kind is OpKind.ELEMENTWISE and len(i.operands) == 2 and all(_is_like(i, o) for o in i.operands):
        yield "were its first operand alone", lambda o, v: o[0]
        if i.operands[0] is not i.operands[1]:
            yield "were its second operand alone", lambda o, v: o[1]
            if i.opcode in EXTREMES and is_floating(i.shape.type.dtype):
                yield ON_NAN, lambda o, v: np.where(o[0] != o[0], o[1], np.where(o[1] != o[1], o[0], v))
    else:
        yield f"were {100 * OFF:.0f} % off", lambda o, v: _moved(v)
        if i.opcode in CHOSEN_BY_ORDER and is_floating(i.shape.type.dtype):
            yield ON_NAN, lambda o, v: np.where(o[1] != o[1], o[0], v)
        if i.opcode in UPDATES and i.shape.is_array:
            yield "updated nothing", lambda o, v: o[0]
        if i.opcode in _ORDERING and orders_nans(i) and any(is_floating(o.shape.type.dtype) for o in i.operands):
            yield ON_NAN, lambda o, v: _moved(v) if any(np.any(x != x) for x in o) else v


def _compares(instruction: Instruction) -> bool:
    return instruction.opcode == "compare"


def _narrows(i: Instruction) -> bool:
    """Whether it rounds each float of an array to a narrower type, which has NaN."""
    spec = find(i.opcode)
    if spec is None or spec.kind is not OpKind.ELEMENTWISE or len(i.operands) != 1 or not i.shape.is_array:
        return False
    if i.shape.dimensions != i.operands[0].shape.dimensions:
        return False
    source, target = i.operands[0].shape.type, i.shape.type
    if not source.is_float or not target.is_float or source.bits <= target.bits:
        return False
    with np.errstate(all="ignore"):
        return bool(np.isnan(np.asarray(np.nan, np.float32).astype(target.dtype)))


def orders_nans(sort: Instruction) -> bool:
    """Whether a sort's comparator puts NaN before or after other numbers, for each operand that it compares. Where it
    does not, as a bare `<`, the result with NaN is open."""
    comparator = sort.called_by("to_apply")
    types = [o.shape.type.dtype for o in sort.operands]

    def before(number: int, *pair: float) -> bool:
        arguments = [np.zeros((), t) for t in types for _ in range(2)]
        arguments[2 * number : 2 * number + 2] = [np.asarray(value, types[number]) for value in pair]
        return bool(np.asarray(Interpreter().call(comparator, arguments)))

    floats = [number for number, t in enumerate(types) if is_floating(t)]
    compared = [n for n in floats if before(n, 0, 1) or before(n, 1, 0)]
    return all(before(n, np.nan, 0) or before(n, 0, np.nan) for n in compared)


def _is_like(instruction: Instruction, operand: Instruction) -> bool:
    return instruction.shape.without_layout() == operand.shape.without_layout()


def _constants(i: Instruction) -> Iterator[tuple[str, Substitute]]:
    type_ = i.shape.type
    if type_.kind == "pred":
        yield "were the opposite", lambda o, v: ~np.asarray(v)
        return
    if type_.is_integer:
        yield "were one more", lambda o, v: np.asarray(v) + np.asarray(1, np.asarray(v).dtype)
        return
    if i.literal is None or not i.literal.is_known:
        return
    value = np.asarray(i.literal.value).astype(np.complex128)
    if np.any(np.isfinite(value) & (value != 0)):
        yield BY_LITTLE, lambda o, v: _larger(v)
    if np.any(value == 0):
        yield "were 1 instead of 0", lambda o, v: _where(v, lambda x: x == 0, 1)
    if np.any(np.isinf(value)):
        yield "were 0 instead of infinite", lambda o, v: _where(v, np.isinf, 0)


def _larger(value: Array) -> Array:
    array = np.asarray(value)
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    with np.errstate(all="ignore"):
        return (wide * (1 + LARGER)).astype(array.dtype)


def _where(value: Array, is_one: Callable[[Array], Array], other: int) -> Array:
    array = np.asarray(value)
    return np.where(is_one(array.astype(np.complex128)), np.asarray(other, array.dtype), array)


def _moved(value: Array) -> Array:
    """Every other element larger by `OFF`, the rest smaller; booleans are inverted in every other element."""
    if isinstance(value, tuple):
        return tuple(_moved(v) for v in value)
    array = np.asarray(value)
    signs = _signs(array.shape)
    if array.dtype == np.bool_:
        return array ^ (signs > 0)
    with np.errstate(all="ignore"):
        if array.dtype.kind in "iu" or not is_floating(array.dtype):
            return array + signs.astype(array.dtype)
        wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
        moved = signs * 1.0 if not np.any(wide) else wide * (1 + OFF * signs)
        return moved.astype(array.dtype)


def _signs(sizes: tuple[int, ...]) -> Array:
    """A fixed irregular pattern of 1 and -1; 1 for a single element."""
    count = math.prod(sizes)
    numbers = np.arange(count, dtype=np.uint32) * np.uint32(2654435761)
    return np.where((numbers >> np.uint32(13)) & 1, -1, 1).reshape(sizes)
