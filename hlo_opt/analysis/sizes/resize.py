"""A module at another size: a parameter's dimension changes, and with it all that is tied to it.

`Ties` says which dimensions follow and how, `(a * n + b) / c` of the named one; `at` writes the module for another `n`.
What cannot follow is refused with a code (`SIZ101`..), whose page `hlo-opt explain CODE` shows.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from hlo_opt.analysis.sizes.formulas import Formula
from hlo_opt.analysis.sizes.readings import readings
from hlo_opt.diag import UsageError
from hlo_opt.ir import Instruction, Literal, Module, Shape, edit
from hlo_opt.ops.spec import ShapeError, find
from hlo_opt.ops.tied import SIZE, Derived, Extent, Place, Tie, is_known, ties, with_sizes

MOST_SIZES = 65_536
"""Sizes of a range at most: each is looked at."""
FEW = 4
"""Numbers up to this are only taken for the size itself or a count: they are everywhere."""
_REQUEST = re.compile(r"p(\d+):(\d+)(?:=(\d*)\.\.(\d+))?(?:@(\d+))?")


@dataclass(frozen=True)
class SizeRequest:
    """A request: dimension `dimension` of the entry's parameter `parameter` (tuples flattened) has `least` to `most`
    elements; None: from the least that the program takes, to as many as the text says. `priced` is the size that prices
    are for; None: the text's."""

    parameter: int
    dimension: int
    least: int | None = None
    most: int | None = None
    priced: int | None = None

    @classmethod
    def of(cls, text: str) -> SizeRequest:
        """From `p0:0`, `p0:0=..512`, `p0:0=1..512` or `p0:0=1..512@64`. Raises UsageError."""
        match = _REQUEST.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                f"--dynamic takes pPARAMETER:DIMENSION[=[LEAST]..MOST][@PRICED], not {text!r}",
                hint="dimension 0 of parameter 0, from 1 to 512 elements: --dynamic p0:0=1..512",
            )
        numbers = [int(part) if part else None for part in match.groups()]
        least, most, priced = numbers[2:]
        if most is not None and not (least or 0) <= most > 0:
            raise UsageError(f"--dynamic {text}: a range goes upwards")
        if most is not None and most - (least or 1) >= MOST_SIZES:
            raise UsageError(f"--dynamic {text}: a range has {MOST_SIZES} sizes at most")
        return cls(int(match[1]), int(match[2]), least, most, priced)

    def __str__(self) -> str:
        return f"p{self.parameter}:{self.dimension}"


