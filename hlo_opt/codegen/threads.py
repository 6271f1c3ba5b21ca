"""Questions about how the threads of a kernel interact, answered from its tree."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.tree import (
    Barrier,
    ClusterBarrier,
    Fence,
    GridBarrier,
    Kept,
    Leave,
    Statement,
    codes_of,
    functions_in,
    walk,
)
from hlo_opt.ops.code import Address, Code, Function, Name, Shuffle


def keeps_memory(kernel: Kernel) -> bool:
    """Whether blocks of a kernel communicate through kept memory."""
    return any(isinstance(table, Kept) for table in kernel.tree.tables)


def meets(statements: Sequence[Statement]) -> bool:
    """Whether the threads of a block wait for each other in these statements."""
    return any(
        isinstance(statement, Barrier | GridBarrier | ClusterBarrier) or any(map(shuffles, codes_of(statement)))
        for statement in walk(statements)
    )


def shuffles(expression: Code) -> bool:
    """Whether an expression reads a register of another thread (CUDA's `__shfl_sync`)."""
    return any(isinstance(piece, Shuffle) for piece in expression.parts())


def threads_meet(kernel: Kernel) -> bool:
    """Whether the threads of a block wait for each other, so that a plain loop over them would be wrong."""
    return meets(kernel.tree.body)


def meets_in_grid(statements: Sequence[Statement]) -> bool:
    """Whether the blocks of a launch wait for each other in these statements."""
    return any(isinstance(statement, GridBarrier) for statement in walk(statements))


def takes_turns(kernel: Kernel) -> bool:
    """Whether blocks wait for those that have started before them."""
    return "hlo_take_turn" in functions_in(kernel.tree.body)


def leaves(statements: Sequence[Statement]) -> bool:
    """Whether a thread may return early."""
    return any(isinstance(statement, Leave) for statement in walk(statements))


def changed_at_once(kernel: Kernel) -> set[Name]:
    """The arrays that the kernel changes atomically."""
    arrays = set()
    for statement in walk(kernel.tree.body):
        for expression in codes_of(statement):
            arrays |= {piece.of.array for piece in expression.parts() if isinstance(piece, Address)}
            if "hlo_part_seen" in expression.functions():
                arrays |= set(expression.names())
    return arrays


def only_counts(kernel: Kernel) -> bool:
    """Whether blocks share memory only to find out which comes last; then results do not depend on their order."""
    own = {table.name for table in kernel.tree.tables if isinstance(table, Kept)}
    is_seen = not kernel.in_order and not meets_in_grid(kernel.tree.body)
    return bool(own) and is_seen and changed_at_once(kernel) <= own


def is_ordered(kernel: Kernel) -> bool:
    """Whether blocks update the same memory (atomics), so that one processor must run them in order to make sums
    reproducible."""
    return kernel.in_order or keeps_memory(kernel) or _has_atomics(kernel)


def _has_atomics(kernel: Kernel) -> bool:
    return any(
        isinstance(statement, Fence)
        or any(
            isinstance(piece, Address)
            or (isinstance(piece, Function) and piece.text.startswith(("atomic", "hlo_seen", "hlo_part_seen")))
            for expression in codes_of(statement)
            for piece in expression.parts()
        )
        for statement in walk(kernel.tree.body)
    )
