"""A module at another size: a parameter's dimension changes, and with it all that is tied to it.

`Ties` says which dimensions follow and how, `a * n + b` of the named one; `at` writes the module for another `n`. What
cannot follow is refused with a code (`SIZ101`..), whose page `hlo-opt explain CODE` shows.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from hlo_opt.diag import UsageError
from hlo_opt.ir import Instruction, Literal, Module, Shape, edit
from hlo_opt.ops.spec import ShapeError, find
from hlo_opt.ops.tied import Affine, Derived, Place, Tie, is_known, ties, with_sizes

MOST_SIZES = 65_536
"""Sizes of a range at most: each is looked at."""
_REQUEST = re.compile(r"p(\d+):(\d+)(?:=(\d+)\.\.(\d+))?(?:@(\d+))?")


@dataclass(frozen=True)
class Dynamic:
    """A request: dimension `dimension` of the entry's parameter `parameter` (tuples flattened) has `least` to `most`
    elements; None: 1 to as many as the text says. `priced` is the size that prices are for; None: the text's."""

    parameter: int
    dimension: int
    least: int | None = None
    most: int | None = None
    priced: int | None = None

    @classmethod
    def of(cls, text: str) -> Dynamic:
        """From `p0:0`, `p0:0=1..512` or `p0:0=1..512@64`. Raises UsageError."""
        match = _REQUEST.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                f"--dynamic takes pPARAMETER:DIMENSION[=LEAST..MOST][@PRICED], not {text!r}",
                hint="dimension 0 of parameter 0, from 1 to 512 elements: --dynamic p0:0=1..512",
            )
        numbers = [None if part is None else int(part) for part in match.groups()]
        least, most, priced = numbers[2:]
        if least is not None and most is not None and not 1 <= least <= most:
            raise UsageError(f"--dynamic {text}: a range goes from 1 or more upwards")
        if least is not None and most is not None and most - least >= MOST_SIZES:
            raise UsageError(f"--dynamic {text}: a range has {MOST_SIZES} sizes at most")
        return cls(int(match[1]), int(match[2]), least, most, priced)

    def __str__(self) -> str:
        return f"p{self.parameter}:{self.dimension}"


@dataclass(frozen=True, eq=False)
class Ties:
    """What follows a dimension whose size changes.

    size     its size in the module
    least    the least size that it takes
    most     the greatest
    extents  the places that follow it, with their sizes as `a * n + b`
    frozen   constants that may have been computed from the size, with the number that they hold
    """

    module: Module
    size: int
    least: int
    most: int
    extents: Mapping[Place, Affine]
    frozen: tuple[tuple[Instruction, str], ...] = ()
    by_name: Mapping[tuple[str, str], Mapping[tuple[int, int], Affine]] = field(default_factory=dict)

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
        found: dict[int, str] = {}
        number = 0
        for parameter in self.module.entry.parameters:
            for leaf, _ in enumerate(parameter.shape.leaves()):
                for place, (a, b) in self.extents.items():
                    if place.instruction is parameter and place.leaf == leaf and number < len(inputs):
                        size, rest = divmod(inputs[number][place.dimension] - b, a)
                        found.setdefault(-1 if rest else size, f"in{number}")
                number += 1
        if len(found) != 1 or not self.least <= next(iter(found)) <= self.most:
            shown = ", ".join(f"{size} by {name}" for size, name in found.items())
            raise UsageError(f"the inputs have size {shown}; sizes are {self.least} to {self.most}")
        return next(iter(found))

    def at(self, size: int, module: Module | None = None) -> Module:
        """The module (or a copy of it with the same names) at a size, which may be one of a range."""
        source = self.module if module is None else module
        copy = edit.clone_module(source)
        for old, new in zip(source.computations, copy.computations, strict=True):
            for before, after in zip(old.instructions, new.instructions, strict=True):
                extents = self.by_name.get((old.name, before.name))
                if extents:
                    _resize(after, extents, size)
                if any((old.name, o.name) in self.by_name for o in before.operands):
                    for name, value in with_sizes(before, partial(self._size, size)).items():
                        edit.set_attribute(after, name, value)
        return copy

    def _size(self, size: int, place: Place) -> int:
        i = place.instruction
        assert i.parent is not None
        extents = self.by_name.get((i.parent.name, i.name), {})
        extent = extents.get((place.leaf, place.dimension))
        return list(i.shape.leaves())[place.leaf].dimensions[place.dimension] if extent is None else _at(extent, size)