@dataclass(frozen=True, eq=False)
class Ties:
    """What follows a dimension whose size changes.

    size     its size in the module
    sizes    those from the least to the most at which all that follows is whole: halves need even ones
    extents  the places that follow it, with their sizes in terms of it
    read     parts of what follows, with what they are taken for at other sizes
    frozen   constants that may have been computed from the size, with the number that they hold
    formulas constants that follow it as well: another dump says so. By the names of computation and instruction
    """

    module: Module
    size: int
    sizes: tuple[int, ...]
    extents: Mapping[Place, Extent]
    frozen: tuple[tuple[Instruction, str], ...] = ()
    read: tuple[tuple[Instruction, str], ...] = ()
    by_name: Mapping[tuple[str, str], Mapping[tuple[int, int], Extent]] = field(default_factory=dict)
    formulas: Mapping[tuple[str, str], Formula] = field(default_factory=dict)

    @property
    def least(self) -> int:
        """The least size that it takes."""
        return self.sizes[0]

    @property
    def most(self) -> int:
        """The greatest."""
        return self.sizes[-1]

    @property
    def range(self) -> str:
        """The sizes in words: `1 to 64`, or `2 to 64 in steps of 2`."""
        step = self.sizes[1] - self.sizes[0] if len(self.sizes) > 1 else 1
        return f"{self.least} to {self.most}" + (f" in steps of {step}" if step > 1 else "")

    def follows(self, instruction: Instruction) -> bool:
        """Whether any dimension of an instruction's value follows."""
        assert instruction.parent is not None
        return (instruction.parent.name, instruction.name) in self.by_name

    @property
    def parameters(self) -> list[str]:
        """The entry's dimensions that follow, as a request names them, over flattened parameters."""
        names, first = [], 0
        for parameter in self.module.entry.parameters:
            leaves = list(parameter.shape.leaves())
            names += [
                f"p{first + place.leaf}:{place.dimension}" for place in self.extents if place.instruction is parameter
            ]
            first += len(leaves)
        return sorted(names)

    def dimensions(self, inputs: Sequence[tuple[int, ...]]) -> int:
        """The size that inputs of these dimensions have, one per array leaf of the entry's parameters. Raises
        UsageError where they have several, or one out of range."""
        names: dict[int, str] = {}
        number = 0
        for parameter in self.module.entry.parameters:
            for leaf, _ in enumerate(parameter.shape.leaves()):
                for place, (a, b, c) in self.extents.items():
                    if place.instruction is parameter and place.leaf == leaf and number < len(inputs):
                        size, rest = divmod(inputs[number][place.dimension] * c - b, a)
                        names.setdefault(-1 if rest else size, f"in{number}")
                number += 1
        if len(names) != 1 or next(iter(names)) not in self.sizes:
            shown = ", ".join(f"{size} by {name}" for size, name in names.items())
            raise UsageError(f"the inputs have size {shown}; sizes are {self.range}")
        return next(iter(names))

    def shape(self, instruction: Instruction, size: int) -> Shape:
        """The shape of an instruction's value at a size."""
        assert instruction.parent is not None
        return _resized(instruction.shape, self.by_name.get((instruction.parent.name, instruction.name), {}), size)

    def at(self, size: int, module: Module | None = None) -> Module:
        """The module (or a copy of it with the same names) at a size, which may be one of a range."""
        source = self.module if module is None else module
        copy = edit.clone_module(source)
        for old, new in zip(source.computations, copy.computations, strict=True):
            for before, after in zip(old.instructions, new.instructions, strict=True):
                extents = self.by_name.get((old.name, before.name))
                if extents:
                    _resize(after, extents, size)
                formula = self.formulas.get((old.name, before.name))
                if formula is not None:
                    edit.set_literal(after, formula.literal(after.shape, size))
                if extents or any((old.name, o.name) in self.by_name for o in before.operands):
                    for name, value in with_sizes(before, partial(self._size, size)).items():
                        edit.set_attribute(after, name, value)
        return copy

    def following(self, formulas: Mapping[tuple[str, str], Formula]) -> Ties:
        """The same, with further constants that follow the size: those are not frozen."""
        every = {**self.formulas, **formulas}
        frozen = tuple((i, text) for i, text in self.frozen if i.parent is None or (i.parent.name, i.name) not in every)
        return replace(self, formulas=every, frozen=frozen)

    def bounded(self) -> Module:
        """The module at its most, with all that follows bounded by that."""
        copy = self.at(self.most)
        for computation in copy.computations:
            for i in computation.instructions:
                edit.set_shape(i, _bounded(i.shape, self.by_name.get((computation.name, i.name), {})))
        return copy

    def check(self, size: int) -> None:
        """Raises UsageError where there is no module at a size, which may be out of range."""
        open_ones = [place for place, extent in self.extents.items() if not extent.is_whole(size)]
        if open_ones:
            extent = self.extents[open_ones[0]]
            raise _refusal(self.module, open_ones[0].instruction, "SIZ105", f"{extent} is not whole at size {size}")
        _check_shapes(self, size)

    def _size(self, size: int, place: Place) -> int:
        i = place.instruction
        assert i.parent is not None
        extents = self.by_name.get((i.parent.name, i.name), {})
        extent = extents.get((place.leaf, place.dimension))
        return list(i.shape.leaves())[place.leaf].dimensions[place.dimension] if extent is None else extent.at(size)


def _bounded(shape: Shape, extents: Collection[tuple[int, int]], first: int = 0) -> Shape:
    if shape.elements is None:
        return replace(shape, dynamic=tuple((first, d) in extents for d in range(shape.rank)))
    starts = itertools.accumulate((len(list(e.leaves())) for e in shape.elements), initial=first)
    return Shape.tuple_of(*(_bounded(e, extents, start) for e, start in zip(shape.elements, starts, strict=False)))


def _resized(shape: Shape, extents: Mapping[tuple[int, int], Extent], size: int) -> Shape:
    number = -1

    def resized(shape: Shape) -> Shape:
        nonlocal number
        if shape.elements is not None:
            return Shape.tuple_of(*(resized(element) for element in shape.elements))
        number += 1
        sizes = tuple(
            extents[number, d].at(size) if (number, d) in extents else plain for d, plain in enumerate(shape.dimensions)
        )
        return replace(shape, dimensions=sizes, dynamic=())

    return resized(shape)


