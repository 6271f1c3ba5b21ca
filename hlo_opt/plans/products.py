"""Products of two arrays as batches of matrices: the common base of the plans for matrices and for vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from hlo_opt.ir import IndexMap, Instruction
from hlo_opt.ir.element_type import ElementType
from hlo_opt.ir.index_map import Constant, Expression, add, constant, delinearize, linearize, multiply, variable
from hlo_opt.ops.contraction.table import DotDimensions, index_dot
from hlo_opt.ops.lowering import Element, Elementwise, Index
from hlo_opt.ops.movement.memory import physical_index
from hlo_opt.ops.spec import find
from hlo_opt.plans.element_reads import depending_below, heroes_read
from hlo_opt.plans.plan import Region
from hlo_opt.plans.walks import Walk

BLOCK = 256
"""Threads per block."""
LEAST = 1 << 15
"""Multiplications below which a loop is as quick."""
_MOST_STEPS = 500  # elements that are followed from an operand up to parameters


@dataclass(frozen=True)
class ProductSpace:
    """A product with its dimensions merged to four: batches, rows, columns and contracted elements.

    Rows are the free dimensions of one operand, columns those of the other: of the right one, unless `turned`.
    Neighbouring threads write neighbouring columns.
    """

    hero: Instruction
    turned: bool
    _along: dict[int, bool] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Results of `goes_along` by side."""

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The product's dimensions that are batches, rows and columns, each in the order of memory."""
        dimensions, left = DotDimensions.of(self.hero), self.hero.operands[0].shape
        batch = len(dimensions.lhs_batch)
        middle = batch + len(dimensions.free(left.rank, right=False))
        parts = [range(batch), range(batch, middle), range(middle, self.hero.shape.rank)]
        strides = self.hero.shape.strides
        order = [tuple(sorted(part, key=lambda d: -strides[d])) for part in parts]
        return (order[0], order[2], order[1]) if self.turned else (order[0], order[1], order[2])

    @cached_property
    def sizes(self) -> tuple[int, int, int, int]:
        """Batches, rows, columns, contracted elements."""
        dimensions = self.hero.shape.dimensions
        batch, rows, columns = (math.prod(dimensions[d] for d in group) for group in self.groups)
        return batch, rows, columns, math.prod(self.contracted)

    @cached_property
    def contracted(self) -> tuple[int, ...]:
        """The sizes of the contracted dimensions."""
        return self._reads[0].symbols

    @cached_property
    def _reads(self) -> list[IndexMap]:
        """Where the product reads each operand."""
        return [read for side in (0, 1) if (read := index_dot(self.hero, side)) is not None]

    def index(self, batch: Expression, row: Expression, column: Expression) -> Index:
        """The logical index of an element of the product."""
        digits: dict[int, Expression] = {}
        for group, position in zip(self.groups, (batch, row, column), strict=True):
            sizes = [self.hero.shape.dimensions[d] for d in group]
            digits.update(zip(group, delinearize(position, sizes), strict=True))
        return tuple(digits[d] for d in range(self.hero.shape.rank))

    def operand_of(self, side: int) -> int:
        """The number of the operand with the rows (side 0) or the columns (side 1)."""
        return 1 - side if self.turned else side

    def operand_index(self, side: int, batch: Expression, free: Expression, along: Expression) -> Index:
        """The index at which the operand of the rows (side 0) or columns (side 1) is read, for a row or column (`free`)
        and a contracted element (`along`)."""
        nothing = constant(0)
        out = self.index(batch, free, nothing) if side == 0 else self.index(batch, nothing, free)
        return self._reads[self.operand_of(side)].apply(out, delinearize(along, self.contracted))

    def goes_along(self, side: int) -> bool:
        """Whether neighbouring contracted elements, rather than rows (or columns), are adjacent in the memory that an
        operand is computed from."""
        if side not in self._along:
            self._along[side] = self._goes_along(side)
        return self._along[side]

    def _goes_along(self, side: int) -> bool:
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
    """Base of the parts of products: outputs whose elements depend on one element of the product each. `roots` are the
    positions of all outputs."""

    space: ProductSpace
    roots: tuple[int, ...]

    @property
    def hero(self) -> Instruction:
        """The product."""
        return self.space.hero

    @property
    def first(self) -> Instruction:
        """The product that needs no other: the only one, mostly."""
        return self.hero

    @property
    def block(self) -> int:
        return BLOCK


