"""Recognises a softmax by its sum of exponentials of values minus their maximum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ops.reduction.reducers import monoid, starts_with_identity
from hlo_opt.ops.sets import COPIES, is_view, keeps_values, multiplies_matrices, reorders

MOVES = COPIES | {"broadcast"}
"""Operations that pass the results of rows on."""
_MOST_STEPS = 100  # values between a product and its softmax


@dataclass(frozen=True)
class Exponentials:
    """sum(exp(x - moved(highest))): `highest` is the maximum of x, `moved` its broadcast, `powers` the summed
    exponentials. With `any_order`, `highest` may be the maximum of what x is a transpose of. `is_guarded`: zero is
    subtracted in place of a maximum that is not finite, as `jax.nn.logsumexp` does.
    """

    total: Instruction
    powers: Instruction
    x: Instruction
    moved: Instruction
    highest: Instruction
    is_guarded: bool


def folds(reduce: Instruction, opcode: str) -> bool:
    """Whether a reduce has this reducer and starts with its identity."""
    return starts_with_identity(reduce) and monoid(reduce.called_by("to_apply")) == opcode


def sums_of(
    instructions: Iterable[Instruction], *, any_shape: bool = False, any_order: bool = False
) -> list[Exponentials]:
    """All such sums among the instructions, in order. `any_shape`: the maximum may be that of x in another shape, so
    that indices have to tell whether both are of the same rows. `any_order`: it may be that of x before a transpose."""
    totals = (i for i in instructions if i.opcode == "reduce" and folds(i, "add"))
    found = (_sum(total, any_shape=any_shape, any_order=any_order) for total in totals)
    return [folded for folded in found if folded is not None]


def unshaped(value: Instruction) -> Instruction:
    """What a value is a copy of, perhaps in another shape."""
    while keeps_values(value, COPIES):
        value = value.operands[0]
    return value


def _sum(total: Instruction, *, any_shape: bool, any_order: bool) -> Exponentials | None:
    powers = total.operands[0]
    while _rounds(powers):  # to an integer all but 1 become 0
        powers = powers.operands[0]
    return of_powers(total, powers, any_shape=any_shape, any_order=any_order)


def of_powers(
    total: Instruction, powers: Instruction, *, any_shape: bool = False, any_order: bool = False
) -> Exponentials | None:
    """A sum as one of these exponentials, which are those that it adds up, or equal them."""
    if powers.opcode != "exponential" or powers.operands[0].opcode != "subtract":
        return None
    x, moved = powers.operands[0].operands
    end = source(moved, lambda value: value.opcode in ("reduce", "select"))
    is_guarded = end is not None and end.opcode == "select"
    low = _guarded(end) if end is not None and is_guarded else end
    if low is None or not folds(low, "maximum"):
        return None
    if any_shape:
        if unshaped(low.operands[0]) is not unshaped(x):
            return None
    elif low.operands[0] is not x:
        if not (any_order and _is_of_transposed(low, x, total.ints("dimensions"))):
            return None
    elif low.ints("dimensions") != total.ints("dimensions"):
        return None
    return Exponentials(total, powers, x, moved, low, is_guarded)


def _is_of_transposed(low: Instruction, x: Instruction, folded: Sequence[int]) -> bool:
    """Whether a reduce folds, of what x is a transpose of, the dimensions of x that are `folded`, and has the others in
    the order of x."""
    order = _order_of(x)
    if order is None or x.operands[0] is not low.operands[0]:
        return False
    kept = [order[d] for d in range(len(order)) if d not in folded]
    return kept == sorted(kept) and low.ints("dimensions") == tuple(sorted(order[d] for d in folded))


def _order_of(x: Instruction) -> Sequence[int] | None:
    """The operand's dimension for each of a transpose, or of a view of the same memory as such."""
    if reorders(x):
        order = x.ints("dimensions")
        return order if len(order) == x.shape.rank else None
    if not is_view(x.opcode) or not x.shape.is_array or x.shape.rank != x.operands[0].shape.rank:
        return None
    source = x.operands[0].shape
    pairs = dict(zip(x.shape.minor_to_major, source.minor_to_major, strict=True))
    order = tuple(pairs[d] for d in range(x.shape.rank))
    is_same = x.shape.type == source.type and x.shape.dimensions == tuple(source.dimensions[d] for d in order)
    return order if is_same else None


def _rounds(value: Instruction) -> bool:
    """Whether a value is another rounded to a float that still is about the same: with 8 bits or fewer it is a code for
    few numbers, which is what the program asks for."""
    return value.opcode == "convert" and value.shape.type.is_float and value.shape.type.bits >= 16