def _resize(instruction: Instruction, extents: Mapping[tuple[int, int], Extent], size: int) -> None:
    edit.set_shape(instruction, _resized(instruction.shape, extents, size))
    if instruction.literal is not None:
        value = np.asarray(instruction.literal.value)
        plain = tuple(map(int.__int__, instruction.shape.dimensions))
        uniform = np.broadcast_to(value.reshape(-1)[:1], plain) if value.size else np.zeros(plain, value.dtype)
        edit.set_literal(instruction, Literal(instruction.shape, value=uniform))


def bounded(module: Module) -> Iterator[tuple[SizeRequest, ...]]:
    """Requests for the bounded dimensions of the parameters, from 0 elements or, where that is none, from the least;
    none where there is no such dimension."""
    leaves = [leaf for p in module.entry.parameters for leaf in p.shape.leaves()]
    places = [
        (k, d, leaf.dimensions[d]) for k, leaf in enumerate(leaves) for d, is_open in enumerate(leaf.dynamic) if is_open
    ]
    if places and all(0 < size <= MOST_SIZES for _, _, size in places):
        for least in (0, None):
            yield tuple(SizeRequest(k, d, least, size) for k, d, size in places)


def tie(module: Module, requests: Sequence[SizeRequest], like: Ties | None = None) -> Ties:
    """What follows the dimensions that are asked for, which are one size. `like`: that of a module which this one was
    rewritten from, at the same size: what keeps name and shape follows as it did. Raises UsageError where there is no
    such dimension, and with a code of a page where something needs the size to be known."""
    leaves = [(p, leaf, s) for p in module.entry.parameters for leaf, s in enumerate(p.shape.leaves())]
    starts: list[Place] = []
    for request in requests:
        if request.parameter >= len(leaves):
            raise UsageError(f"--dynamic {request}: the entry has {len(leaves)} parameters, and the first is p0")
        parameter, leaf, shape = leaves[request.parameter]
        if request.dimension >= shape.rank:
            parts = f"parameter {request.parameter}, {parameter.name}: {shape.without_layout()}"
            raise UsageError(f"--dynamic {request}: there is no dimension {request.dimension} in {parts}")
        starts.append(Place(parameter, leaf, request.dimension))
    own = [leaves[r.parameter][2].dimensions[r.dimension] for r in requests]
    size = own[0]
    if len(set(own)) > 1:
        raise _refusal(module, starts[1].instruction, "SIZ106", f"{own[0]} and {own[1]} are two sizes")
    if size == 1:
        raise _refusal(module, starts[0].instruction, "SIZ102", "the size is 1, as that of dimensions that stay")
    ranges = {(r.least, r.most) for r in requests if r.most is not None}
    if len(ranges) > 1:
        raise UsageError("--dynamic: the dimensions are one size, so that they have one range", code="SIZ106")
    extents = _Propagation(module, size).run(starts, like)
    by_name: dict[tuple[str, str], dict[tuple[int, int], Extent]] = defaultdict(dict)
    for place, extent in extents.items():
        assert place.instruction.parent is not None
        by_name[place.instruction.parent.name, place.instruction.name][place.leaf, place.dimension] = extent
    least, most = next(iter(ranges), (None, size))
    assert most is not None
    sizes = tuple(
        n for n in range(1 if least is None else least, most + 1) if all(e.is_whole(n) for e in set(extents.values()))
    )
    if not sizes:
        steps = max(extents.items(), key=lambda item: item[1].c)
        raise _refusal(module, steps[0].instruction, "SIZ105", f"{steps[1]} is whole at no size of the range")
    frozen, read = tuple(_frozen(module, extents, size)), tuple(readings(module, extents))
    formulas = {} if like is None else _kept_formulas(module, like, size)
    ties = Ties(module, size, sizes, extents, frozen, read, by_name, formulas)
    return _checked(ties, is_least_open=least is None)


