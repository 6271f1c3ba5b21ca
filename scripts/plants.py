"""Single mistakes in a program: what somebody could have got wrong in one place, drawn by seed.

Each `Plant` changes one instruction that leads to the result of a module, such that the module still verifies: another
operator, operands the wrong way round, a constant off by a hundredth, another direction of a comparison, a slice moved
by one, another dimension of the same size, another init value, a term dropped.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

import hlo_opt
from hlo_opt.diag import HloOptError
from hlo_opt.ir import Attribute, Computation, Instruction, Literal, Module, edit
from hlo_opt.ir.attribute import PaddingDimension, SliceDimension
from hlo_opt.ops import ShapeError, find

Change = Callable[[Instruction], None]

REALS = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
LIKE = (
    ("and", "or", "xor"),
    ("shift-left", "shift-right-logical", "shift-right-arithmetic"),
    ("exponential", "exponential-minus-one"),
    ("log", "log-plus-one"),
    ("sine", "cosine"),
    ("sqrt", "rsqrt", "cbrt"),
    ("tanh", "logistic", "erf"),
    ("floor", "ceil", "round-nearest-even", "round-nearest-afz"),
    ("negate", "abs"),
    ("dynamic-slice",),
)
ORDERED = (
    "subtract",
    "divide",
    "power",
    "remainder",
    "atan2",
    "shift-left",
    "shift-right-logical",
    "shift-right-arithmetic",
    "compare",
    "dot",
    "concatenate",
    "complex",
)
TWO_TERMS = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "and", "or", "xor", "power", "remainder")
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")
DIMENSIONS = ("dimensions", "lhs_contracting_dims", "rhs_contracting_dims", "iota_dimension")
FOLDS = ("reduce", "reduce-window", "select-and-scatter")


@dataclass(frozen=True)
class Plant:
    """One mistake: its kind, where it is, what it is in words, and the module that has it."""

    kind: str
    place: str
    what: str
    module: Module


def plant(text: str, generator: random.Random) -> Plant | None:
    """A module with one mistake, of a kind drawn first and a place drawn then; None where nothing that was tried
    verifies."""
    found: dict[str, list[tuple[int, str]]] = {}
    for number, (kind, instruction, _, _) in enumerate(_possible(hlo_opt.parse(text))):
        found.setdefault(kind, []).append((number, instruction.name))
    for _ in range(20):
        if not found:
            return None
        kind = generator.choice(sorted(found))
        number, name = generator.choice(found[kind])
        module = hlo_opt.parse(text)
        _, instruction, what, change = next(p for n, p in enumerate(_possible(module)) if n == number)
        try:
            change(instruction)
            for computation in module.computations:
                edit.sort(computation)
            hlo_opt.verify(module)
        except (HloOptError, ShapeError, AssertionError):
            continue
        return Plant(kind, name, what, module)
    return None


def _possible(module: Module) -> Iterator[tuple[str, Instruction, str, Change]]:
    """All mistakes: kind, instruction, words, and what makes it."""
    seen: set[Computation] = set()
    todo = [module.entry]
    while todo:
        computation = todo.pop()
        if computation in seen:
            continue
        seen.add(computation)
        needed = _needed(computation)
        for instruction in [i for i in computation.instructions if i in needed]:
            todo += instruction.called()
            for kind, changes in _KINDS.items():
                for what, change in changes(instruction):
                    yield kind, instruction, what, change


def _needed(computation: Computation) -> set[Instruction]:
    found: set[Instruction] = set()
    todo = [computation.root]
    while todo:
        top = todo.pop()
        if top not in found:
            found.add(top)
            todo += top.operands
    return found


Changes = Iterator[tuple[str, Change]]


def _opcode(new: str) -> Change:
    def change(instruction: Instruction) -> None:
        instruction.opcode = new

    return change


def _operator(i: Instruction) -> Changes:
    groups = (REALS, *LIKE) if not i.shape.is_array or i.shape.type.kind != "pred" else LIKE
    for group in groups:
        if i.opcode in group:
            yield from ((f"{i.opcode} became {new}", _opcode(new)) for new in group if new != i.opcode)


def _order(i: Instruction) -> Changes:
    def swapped(first: int, second: int) -> Change:
        def change(instruction: Instruction) -> None:
            operands = list(instruction.operands)
            operands[first], operands[second] = operands[second], operands[first]
            edit.set_operands(instruction, operands)

        return change

    def alike(a: Instruction, b: Instruction) -> bool:
        return a is not b and a.shape.without_layout() == b.shape.without_layout()

    if i.opcode in ORDERED and len(i.operands) >= 2 and alike(*i.operands[:2]):
        yield "operands swapped", swapped(0, 1)
    if i.opcode == "select" and alike(*i.operands[1:]):
        yield "choices swapped", swapped(1, 2)
    if i.opcode in ("call", "fusion", "tuple"):
        for n in range(len(i.operands) - 1):
            if alike(i.operands[n], i.operands[n + 1]):
                yield f"operands {n} and {n + 1} swapped", swapped(n, n + 1)


def _other_constant(value: np.ndarray) -> Change:
    def change(instruction: Instruction) -> None:
        instruction.literal = Literal(instruction.shape, value=value)

    return change


def _constant(i: Instruction) -> Changes:
    if i.opcode != "constant" or i.literal is None or not i.shape.is_array or i.literal.is_elided:
        return
    value = np.asarray(i.literal.value)
    if not value.size:
        return
    if value.dtype.kind == "b":
        yield "pred turned", _other_constant(~value)
        return
    if i.shape.type.is_integer:
        wide = value.astype(object)
        moved = wide + np.where(wide == 0, 0, np.maximum(abs(wide) // 100, 1))
        with np.errstate(all="ignore"):
            try:
                new = np.asarray(moved, dtype=object).astype(value.dtype)
            except OverflowError:
                return
    else:
        double = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)
        with np.errstate(all="ignore"):
            new = (double * 1.01).astype(value.dtype)
    if new.tobytes() != value.tobytes() and np.isfinite(new.astype(np.complex128)).all():
        yield "1 % larger", _other_constant(new)


def _attribute(name: str, value: object) -> Change:
    def change(instruction: Instruction) -> None:
        edit.set_attribute(instruction, name, Attribute.of(value))  # type: ignore[arg-type]

    return change


def _direction(i: Instruction) -> Changes:
    if i.opcode == "compare":
        for new in DIRECTIONS:
            if new != i.word("direction"):
                yield f"{i.word('direction')} became {new}", _attribute("direction", new)


def _slice(i: Instruction) -> Changes:
    if i.opcode == "slice":
        found = i.attribute("slice", tuple)
        for d, bounds in enumerate(found):
            for by in (-1, 1):
                moved = SliceDimension(bounds.start + by, bounds.limit + by, bounds.stride)
                if moved.start >= 0 and moved.limit <= i.operands[0].shape.dimensions[d]:
                    yield f"dimension {d} moved by {by}", _attribute("slice", (*found[:d], moved, *found[d + 1 :]))
    if i.opcode == "pad":
        padding = i.attribute("padding", tuple)
        for d, one in enumerate(padding):
            for by in (-1, 1):
                other = PaddingDimension(one.low + by, one.high - by, one.interior)
                yield f"dimension {d} moved by {by}", _attribute("padding", (*padding[:d], other, *padding[d + 1 :]))


def _dimension(i: Instruction) -> Changes:
    for name in DIMENSIONS:
        if name not in i.attributes:
            continue
        old = i.value(name, ())
        rank = (i.operands[0] if i.operands else i).shape.rank if i.shape.is_array else 0
        if isinstance(old, int):
            for new in range(i.shape.rank):
                if new != old:
                    yield f"{name}={old} became {new}", _checked(name, new)
            continue
        listed = tuple(n for n in old if isinstance(n, int)) if isinstance(old, tuple) else ()
        sizes = (i if i.opcode == "broadcast" or not i.operands else i.operands[0]).shape.dimensions
        if i.opcode == "transpose" or (i.opcode == "broadcast" and len(listed) > 1):
            for n in range(len(listed) - 1):
                new_ = list(listed)
                new_[n], new_[n + 1] = new_[n + 1], new_[n]
                if sizes[listed[n]] > 1 or sizes[listed[n + 1]] > 1:
                    yield f"{name}={listed} became {tuple(new_)}", _checked(name, tuple(new_))
        elif i.opcode == "concatenate":
            continue
        top = i.shape.rank if i.opcode == "broadcast" else rank
        for n in range(len(listed)):
            for new in range(top):
                if new not in listed and (sizes[new] > 1 or sizes[listed[n]] > 1):
                    yield f"{name}: {listed[n]} became {new}", _checked(name, (*listed[:n], new, *listed[n + 1 :]))


def _checked(name: str, value: object) -> Change:
    """Only where the shape stays."""

    def change(instruction: Instruction) -> None:
        edit.set_attribute(instruction, name, Attribute.of(value))  # type: ignore[arg-type]
        spec = find(instruction.opcode)
        if spec is not None and spec.infer is not None and instruction.opcode not in ("iota", "broadcast"):
            shape = spec.infer(instruction)
            if shape.without_layout() != instruction.shape.without_layout():
                raise ShapeError("another shape")

    return change


def _init(i: Instruction) -> Changes:
    if i.opcode not in FOLDS or len(i.operands) != 2 + (i.opcode == "select-and-scatter"):
        return
    init = i.operands[-1]
    if init.opcode != "constant" or init.literal is None or init.shape.rank or init.shape.type.is_complex:
        return
    value = np.asarray(init.literal.value)
    kind = value.dtype.kind
    new = (
        ~value
        if kind == "b"
        else np.asarray(0 if not np.isfinite(float(value)) else float(value) + 1).astype(value.dtype)
    )

    def change(instruction: Instruction) -> None:
        own = instruction.operands[-1]
        literal = Literal(own.shape, value=new)
        made = edit.create(instruction.computation, "init", "constant", own.shape, literal=literal)
        edit.replace_operand(instruction, len(instruction.operands) - 1, made)

    yield f"init {value} became {new}", change


def _dropped(i: Instruction) -> Changes:
    def kept(number: int) -> Change:
        def change(instruction: Instruction) -> None:
            edit.redirect_users(instruction, instruction.operands[number])

        return change

    places = {"select": (1, 2), "clamp": (1,), "negate": (0,), "abs": (0,)}.get(i.opcode, ())
    if i.opcode in TWO_TERMS:
        places = (0, 1)
    for number in places:
        if number < len(i.operands) and i.operands[number].shape.without_layout() == i.shape.without_layout():
            yield f"only operand {number} of {i.opcode} left", kept(number)


_KINDS: dict[str, Callable[[Instruction], Changes]] = {
    "operator": _operator,
    "operand order": _order,
    "constant": _constant,
    "direction": _direction,
    "slice": _slice,
    "dimension": _dimension,
    "init": _init,
    "dropped term": _dropped,
}
KINDS = tuple(_KINDS)
"""The kinds of mistakes."""