def _at(extent: Affine, size: int) -> int:
    return extent[0] * size + extent[1]


def _resize(instruction: Instruction, extents: Mapping[tuple[int, int], Affine], size: int) -> None:
    number = -1

    def resized(shape: Shape) -> Shape:
        nonlocal number
        if shape.elements is not None:
            return Shape.tuple_of(*(resized(element) for element in shape.elements))
        number += 1
        sizes = tuple(
            _at(extents[number, d], size) if (number, d) in extents else plain
            for d, plain in enumerate(shape.dimensions)
        )
        return replace(shape, dimensions=sizes, dynamic=())

    edit.set_shape(instruction, resized(instruction.shape))
    if instruction.literal is not None:
        value = np.asarray(instruction.literal.value)
        plain = tuple(map(int.__int__, instruction.shape.dimensions))
        uniform = np.broadcast_to(value.reshape(-1)[:1], plain) if value.size else np.zeros(plain, value.dtype)
        edit.set_literal(instruction, Literal(instruction.shape, value=uniform))


def tie(module: Module, requests: Sequence[Dynamic]) -> Ties:
    """What follows the dimensions that are asked for, which are one size. Raises UsageError where there is no such
    dimension, and with a code of a page where something needs the size to be known."""
    leaves = [(p, leaf, s) for p in module.entry.parameters for leaf, s in enumerate(p.shape.leaves())]
    starts: list[Place] = []
    for request in requests:
        if request.parameter >= len(leaves):
            raise UsageError(f"--dynamic {request}: the entry has {len(leaves)} parameters")
        parameter, leaf, shape = leaves[request.parameter]
        if request.dimension >= shape.rank:
            raise UsageError(f"--dynamic {request}: {parameter.name} is {shape.without_layout()}")
        starts.append(Place(parameter, leaf, request.dimension))
    sizes = [leaves[r.parameter][2].dimensions[r.dimension] for r in requests]
    size = sizes[0]
    if len(set(sizes)) > 1:
        raise _refusal(module, starts[1].instruction, "SIZ106", f"{sizes[0]} and {sizes[1]} are two sizes")
    if size == 1:
        raise _refusal(module, starts[0].instruction, "SIZ102", "the size is 1, as that of dimensions that stay")
    ranges = {(r.least, r.most) for r in requests if r.least is not None}
    if len(ranges) > 1:
        raise UsageError("--dynamic: the dimensions are one size, so that they have one range", code="SIZ106")
    least, most = next(iter(ranges), (1, size))
    assert least is not None and most is not None
    extents = _Propagation(module).run(starts)
    by_name: dict[tuple[str, str], dict[tuple[int, int], Affine]] = defaultdict(dict)
    for place, extent in extents.items():
        assert place.instruction.parent is not None
        by_name[place.instruction.parent.name, place.instruction.name][place.leaf, place.dimension] = extent
    found = Ties(module, size, least, most, extents, tuple(_frozen(module, extents, size)), by_name)
    _check(found)
    return found


def _refusal(module: Module, instruction: Instruction, code: str, message: str) -> UsageError:
    return UsageError(
        f"{instruction.name}: {message}", code=code, span=module.span(instruction), hint=f"hlo-opt explain {code}"
    )