def _kept_formulas(module: Module, like: Ties, size: int) -> dict[tuple[str, str], Formula]:
    """The constants of a module that was rewritten at a size that follow: those with a number that only constants of
    one formula had; where others had it, too, those with the name of one that followed."""
    if not like.formulas:
        return {}
    before: dict[Literal, set[Formula | None]] = defaultdict(set)
    of_name: dict[str, Formula | None] = {}
    for owner, i in _constants(like.at(size)):
        formula = like.formulas.get((owner, i.name))
        before[_number(i)].add(formula)
        of_name[i.name] = formula if i.name not in of_name else None
    values = {}
    for owner, i in _constants(module):
        options = before.get(_number(i), {None})
        formula = next(iter(options)) if len(options) == 1 else of_name.get(i.name)
        if formula is not None and formula in options:
            values[owner, i.name] = formula
    return values


def _constants(module: Module) -> Iterator[tuple[str, Instruction]]:
    """The constants that are the same number everywhere, with the names of their computations."""
    for computation in module.computations:
        for i in computation.instructions:
            if i.literal is not None and i.literal.is_known and _is_uniform(i.literal):
                yield computation.name, i


def _number(constant: Instruction) -> Literal:
    """The number of such a constant, as a scalar."""
    assert constant.literal is not None
    value = np.asarray(constant.literal.value).reshape(-1)[0]
    return Literal(Shape(constant.shape.type, ()), value=np.asarray(value))


def _refusal(module: Module, instruction: Instruction, code: str, message: str) -> UsageError:
    return UsageError(
        f"{instruction.name}: {message}", code=code, span=module.span(instruction), hint=f"hlo-opt explain {code}"
    )


class _Propagation:
    """Follows ties from place to place until nothing new follows."""

    def __init__(self, module: Module, size: int) -> None:
        self.module, self.size = module, size
        self.linked: dict[Place, list[Place]] = defaultdict(list)
        self.derived: dict[Place, list[Derived]] = defaultdict(list)
        self.extents: dict[Place, Extent] = {}
        every = (i for computation in module.computations for i in computation.instructions)
        self.order = {instruction: number for number, instruction in enumerate(every)}
        for computation in module.computations:
            for instruction in computation.instructions:
                try:
                    self._add(ties(instruction))
                except ShapeError:
                    continue

    def _add(self, ties: Iterable[Tie]) -> None:
        for one in ties:
            if isinstance(one, Derived):
                for source in one.sources:
                    self.derived[source].append(one)
            else:
                self.linked[one[0]].append(one[1])
                self.linked[one[1]].append(one[0])

    def run(self, starts: Sequence[Place], like: Ties | None = None) -> dict[Place, Extent]:
        """All places that follow. Raises UsageError (SIZ101) where two ways say two sizes."""
        todo: list[tuple[Place, Extent]] = [(start, SIZE) for start in starts]
        later: dict[Derived, tuple[bool, int]] = {}
        kept = [] if like is None else self._kept(like)
        while todo or later:
            if not todo and kept:
                todo, kept = [(place, extent) for place, extent in kept if place not in self.extents], []
                continue
            if not todo:  # what is derived comes after what is certain, in the order of the program
                derived = min(later, key=later.__getitem__)
                del later[derived]
                sizes = derived.sizes([self.extents.get(source) for source in derived.sources])
                todo += [(p, size) for p, size in zip(derived.places, sizes, strict=True) if size and size.a]
                continue
            place, extent = todo.pop()
            known_extent = self.extents.get(place)
            if known_extent is None:
                self.extents[place] = extent
                todo += [(other, extent) for other in self.linked[place]]
                later.update((d, (d.is_backward, self._position(d))) for d in self.derived[place])
            elif known_extent != extent:
                message = f"its size would be {known_extent} and {extent}"
                raise _refusal(self.module, place.instruction, "SIZ101", message)
        return self.extents

    def _kept(self, like: Ties) -> list[tuple[Place, Extent]]:
        """The places of instructions that have the name and the shape that they had, where one only has the name."""
        before: dict[str, list[Instruction]] = defaultdict(list)
        for computation in like.module.computations:
            for i in computation.instructions:
                before[i.name].append(i)
        kept = []
        for i in self.order:
            if len(before[i.name]) != 1:
                continue
            (old,) = before[i.name]
            assert old.parent is not None
            extents = like.by_name.get((old.parent.name, old.name), {})
            if old.opcode == i.opcode and like.shape(old, self.size).same_values(i.shape):
                kept += [(Place(i, leaf, d), extent) for (leaf, d), extent in extents.items()]
        return kept

    def _position(self, derived: Derived) -> int:
        """Where the instruction of a derived place stands: the last one of those that it is about."""
        return max(self.order[place.instruction] for place in (*derived.places, *derived.sources))


