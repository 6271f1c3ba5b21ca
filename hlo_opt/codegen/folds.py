"""Reduces in progress and the outputs written on the way: shared by the emitters of row and column reductions.

The order differs from HLO's row-major fold, as on every GPU, so a reducer must be associative and commutative.
The init value enters once per result; threads start with it only if it is the reducer's identity.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.scalars import register_type
from hlo_opt.codegen.tree import Let
from hlo_opt.codegen.vectors import OutputTarget, Store, Targets, store_all
from hlo_opt.ir import Computation, Instruction
from hlo_opt.ir.element_type import ElementType
from hlo_opt.ir.index_map import Expression
from hlo_opt.ops.code import Code, Name, cell, code, of
from hlo_opt.ops.extremes import in_any_order
from hlo_opt.ops.reduction.online import Together
from hlo_opt.ops.reduction.online import together as steps_together
from hlo_opt.ops.reduction.places import in_order, place_of
from hlo_opt.ops.reduction.reducers import is_wide, running_types, starts_with_identity
from hlo_opt.plans.column_reduction import Columns
from hlo_opt.plans.folding import result_index
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.row_reduction import Rows


@dataclass(frozen=True)
class Fold:
    """One reduce in progress: the accumulators' types, which may be wider than the results', and their names."""

    reduce: Instruction
    types: tuple[ElementType, ...]
    accumulators: tuple[Code, ...]
    starts_with_init: bool
    steps: Together | None = None
    """How it folds several elements at a time, where it does."""

    @cached_property
    def unordered(self) -> Computation:
        """The reducer for partial results that are met in any order."""
        return in_any_order(self.reduce) or self.reduce.called_by("to_apply")

    @property
    def operands(self) -> Sequence[Instruction]:
        """The folded operands, without init values."""
        return self.reduce.operands[: len(self.types)]

    def take(
        self, builder: Builder, values: Sequence[Code], is_first: bool | Code, places: Collection[int] = ()
    ) -> None:
        """Fold in values. `is_first`: whether these are the thread's first values, or the condition for that. `places`
        are the numbers of values that grow from one call of a thread to the next."""
        if self.starts_with_init or not is_first:
            self.combine(builder, values)
            return
        ordered = in_order(self.reduce.called_by("to_apply"), places) if places else None
        with nullcontext() if is_first is True else builder.branch(is_first):
            for accumulator, value in zip(self.accumulators, values, strict=True):
                builder.assign(accumulator, value)
        if is_first is not True:
            with builder.otherwise():
                self.combine(builder, values, ordered)

    def combine(self, builder: Builder, values: Sequence[Code], reducer: Computation | None = None) -> None:
        """accumulators = reducer(accumulators, values), with the reduce's own reducer or an equivalent one."""
        results = self.combined(builder, self.accumulators, values, reducer)
        for name, text in zip(self.accumulators, results, strict=True):
            builder.assign(name, text)

    def take_together(self, builder: Builder, elements: Name, count: int) -> None:
        """Fold in the elements of an array."""
        assert self.steps is not None
        (highest, total), kinds = self.accumulators, self.types
        builder.name_after(self.reduce)
        before = builder.bind_exact(kinds[0], highest)
        self._each(builder, count, self.steps.highest, highest, lambda at: [highest, cell(elements, at)])
        (base,) = builder.apply(self.steps.base, [highest])
        base = builder.bind_exact(kinds[0], base)
        builder.assign(total, *builder.apply(self.steps.rescale, [total, before, base]))
        self._each(builder, count, self.steps.add, total, lambda at: [total, cell(elements, at), base])

    @staticmethod
    def _each(
        builder: Builder, count: int, step: Computation, result: Code, arguments: Callable[[Code], list[Code]]
    ) -> None:
        builder.advise("unroll")
        with builder.loop(count) as number:
            builder.assign(result, *builder.apply(step, arguments(builder.text(number))))

    def combined(
        self, builder: Builder, left: Sequence[Code], right: Sequence[Code], reducer: Computation | None = None
    ) -> list[Code]:
        reducer = reducer or self.unordered
        results = builder.apply(reducer, [*left, *right], wide=is_wide(self.reduce))
        if len(results) > 1:  # compute all before the first accumulator changes
            results = [builder.bind_exact(t, text) for t, text in zip(self.types, results, strict=True)]
        return results

    def finish(self, builder: Builder, results: Sequence[Code], kept: Expression) -> None:
        """Combine the init values with the totals, unless the fold began with them, and provide the sums as elements of
        the reduce at the linear position `kept`. `results` has one total for each array that the reduce returns."""
        builder.name_after(self.reduce)
        totals = list(results)
        if not self.starts_with_init:
            inits = [builder.value(o, ()) for o in self.reduce.operands[len(self.types) :]]
            builder.name_after(self.reduce)
            totals = [builder.bind_exact(t, text) for t, text in zip(self.types, totals, strict=True)]
            totals = self.combined(builder, inits, totals, self.reduce.called_by("to_apply"))  # the init comes first
        index = result_index(self.reduce, kept)
        for number, (leaf, text) in enumerate(zip(self.reduce.shape.leaves(), totals, strict=True)):
            name = builder.bind(leaf.type, text)
            builder.provide(self.reduce, number if self.reduce.shape.is_tuple else None, index, name)


