"""Products of two arrays, with each kind of their dimensions seen as one: what the plans for matrices and for vectors
share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hlo_opt.ir import Instruction
from hlo_opt.ir.element_type import ElementType
from hlo_opt.ir.index_map import Constant, Expression, add, constant, delinearize, linearize, multiply, variable
from hlo_opt.ops.contraction.table import DotDimensions, index_dot
from hlo_opt.ops.lowering import Elementwise, Index
from hlo_opt.ops.movement.memory import physical_index
from hlo_opt.ops.spec import find
from hlo_opt.plans.element_reads import depending_below, heroes_read
from hlo_opt.plans.plan import Region
from hlo_opt.plans.walks import Walk

BLOCK = 256
"""Threads of a block."""
LEAST = 1 << 15
"""Products of elements below which a loop is as quick."""
_MOST_STEPS = 500  # of the walk from an operand to what it is computed from


@dataclass(frozen=True)
class Space:
    """A product with each kind of dimension as one: numbers of batches, rows, columns and contracted elements.

    Rows are the free dimensions of one operand and columns those of the other: of the right one, unless `turned`.
    Columns are what neighbouring threads write side by side.
    """

    hero: Instruction
    turned: bool

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The product's dimensions that are batches, rows and columns, each in the order of memory."""
        found, left = DotDimensions.of(self.hero), self.hero.operands[0].shape
        batch = len(found.lhs_batch)
        middle = batch + len(found.free(left.rank, right=False))
        parts = [range(batch), range(batch, middle), range(middle, self.hero.shape.rank)]
        strides = self.hero.shape.strides
        order = [tuple(sorted(part, key=lambda d: -strides[d])) for part in parts]
        return (order[0], order[2], order[1]) if self.turned else (order[0], order[1], order[2])

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Batches, rows, columns, contracted elements."""
        dimensions = self.hero.shape.dimensions
        batch, rows, columns = (math.prod(dimensions[d] for d in group) for group in self.groups)
        return batch, rows, columns, math.prod(self.contracted)

    @cached_property
    def contracted(self) -> tuple[int, ...]:
        """The sizes of the contracted dimensions."""
        read = index_dot(self.hero, 0)
        assert read is not None
        return read.symbols

    def index(self, batch: Expression, row: Expression, column: Expression) -> Index:
        """The logical index of an element of the product."""
        found: dict[int, Expression] = {}
        for group, position in zip(self.groups, (batch, row, column), strict=True):
            sizes = [self.hero.shape.dimensions[d] for d in group]
            found.update(zip(group, delinearize(position, sizes), strict=True))
        return tuple(found[d] for d in range(self.hero.shape.rank))

    def operand_of(self, side: int) -> int:
        """The number of the operand with the rows (side 0) or the columns (side 1)."""
        return 1 - side if self.turned else side

    def operand_index(self, side: int, batch: Expression, free: Expression, along: Expression) -> Index:
        """Where the operand of the rows, or of the columns, is read for a row or a column and a contracted element."""
        nothing = constant(0)
        out = self.index(batch, free, nothing) if side == 0 else self.index(batch, nothing, free)
        read = index_dot(self.hero, self.operand_of(side))
        assert read is not None
        return read.apply(out, delinearize(along, self.contracted))

    def goes_along(self, side: int) -> bool:
        """Whether neighbouring contracted elements, not neighbouring rows (or columns), lie side by side in the memory
        that an operand is computed from."""
        zero, one = constant(0), constant(1)
        operand = self.hero.operands[self.operand_of(side)]
        _, rows, columns, depth = self.sizes
        size = (rows, columns)[side]
        start = parameters_read(operand, self.operand_index(side, zero, zero, zero))
        if depth == 1 or not start:
            return False
        if size == 1:
            return True
        along = parameters_read(operand, self.operand_index(side, zero, zero, one))
        across = parameters_read(operand, self.operand_index(side, zero, one, zero))
        most = max(range(len(start)), key=lambda n: start[n][0].shape.element_count)
        if most >= min(len(along), len(across)):
            return False
        steps = [abs(there[most][1] - start[most][1]) or 1 << 62 for there in (along, across)]
        return steps[0] < steps[1]


@dataclass(frozen=True)
class OfProduct:
    """Outputs that are computed from elements of a product at their own place; `roots` are positions of outputs, all of
    them. What the parts of all kinds of products have."""

    space: Space
    roots: tuple[int, ...]

    @property
    def hero(self) -> Instruction:
        """The product."""
        return self.space.hero

    @property
    def block(self) -> int:
        """Threads per block."""
        return BLOCK


def product_of(region: Region) -> Space | None:
    """The one product that all outputs are computed from, element by element at their own places, where it is large
    enough to be worth threads that work together. Columns are what belongs to neighbours in the first output, as far as
    that can be told."""
    heroes = [i for i in region.computation.instructions if i.opcode == "dot"]
    if len(heroes) != 1 or not is_summed(heroes[0].shape.type):
        return None
    (hero,) = heroes
    space = Space(hero, False)
    sizes = space.sizes
    at = space.index(*(variable(f"hlo_{k}", size) for k, size in enumerate(sizes[:3])))
    if math.prod(sizes) < max(1, LEAST) or root_indices(region, hero, at) is None:
        return None
    return Space(hero, _writes_rows(region, space))


def is_summed(element_type: ElementType) -> bool:
    """Whether sums of products of the type are kept in memory as they are in registers."""
    return element_type.is_float or element_type.kind == "pred" or (element_type.is_integer and element_type.bits >= 8)


def root_indices(region: Region, hero: Instruction, at: Index) -> list[Index] | None:
    """For each output, the index of its element that belongs to the product's at an index; None where one has none, or
    reads others too."""
    indices = following(region, hero, at)
    found = []
    for root in region.roots:
        index = indices.get(root)
        if index is None or not root.shape.is_array or root.shape.element_count != hero.shape.element_count:
            return None
        if heroes_read([(root, index)], depending_below(root, {hero}), {hero: at}) != [hero]:
            return None
        found.append(index)
    return found


def following(region: Region, hero: Instruction, at: Index) -> dict[Instruction, Index]:
    """Where what follows the product has the element that belongs to the product's at an index, as far as elements keep
    to themselves."""
    found: dict[Instruction, Index] = {hero: at}
    for i in region.computation.instructions:
        operand = next((o for o in i.operands if o in found), None)
        if operand is None or not i.shape.is_array or i.shape.element_count != hero.shape.element_count:
            continue
        index, spec = found[operand], find(i.opcode)
        if i.opcode == "bitcast" and i.shape.type.bits == operand.shape.type.bits:
            order = operand.shape.minor_to_major[::-1]
            place = linearize([index[d] for d in order], [operand.shape.dimensions[d] for d in order])
            found[i] = physical_index(i.shape, place)
        elif i.opcode == "reshape":
            found[i] = delinearize(linearize(index, operand.shape.dimensions), i.shape.dimensions)
        elif i.opcode == "transpose":
            found[i] = tuple(index[d] for d in i.ints("dimensions"))
        elif spec is not None and (isinstance(spec.cuda, Elementwise) or i.opcode in ("copy", "convert")):
            found[i] = index
    return found


def _writes_rows(region: Region, space: Space) -> bool:
    """Whether neighbours in the first output are of the same column, not of the same row."""
    shape = region.roots[0].shape
    zero, one = constant(0), constant(1)
    steps = []
    for place in ((zero, one, zero), (zero, zero, one)):
        there = following(region, space.hero, space.index(*place))[region.roots[0]]
        steps.append(abs(_address(shape.strides, there)) or 1 << 62)
    return steps[0] < steps[1]


def _address(strides: Sequence[int], index: Index) -> int:
    position: Expression = constant(0)
    for stride, expression in zip(strides, index, strict=True):
        position = add(position, multiply(expression, stride))
    return position.value if isinstance(position, Constant) else 0


def parameters_read(instruction: Instruction, index: Index) -> list[tuple[Instruction, int]]:
    """The parameters that an element is computed from, and which of their elements are read; `index` is of
    constants."""
    found: list[tuple[Instruction, int]] = []
    todo = [(instruction, index)]
    zero = constant(0)
    steps = 0
    while todo and steps < _MOST_STEPS:
        steps += 1
        current, place = todo.pop()
        if current.parameter_number is not None:
            found.append((current, _address(current.shape.strides, place)))
            continue
        spec = find(current.opcode)
        for number, operand in enumerate(current.operands):
            read = None if spec is None or spec.index is None else spec.index(current, number)
            if spec is not None and isinstance(spec.cuda, Elementwise):
                todo.append((operand, place if operand.shape.rank else ()))
            elif read is not None and operand.shape.is_array:
                none = [zero] * max(len(read.symbols), len(read.runtime))
                todo.append((operand, read.apply(place, none[: len(read.symbols)], none[: len(read.runtime)])))
    return found


def ends(region: Region, space: Space, at: Index, walk: Walk) -> Walk:
    """The walk in which outputs are computed from the product's element at an index, and written."""
    indices = root_indices(region, space.hero, at) or []
    wanted = list(zip(region.roots, indices, strict=False))
    written = [(root.shape, index) for root, index in wanted]
    return replace(walk, wanted=wanted, written=written, known=frozenset({space.hero}))
