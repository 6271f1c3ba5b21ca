"""Loops that end by floats: what decides that in XLA's condition must not be rounded otherwise in the body.

JAX asks again in the body which elements go on (`vmap`), and XLA may round a product and a sum once where our kernels
round twice: with both answers in a loop, an element may be neither done nor changed, and the loop never ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hlo_opt.analysis.graph.loops import trip_count
from hlo_opt.ir import Computation, ElementType, Instruction
from hlo_opt.jax.regions import callees_of, inner_of
from hlo_opt.ops.sets import looped, tuple_elements


@dataclass(frozen=True)
class Ending:
    """What must agree with a loop's condition in a computation that the loop runs.

    deciding    the instructions that make truth values or integers of floats, and those that these are computed of
    has_loops   whether the condition runs loops: only then a loop may be a part of what is asked again
    """

    deciding: frozenset[Instruction]
    has_loops: bool


def ending_of(caller: Instruction, body: Computation, outer: Ending | None) -> Ending | None:
    """The `Ending` of a computation that an instruction runs: the body of a loop that ends by floats, or a part of
    one. `outer` is that of the caller's computation. None where nothing has to agree."""
    if outer is not None and caller in outer.deciding:
        is_asked = looped(caller) is not None or any(user in outer.deciding for user in caller.users)
        return Ending(_deciding(body, outer.has_loops, is_asked), outer.has_loops)
    if not ends_by_floats(caller):
        return None
    asked = caller.called_by("condition").instructions
    has_loops = any(looped(i) is not None for i in _with_inner(asked))
    return Ending(_deciding(body, has_loops, is_asked=False), has_loops)


def _deciding(body: Computation, has_loops: bool, is_asked: bool) -> frozenset[Instruction]:
    """`Ending.deciding`. `is_asked`: decisions follow from the result, too."""
    deciding: set[Instruction] = set()
    for i in reversed(list(body.instructions)):  # users first
        if looped(i) is not None and not has_loops:
            continue
        if (is_asked and i.is_root) or not deciding.isdisjoint(i.users) or decides_by_floats([i]):
            deciding.add(i)
    return frozenset(deciding)


def ends_by_floats(loop: Instruction) -> bool:
    """Whether a loop of unknown length asks floats whether it goes on."""
    if looped(loop) is None or trip_count(loop) is not None:
        return False
    return decides_by_floats(loop.called_by("condition").instructions)


def decides_by_floats(members: Iterable[Instruction]) -> bool:
    """Whether any of these, or of what they run, makes something else of floats, such as a truth value, a rounded
    integer, the bits of a float or the place of the largest."""
    return any(_decides(i) for i in _with_inner(members))


def _with_inner(members: Iterable[Instruction]) -> Iterable[Instruction]:
    return (i for m in members for i in (m, *inner_of(m)))


def _decides(i: Instruction) -> bool:
    if tuple_elements(i) is not None or callees_of(i):
        return False
    made = any(leaf.is_array and not _is_of_floats(leaf.type) for leaf in i.shape.leaves())
    return made and any(o.shape.is_array and _is_of_floats(o.shape.type) for o in i.operands)


def _is_of_floats(kind: ElementType) -> bool:
    return kind.is_float or kind.is_complex