def places_at(fold: Fold, at: Sequence[Expression], step: Expression) -> list[int]:
    """The numbers of a fold's values that are the step itself, where steps are counted along what is folded."""
    return [n for n, o in enumerate(fold.operands) if place_of(o, at) == step]


@dataclass(frozen=True)
class Write:
    """An output: its root and targets, whether it has the full shape, and the number of levels before it is known."""

    root: Instruction
    targets: tuple[OutputTarget, ...]
    per_position: bool
    level: int

    def stores(self, builder: Builder, index: tuple[Expression, ...]) -> list[Store]:
        """Compute the output's elements at an index."""
        tuple_shaped = self.root.shape.is_tuple
        values = [
            builder.element(self.root, number, index) if tuple_shaped else builder.value(self.root, index)
            for number in range(len(self.targets))
        ]
        return [Store(pointer, shape, index, v) for (pointer, shape), v in zip(self.targets, values, strict=True)]

    def emit(self, builder: Builder, index: tuple[Expression, ...]) -> None:
        store_all(builder, self.stores(builder, index))


def writes_of(
    plan: Plan, segment: Segment[Rows] | Segment[Columns], kept: int, targets: Targets, roots: Sequence[int]
) -> list[Write]:
    """The outputs of a segment with `kept` kept positions; `roots` are their numbers."""
    level_of = levels_of(plan, segment)
    writes = []
    for number in roots:
        root = plan.region.roots[number]
        per_position = targets[number][0][1].element_count != kept
        writes.append(Write(root, tuple(targets[number]), per_position, level_of[root]))
    return writes


def levels_of(plan: Plan, segment: Segment[Rows] | Segment[Columns]) -> dict[Instruction, int]:
    """The number of passes over the elements before each value is known."""
    level_of: dict[Instruction, int] = {}
    for instruction in plan.region.computation.instructions:
        level_of[instruction] = max((level_of[o] for o in instruction.operands), default=0)
        for level, reduces in enumerate(segment.part.levels):
            if instruction in reduces:
                level_of[instruction] = level + 1
    return level_of


def open_folds(builder: Builder, reduces: Sequence[Instruction], together: int = 1) -> list[Fold]:
    """Declare the accumulators of reduces. A thread has `together` elements at a time, which it may fold at once."""
    folds = []
    for reduce in reduces:
        types = running_types(reduce)
        steps = steps_together(reduce) if together > 1 else None
        neutral = starts_with_identity(reduce) or steps is not None
        stem = builder.stem_of(reduce)
        names = []
        for number, element_type in enumerate(types):
            init = reduce.operands[len(types) + number]
            kind, name = register_type(element_type), builder.fresh(stem)
            first = builder.value(init, ()) if neutral else code(f"({kind})0")
            builder.add(Let(kind, name, first, constant=False))
            names.append(of(name))
        folds.append(Fold(reduce, types, tuple(names), neutral, steps))
    return folds
