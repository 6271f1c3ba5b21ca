"""What one text leaves open about other sizes: how parts of a dimension that changes were read, and whether a dump of
the same program at another size agrees with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from hlo_opt.analysis.sizes.formulas import Formula, fitting
from hlo_opt.diag import UsageError
from hlo_opt.ir import Called, Instruction, Module
from hlo_opt.ops.tied import Extent, Place
from hlo_opt.ops.tied_parts import taken_for

if TYPE_CHECKING:
    from hlo_opt.analysis.sizes.resize import Ties

_NOT_COMPARED = frozenset({"metadata", "backend_config", "frontend_attributes", "sharding", "origin"})


def readings(module: Module, extents: Mapping[Place, Extent]) -> Iterator[tuple[Instruction, str]]:
    """Slices inside a dimension that changes, and splits of one that could follow otherwise, with what they are taken
    for at size n."""
    for computation in module.computations:
        for i in computation.instructions:
            yield from ((i, text) for text in taken_for(i, extents))


def check_other(ties: Ties, other: Module) -> dict[tuple[str, str], Formula]:
    """Whether another dump of the program, at another size, is what this one is at that size. Returns the constants
    that it has other numbers for, by the names of computation and instruction, with the formula that gives both.
    Raises UsageError (SIZ112) for the first instruction that differs otherwise, and where it has no other size."""
    size = _size_of_other(ties, other)
    ties.check(size)
    expected = ties.at(size)
    theirs = other.computations
    formulas = {}
    for one, two in zip_longest(expected.computations, theirs):
        if one is None or two is None or len(one.instructions) != len(two.instructions):
            raise _differs(f"at size {size} the other dump is another graph: {(one or two).name} differs")
        numbers = ({i: k for k, i in enumerate(c.instructions)} for c in (one, two))
        mine, their = numbers
        for a, b in zip(one.instructions, two.instructions, strict=True):
            formula = None
            if (one.name, a.name) not in ties.formulas:
                formula = _formula(a, b, (ties.size, size))
            if formula is not None:
                formulas[one.name, a.name] = formula
            what = _difference(a, b, is_number_open=formula is not None)
            if what is None and [mine[o] for o in a.operands] != [their[o] for o in b.operands]:
                what = "reads other values"
            if what is not None:
                raise _differs(f"{a.name}: at size {size} the other dump {what}")
    return formulas


def _formula(one: Instruction, other: Instruction, sizes: tuple[int, int]) -> Formula | None:
    """The formula of a constant that is another number in another dump."""
    if one.literal is None or other.literal is None or not one.shape.is_array:
        return None
    if not (one.literal.is_known and other.literal.is_known) or one.shape.type is not other.shape.type:
        return None
    numbers = [np.unique(np.asarray(i.literal.value)) for i in (one, other) if i.literal is not None]
    if any(n.size != 1 for n in numbers) or numbers[0].tobytes() == numbers[1].tobytes():
        return None
    return fitting(one.shape.type, sizes, np.concatenate(numbers))


def _differs(message: str) -> UsageError:
    return UsageError(message, code="SIZ112", hint="hlo-opt explain SIZ112")


def _size_of_other(ties: Ties, other: Module) -> int:
    leaves = [leaf for p in other.entry.parameters for leaf in p.shape.leaves()]
    own = [(p, n) for p in ties.module.entry.parameters for n, _ in enumerate(p.shape.leaves())]
    sizes = set()
    for (parameter, leaf), shape in zip(own, leaves, strict=False):
        for place, (a, b, c) in ties.extents.items():
            if place.instruction is parameter and place.leaf == leaf and place.dimension < shape.rank:
                sizes.add(divmod(shape.dimensions[place.dimension] * c - b, a))
    if len(sizes) != 1 or next(iter(sizes))[1]:
        raise _differs("the parameters of the other dump are of no one size")
    ((size, _),) = sizes
    if size == ties.size:
        raise _differs(f"the other dump is of the same size, {size}")
    return size


def _difference(one: Instruction, other: Instruction, *, is_number_open: bool = False) -> str | None:
    """What another dump says of an instruction; of a constant whose number is open, not what it holds."""
    if one.opcode != other.opcode:
        return f"has {other.opcode}"
    if not one.shape.same_values(other.shape):
        return f"has {other.shape.without_layout()}, not {one.shape.without_layout()}"
    for name in (one.attributes.keys() | other.attributes.keys()) - _NOT_COMPARED:
        mine, theirs = one.attributes.get(name), other.attributes.get(name)
        if isinstance(mine, Called) or isinstance(theirs, Called):
            continue
        if mine is None or theirs is None or (mine != theirs and mine.value != theirs.value):
            return f"says {name}={theirs.text if theirs is not None else 'nothing'}"
    if is_number_open or one.literal is None or other.literal is None:
        return None
    if one.literal.is_known and other.literal.is_known:
        mine_value, their_value = (np.asarray(i.literal.value) for i in (one, other) if i.literal is not None)
        if mine_value.tobytes() != their_value.tobytes():
            return "has another value" if mine_value.size > 1 else f"has {their_value}, not {mine_value}"
    return None
