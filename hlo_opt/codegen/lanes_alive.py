"""Threads that do anything in a stretch, where a block has more than an array has elements: the loop over threads ends
behind the last of them.

A thread counts where it writes to memory, or where its variables are read by a thread that counts. It is liveness
analysis as of variables, with a number of threads in the place of one bit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from hlo_opt.codegen.lanes_stretches import Stretch
from hlo_opt.codegen.statements import THREAD
from hlo_opt.codegen.tree import Assign, Block, For, Let, Note, Statement, functions_in, names_in
from hlo_opt.diag.time_limit import check_time
from hlo_opt.ir.index_map import (
    Constant,
    Expression,
    Product,
    Quotient,
    Remainder,
    Sum,
    Variable,
    substitute,
)
from hlo_opt.ops.code import Code
from hlo_opt.plans.columns import WARP


def keep_alive(
    stretches: Sequence[Stretch],
    shared: Collection[str],
    homes: Mapping[str, Stretch],
    shown: Mapping[int, str],
    full: Mapping[str, Expression],
) -> None:
    """Lower `threads` of stretches to those that count, in whole warps.

    `shared`: variables of threads that several stretches mention; `homes`: the stretches that declare variables;
    `shown`: the variable that a statement reads of another thread, by the statement; `full`: indices as expressions of
    the thread's number.
    """
    counted = dict.fromkeys(stretches, 0)
    needed: dict[str, int] = {}
    while True:
        before = dict(counted)
        for stretch in stretches:
            check_time()
            counted[stretch] = _counted(stretch, shared, homes, needed, full)
            reach = _reach(stretch, counted[stretch], shown)
            for name in (*(n.text for n in names_in(stretch.items)), *(shown.get(id(s), "") for s in stretch.items)):
                needed[name] = max(needed.get(name, 0), reach)
        if counted == before:
            break
    for stretch, count in counted.items():
        stretch.threads = _whole(count, stretch.tree.tree[0] if stretch.tree and stretch.tree.tree else WARP, stretch)


def _reach(stretch: Stretch, count: int, shown: Mapping[int, str]) -> int:
    """The threads whose variables those that count read: others' of a fold, or of a warp."""
    if stretch.tree is not None and stretch.tree.tree is not None:
        return _whole(count, stretch.tree.tree[0], stretch)
    return _whole(count, WARP, stretch) if any(id(s) in shown for s in stretch.items) else count


def _whole(count: int, size: int, stretch: Stretch) -> int:
    """As many threads in whole teams of a size."""
    return min(-(-count // size) * size, stretch.threads)


def _counted(
    stretch: Stretch,
    shared: Collection[str],
    homes: Mapping[str, Stretch],
    needed: Mapping[str, int],
    full: Mapping[str, Expression],
) -> int:
    """How many threads of a stretch have to run, counted from the first: those whose stores and variables something
    needs. All of them, where threads communicate, take turns or update memory atomically."""
    if stretch.step is not None or stretch.in_turn or "atomicAdd" in functions_in(stretch.items):
        return stretch.threads

    def of_variable(name: str) -> int:
        """How many threads must set a variable: none where only this stretch uses it."""
        if name in shared:
            return min(needed.get(name, 0), stretch.threads)
        return 0 if homes.get(name) is stretch else stretch.threads

    return max(_effects(stretch.items, stretch.threads, of_variable, full), default=0)


def _effects(
    items: Sequence[Statement], limit: int, of_variable: Callable[[str], int], full: Mapping[str, Expression]
) -> Iterator[int]:
    """For each statement, how many of the first `limit` threads do something by it."""
    for item in items:
        match item:
            case Note():
                continue
            case Let(name=name):
                yield min(limit, of_variable(name.text))
            case Assign(target, _) if target.name is not None:
                yield min(limit, of_variable(target.name.text))
            case Block(condition, body, otherwise):
                yield from _effects(body, min(limit, threads_in(condition, full, limit)), of_variable, full)
                yield from _effects(otherwise, limit, of_variable, full)
            case For(body=body):
                yield from _effects(body, limit, of_variable, full)
            case _:
                yield limit


def threads_in(condition: Code, full: Mapping[str, Expression], threads: int) -> int:
    """Behind the last of a block's threads for which a condition may hold: conditions on anything but the thread's
    number may."""
    holds = np.ones(threads, bool)
    for part in condition.says:
        numbers = numbers_of(substitute(part.expression, full), THREAD.text, threads)
        if numbers is not None:
            holds &= (part.low <= numbers) & (numbers <= part.high)
    return int(np.flatnonzero(holds)[-1]) + 1 if holds.any() else 0


def numbers_of(expression: Expression, variable: str, threads: int) -> np.ndarray | None:
    """An index of each thread, whose number is a variable; None where it depends on something else."""
    match expression:
        case Constant(value=value):
            return np.full(threads, value)
        case Variable(name=name):
            return np.arange(threads) if name == variable else None
        case Sum(left=left, right=right):
            one, other = numbers_of(left, variable, threads), numbers_of(right, variable, threads)
            return None if one is None or other is None else one + other
        case Product(left=left, factor=factor):
            one = numbers_of(left, variable, threads)
            return None if one is None else one * factor
        case Quotient(left=left, divisor=divisor):
            one = numbers_of(left, variable, threads)
            return None if one is None else one // divisor
        case Remainder(left=left, divisor=divisor):
            one = numbers_of(left, variable, threads)
            return None if one is None else one % divisor
    return None
