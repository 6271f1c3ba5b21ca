"""What the threads of a kernel do together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.threads import changed_at_once, is_ordered, keeps_memory, leaves, only_counts, threads_meet
from hlo_opt.codegen.tree import (
    Assign,
    Barrier,
    Block,
    BlockRange,
    Do,
    Fence,
    For,
    Kept,
    Leave,
    Let,
    Neighbours,
    Network,
    Statement,
    StrideLoop,
)
from hlo_opt.ir import ELEMENT_TYPES, array
from hlo_opt.ir.index_map import Variable
from hlo_opt.ops.code import NOTHING, Code, Name, Shuffle, address, call, cell, code, of
from hlo_opt.plans.plan import Launch
from tests.written_kernels import of_tree

X, K, OUT, MINE = Name("x"), Name("k"), Name("out0"), Name("arrived")
KEPT = Kept("unsigned int", MINE, 1)
SHUFFLED = Let("float", Name("y"), Code((Shuffle("sync", X, of(0), ""),)))
COUNTING = Let("unsigned int", Name("before"), call("atomicAdd", address(MINE, 0), "1u"))


def kernel(body: Sequence[Statement], *tables: Kept) -> Kernel:
    shape = array(ELEMENT_TYPES["f32"], 64)
    return of_tree("k", body, Launch(1, 64), [shape], [shape], tables)


def within(statement: Statement) -> list[list[Statement]]:
    """A statement in all places that have room for some."""
    inside = [statement]
    return [
        inside,
        [Block(of(X), inside)],
        [Block(of(X), [], inside)],
        [For("int", K, of(0), code("{} < 3", K), code("++{}", K), "", inside)],
        [StrideLoop("int", K, Variable(0, 63, "threadIdx.x"), 99, 64, None, inside)],
        [BlockRange(0, 1, inside)],
        [Neighbours(4, K, making=inside)],
        [Neighbours(4, K, filling=inside)],
        [BlockRange(0, 1, [Block(NOTHING, [For("int", None, NOTHING, NOTHING, NOTHING, "", inside)])])],
    ]


@pytest.mark.parametrize("statement", [Barrier(), Barrier(warp=True), SHUFFLED])
def test_threads_meet_wherever_it_is(statement: Statement) -> None:
    assert all(threads_meet(kernel(body)) for body in within(statement))
    assert not any(threads_meet(kernel(body)) for body in within(Assign(cell(OUT, 0), of(X))))
    assert threads_meet(
        kernel([Let("float", Name("z"), code("{} + 1", cell(OUT, Code((Shuffle("down", X, of(1), ""),)))))])
    )


def test_threads_leave_wherever_it_is() -> None:
    assert all(leaves(body) for body in within(Leave(of(X))))
    assert not any(leaves(body) for body in within(Barrier()))


def test_what_is_changed_at_once() -> None:
    for body in within(Do(call("atomicMax", address(OUT, X), of(3)))):
        made = kernel(body)
        assert changed_at_once(made) == {OUT} and is_ordered(made) and not only_counts(made)
    assert changed_at_once(kernel([Assign(cell(OUT, 0), of(X))])) == set()
    assert changed_at_once(kernel([COUNTING], KEPT)) == {MINE}
    seen = kernel([Let("float", Name("v"), call("hlo_part_seen<4>", OUT, of(3)))])
    assert OUT in changed_at_once(seen) and is_ordered(seen)


def test_blocks_that_only_count_themselves() -> None:
    counting = kernel([Fence(), COUNTING], KEPT)
    assert keeps_memory(counting) and only_counts(counting) and is_ordered(counting)
    assert not only_counts(replace(counting, in_order=True))
    both = kernel([COUNTING, Do(call("atomicAdd", address(OUT, 0), of(1)))], KEPT)
    assert keeps_memory(both) and not only_counts(both)
    assert not keeps_memory(kernel([Barrier()])) and not only_counts(kernel([Barrier()]))


def test_what_has_an_order() -> None:
    plain = kernel([Assign(cell(OUT, 0), of(X))])
    assert not is_ordered(plain)
    assert is_ordered(kernel([Fence()])) and is_ordered(kernel([], KEPT)) and is_ordered(replace(plain, in_order=True))
    assert not is_ordered(kernel([Barrier(), Assign(cell(OUT, 0), of(X))]))


def test_a_network_meets_in_its_steps() -> None:
    assert threads_meet(kernel([Network([Barrier()], None)]))  # type: ignore[arg-type]  # no merge is asked for