def _checked(ties: Ties, is_least_open: bool) -> Ties:
    """Ties whose module holds at all their sizes; where the least is open, from the first size at which it does. Raises
    UsageError for what cannot follow: literals that say an element each, and operations that need the size."""
    module = ties.module
    values = {place.instruction for place in ties.extents}
    for instruction in values:
        literal = instruction.literal
        if literal is not None and not (literal.is_known and _is_uniform(literal)):
            raise _refusal(
                module, instruction, "SIZ103", "the constant has its own value for each element of the dimension"
            )
    for computation in module.computations:
        for instruction in computation.instructions:
            if any(o in values for o in instruction.operands) and not is_known(instruction):
                what = instruction.word("custom_call_target") or instruction.opcode
                raise _refusal(module, instruction, "SIZ104", f"hlo-opt does not know how {what} depends on the size")
    for size in {ties.sizes[-1], ties.size, next((n for n in ties.sizes if n > ties.size), ties.size)}:
        _check_shapes(ties, size)
    if not is_least_open:
        _check_shapes(ties, ties.least)
        return ties
    first = bisect_left(ties.sizes, True, key=lambda size: _holds(ties, size))
    return replace(ties, sizes=ties.sizes[first:])


def _holds(ties: Ties, size: int) -> bool:
    try:
        _check_shapes(ties, size)
    except UsageError:
        return False
    return True


def _check_shapes(ties: Ties, size: int) -> None:
    """Refuse a module that does not hold together at a size."""
    few = [place for place, extent in ties.extents.items() if extent.at(size) < 0]
    if few:
        raise _refusal(ties.module, few[0].instruction, "SIZ107", f"would have fewer than 0 elements at size {size}")
    for computation in ties.at(size).computations:
        for instruction in computation.instructions:
            spec = find(instruction.opcode)
            if spec is None or spec.infer is None:
                continue
            try:
                shape = spec.infer(instruction)
            except (ShapeError, KeyError, TypeError) as fault:
                raise _refusal(ties.module, instruction, "SIZ105", f"at size {size}: {fault}") from None
            if not shape.same_values(instruction.shape):
                raise _refusal(
                    ties.module,
                    instruction,
                    "SIZ105",
                    f"at size {size} it would be {shape.without_layout()}, which is not what reads it",
                )


def _is_uniform(literal: Literal) -> bool:
    if isinstance(literal.value, tuple):
        return False
    flat = np.asarray(literal.value).reshape(-1)
    return bool(flat.size) and flat.tobytes() == np.repeat(flat[:1], flat.size).tobytes()


def _frozen(module: Module, extents: Mapping[Place, Extent], size: int) -> Iterator[tuple[Instruction, str]]:
    """Scalar constants that may have been computed from the size: the size, or one less, such as the last index, or the
    count of elements that a fold runs over, and the inverse of one; integers also where they are half of it, or another
    size that follows."""
    counts = {size, size - 1} if size > FEW else {size}
    lengths = {extent.at(size) for extent in extents.values()} | {size // 2}
    lengths = {length for length in lengths if length > FEW}
    for computation in module.computations:
        for i in computation.instructions:
            counts |= _folded(i, extents)
    for computation in module.computations:
        for i in computation.instructions:
            literal = i.literal
            if literal is None or not i.shape.is_array or i.shape.element_count != 1 or not literal.is_known:
                continue
            number = complex(np.asarray(literal.value).reshape(-1).astype(np.complex128)[0]).real
            for count in sorted(counts | lengths if i.shape.type.is_integer else counts, reverse=True):
                if number == count or (number and not i.shape.type.is_integer and _is_inverse(number, count)):
                    yield i, f"{count}" if number == count else f"1/{count}"
                    break


def _is_inverse(number: float, count: int) -> bool:
    return abs(abs(number) * count - 1) < 1e-6 or abs(abs(number) * count - 2) < 1e-6


def _folded(i: Instruction, extents: Mapping[Place, Extent]) -> set[int]:
    """How many elements a fold over the size runs over."""
    if not i.operands or not i.operands[0].shape.is_array:
        return set()
    source = i.operands[0]
    gone = i.ints("dimensions") if "to_apply" in i.attributes else i.ints("lhs_contracting_dims")
    if not any(Place(source, 0, d) in extents for d in gone):
        return set()
    count = 1
    for d in gone:
        count *= source.shape.dimensions[d]
    return {count}