class _Propagation:
    """Follows ties from place to place until nothing new follows."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.linked: dict[Place, list[Place]] = defaultdict(list)
        self.derived: dict[Place, list[Derived]] = defaultdict(list)
        self.extents: dict[Place, Affine] = {}
        every = (i for computation in module.computations for i in computation.instructions)
        self.order = {instruction: number for number, instruction in enumerate(every)}
        for computation in module.computations:
            for instruction in computation.instructions:
                try:
                    self._add(ties(instruction))
                except ShapeError:
                    continue

    def _add(self, found: Iterable[Tie]) -> None:
        for one in found:
            if isinstance(one, Derived):
                for source in one.sources:
                    self.derived[source].append(one)
            else:
                self.linked[one[0]].append(one[1])
                self.linked[one[1]].append(one[0])

    def run(self, starts: Sequence[Place]) -> dict[Place, Affine]:
        """All places that follow. Raises UsageError (SIZ101) where two ways say two sizes."""
        todo: list[tuple[Place, Affine]] = [(start, (1, 0)) for start in starts]
        later: dict[Derived, int] = {}
        while todo or later:
            if not todo:  # what is derived comes after what is certain, in the order of the program
                derived = min(later, key=later.__getitem__)
                del later[derived]
                size = derived.size([self.extents.get(source) for source in derived.sources])
                if size is not None and size[0] and not self._is_split_already(derived.place):
                    todo.append((derived.place, size))
                continue
            place, extent = todo.pop()
            known_extent = self.extents.get(place)
            if known_extent is None:
                self.extents[place] = extent
                todo += [(other, extent) for other in self.linked[place]]
                later.update((d, self._position(d)) for d in self.derived[place])
            elif known_extent != extent:
                told = " and ".join(_text(e) for e in (known_extent, extent))
                raise _refusal(self.module, place.instruction, "SIZ101", f"its size would be {told}")
        return self.extents

    def _position(self, derived: Derived) -> int:
        """Where the instruction of a derived place stands: the last one of those that it is about."""
        return max(self.order[place.instruction] for place in (derived.place, *derived.sources))

    def _is_split_already(self, place: Place) -> bool:
        """Whether another dimension of the same value follows already, so that how it is split is decided."""
        shape = list(place.instruction.shape.leaves())[place.leaf]
        others = (Place(place.instruction, place.leaf, d) for d in range(shape.rank) if d != place.dimension)
        return any(other in self.extents for other in others)


def _text(extent: Affine) -> str:
    a, b = extent
    return f"{'' if a == 1 else f'{a} * '}n{f' + {b}' if b > 0 else f' - {-b}' if b < 0 else ''}"


def _check(found: Ties) -> None:
    """Refuse what cannot follow: literals that say an element each, and operations that need the size."""
    module = found.module
    values = {place.instruction for place in found.extents}
    for instruction in values:
        literal = instruction.literal
        if literal is not None and not (literal.is_known and _is_uniform(literal)):
            raise _refusal(module, instruction, "SIZ103", "the constant says an element for each of the size")
    for computation in module.computations:
        for instruction in computation.instructions:
            if any(o in values for o in instruction.operands) and not is_known(instruction):
                what = instruction.word("custom_call_target") or instruction.opcode
                raise _refusal(module, instruction, "SIZ104", f"nothing says how {what} follows the size")
    least = [place for place, extent in found.extents.items() if _at(extent, found.least) < 0]
    if least:
        raise _refusal(module, least[0].instruction, "SIZ107", f"has no elements to give at size {found.least}")
    _check_shapes(found)


def _check_shapes(found: Ties) -> None:
    """Refuse a module that does not hold together at other sizes."""
    for size in {found.least, found.most, found.size + 1}:
        module = found.at(size)
        for computation in module.computations:
            for instruction in computation.instructions:
                spec = find(instruction.opcode)
                if spec is None or spec.infer is None:
                    continue
                try:
                    shape = spec.infer(instruction)
                except (ShapeError, KeyError, TypeError) as fault:
                    raise _refusal(found.module, instruction, "SIZ105", f"at size {size}: {fault}") from None
                if not shape.same_values(instruction.shape):
                    raise _refusal(
                        found.module,
                        instruction,
                        "SIZ105",
                        f"at size {size} it would be {shape.without_layout()}, which is not what reads it",
                    )


def _is_uniform(literal: Literal) -> bool:
    if isinstance(literal.value, tuple):
        return False
    flat = np.asarray(literal.value).reshape(-1)
    return bool(flat.size) and flat.tobytes() == np.repeat(flat[:1], flat.size).tobytes()


def _frozen(module: Module, extents: Mapping[Place, Affine], size: int) -> Iterator[tuple[Instruction, str]]:
    """Scalar constants that may have been computed from the size: the count of elements that a fold runs over, or its
    inverse; and integers that are the size, such as that by which a negative index wraps."""
    counts: set[int] = set()
    for computation in module.computations:
        for i in computation.instructions:
            counts |= _folded(i, extents)
    for computation in module.computations:
        for i in computation.instructions:
            literal = i.literal
            if literal is None or not i.shape.is_array or i.shape.element_count != 1 or not literal.is_known:
                continue
            number = complex(np.asarray(literal.value).reshape(-1).astype(np.complex128)[0]).real
            for count in sorted(counts | ({size} if i.shape.type.is_integer else set())):
                if number == count or (number and not i.shape.type.is_integer and _is_inverse(number, count)):
                    yield i, f"{count}" if number == count else f"1/{count}"
                    break


def _is_inverse(number: float, count: int) -> bool:
    return abs(abs(number) * count - 1) < 1e-6 or abs(abs(number) * count - 2) < 1e-6


def _folded(i: Instruction, extents: Mapping[Place, Affine]) -> set[int]:
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