def product_of(region: Region) -> ProductSpace | None:
    """The only product of a region, if all outputs are elementwise functions of it, and it is large enough for threads
    to share work. Neighbouring columns are neighbours in the first output where that is known."""
    heroes = [i for i in region.computation.instructions if i.opcode == "dot"]
    if len(heroes) != 1 or not is_summed(heroes[0].shape.type):
        return None
    (hero,) = heroes
    space = ProductSpace(hero, False)
    sizes = space.sizes
    at = space.index(*(variable(f"hlo_{k}", size) for k, size in enumerate(sizes[:3])))
    if math.prod(sizes) < max(1, LEAST) or root_indices(region, hero, at) is None:
        return None
    return ProductSpace(hero, _writes_rows(region, space))


def terms_of(i: Instruction) -> int:
    """The number of elements of the first operand that an element needs."""
    spec = find(i.opcode)
    read = None if spec is None or spec.index is None or not i.operands else spec.index(i, 0)
    return 1 if read is None else math.prod(read.symbols)


def is_summed(element_type: ElementType) -> bool:
    """Whether sums of products of the type have the same form in memory as in registers."""
    return element_type.is_float or element_type.kind == "pred" or (element_type.is_integer and element_type.bits >= 8)


def root_indices(region: Region, hero: Instruction, at: Index, beside: Sequence[Element] = ()) -> list[Index] | None:
    """For each output, the index of the element that depends on the product's element at `at`, and on elements `beside`
    it, if on any; None if an output has no such element, or also depends on others."""
    indices, own = following(region, hero, at), {hero: at, **dict(beside)}
    result = []
    for root in region.roots:
        index = indices.get(root)
        if index is None or not root.shape.is_array or root.shape.element_count != hero.shape.element_count:
            return None
        if hero not in (heroes_read([(root, index)], depending_below(root, set(own)), own) or ()):
            return None
        result.append(index)
    return result


def following(region: Region, hero: Instruction, at: Index) -> dict[Instruction, Index]:
    """The index of the element that depends on the product's element at `at`, for each user of the product as far as
    these are elementwise or moves."""
    indices: dict[Instruction, Index] = {hero: at}
    for i in region.computation.instructions:
        operand = next((o for o in i.operands if o in indices), None)
        if operand is None or not i.shape.is_array or i.shape.element_count != hero.shape.element_count:
            continue
        index, spec = indices[operand], find(i.opcode)
        if i.opcode == "bitcast" and i.shape.type.bits == operand.shape.type.bits:
            order = operand.shape.minor_to_major[::-1]
            place = linearize([index[d] for d in order], [operand.shape.dimensions[d] for d in order])
            indices[i] = physical_index(i.shape, place)
        elif i.opcode == "reshape":
            indices[i] = delinearize(linearize(index, operand.shape.dimensions), i.shape.dimensions)
        elif i.opcode == "transpose":
            indices[i] = tuple(index[d] for d in i.ints("dimensions"))
        elif spec is not None and (isinstance(spec.cuda, Elementwise) or i.opcode in ("copy", "convert")):
            indices[i] = index
    return indices


def _writes_rows(region: Region, space: ProductSpace) -> bool:
    """Whether neighbours in the first output are in the same column rather than the same row."""
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
    """The elements of parameters that the instruction's element at a constant `index` depends on: each parameter with
    the linear position of its element. Ends after `_MOST_STEPS` instructions with those seen by then."""
    reads: list[tuple[Instruction, int]] = []
    todo = [(instruction, index)]
    zero = constant(0)
    steps = 0
    while todo and steps < _MOST_STEPS:
        steps += 1
        current, place = todo.pop()
        if current.parameter_number is not None:
            reads.append((current, _address(current.shape.strides, place)))
            continue
        spec = find(current.opcode)
        if spec is not None and isinstance(spec.cuda, Elementwise):
            todo += [(operand, place if operand.shape.rank else ()) for operand in current.operands]
            continue
        for number, operand in enumerate(current.operands):
            read = None if spec is None or spec.index is None else spec.index(current, number)
            if read is not None and operand.shape.is_array:
                none = [zero] * max(len(read.symbols), len(read.runtime))
                todo.append((operand, read.apply(place, none[: len(read.symbols)], none[: len(read.runtime)])))
    return reads


def ends(region: Region, space: ProductSpace, at: Index, walk: Walk, beside: Sequence[Element] = ()) -> Walk:
    """The walk that computes outputs from the product's element at an index, and those beside it, and writes them."""
    indices = root_indices(region, space.hero, at, beside) or []
    wanted = list(zip(region.roots, indices, strict=False))
    written = [(root.shape, index) for root, index in wanted]
    return replace(walk, wanted=wanted, written=written, known=frozenset({space.hero, *dict(beside)}))