def _guarded(choice: Instruction) -> Instruction | None:
    """The reduce of select(is-finite(reduce), reduce, 0); None for any other select."""
    asked, value, other = choice.operands
    if asked.opcode != "is-finite" or not _is_all(other, 0):
        return None
    first, second = (source(o, lambda value: value.opcode == "reduce") for o in (asked.operands[0], value))
    return first if first is second else None


def source(value: Instruction, is_end: Callable[[Instruction], bool]) -> Instruction | None:
    """The first instruction that `is_end`, reached through moves and maxima with -inf; None where there is none."""
    while not is_end(value):
        if value.opcode == "maximum" and any(_is_all(o, -np.inf) for o in value.operands):
            value = next((o for o in value.operands if not _is_all(o, -np.inf)), value.operands[0])
        elif keeps_values(value, MOVES):
            value = value.operands[0]
        else:
            return None
    return value


def _is_all(value: Instruction, number: float) -> bool:
    """Whether all elements are that number."""
    while keeps_values(value, MOVES):
        value = value.operands[0]
    literal = value.literal
    return literal is not None and not literal.is_elided and bool(np.all(np.asarray(literal.value) == number))


def divided(weights: Instruction, exponentials: Exponentials) -> Instruction | None:
    """The divisor, where `weights` are the exponentials divided by their sum (perhaps rounded and moved); None
    otherwise."""
    while keeps_values(weights, COPIES | {"transpose"}) or _rounds(weights):
        weights = weights.operands[0]
    if weights.opcode != "divide" or weights.operands[0] is not exponentials.powers:
        return None
    by = weights.operands[1]
    end = source(by, lambda value: value is exponentials.total or value.opcode == "convert")
    while end is not None and end is not exponentials.total and _rounds(end):
        end = source(end.operands[0], lambda value: value is exponentials.total or value.opcode == "convert")
    return by if end is exponentials.total else None


def weighs(weights: Instruction, exponentials: Exponentials) -> bool:
    """Whether a value is the exponentials, perhaps rounded and moved, and perhaps divided by their sum."""
    return divided(weights, exponentials) is not None or unmoved(weights) is exponentials.powers


def unmoved(weights: Instruction) -> Instruction:
    """What weights are a copy of, perhaps rounded and moved."""
    while keeps_values(weights, COPIES | {"transpose"}) or _rounds(weights):
        weights = weights.operands[0]
    return weights


def attention_products(instructions: Iterable[Instruction]) -> set[Instruction]:
    """The products of matrices on both sides of a softmax: of one, its values are computed, and in the other, they are
    weights."""
    every = list(instructions)
    products = [i for i in every if multiplies_matrices(i)]
    found: set[Instruction] = set()
    if len(products) < 2:
        return found
    for exponentials in sums_of(every, any_shape=True):
        after = [i for i in products if any(weighs(o, exponentials) for o in i.operands[:2])]
        before = _products_above(exponentials.x) if after else []
        if len(before) == 1:
            found.update((*before, *after))
    return found


def roundings_between(instructions: Iterable[Instruction]) -> set[Instruction]:
    """The operations of a softmax between two products, from the differences to the highest on, whose roundings a
    kernel of all three may leave out, or do before it divides."""
    every = list(instructions)
    products = attention_products(every)
    found: set[Instruction] = set()
    for exponentials in sums_of(every, any_shape=True) if products else ():
        difference, of_sum = exponentials.powers.operands[0], exponentials.total.operands[0]
        weighted = [i for i in products if any(weighs(o, exponentials) for o in i.operands[:2])]
        after = _below(weighted)
        stack = [difference, of_sum] if weighted else []
        while stack:
            current = stack.pop()
            if current not in found and current not in products and current not in after:
                found.add(current)
                stack += current.users
    return found


def _below(values: Iterable[Instruction]) -> set[Instruction]:
    """What needs any of some values."""
    found, stack = set[Instruction](), [user for value in values for user in value.users]
    while stack:
        current = stack.pop()
        if current not in found:
            found.add(current)
            stack += current.users
    return found


def _products_above(value: Instruction) -> list[Instruction]:
    """The products that a value needs, and not by way of another product."""
    found, seen, stack = list[Instruction](), {value}, [value]
    while stack and len(seen) < _MOST_STEPS:
        current = stack.pop()
        if multiplies_matrices(current):
            found.append(current)
            continue
        fresh = [o for o in dict.fromkeys(current.operands) if o not in seen]
        seen.update(fresh)
        stack += fresh
    return found
