"""What a difference begins with: which of its changes is told first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from hlo_opt.analysis.graph.compare.flat import FlatSite
from hlo_opt.analysis.graph.compare.matching import is_run
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.sets import is_barrier, is_view, read_window, written_window
from hlo_opt.report.diff.changes import FORMS, OPCODE, ROUNDS, TYPE, Change

WEIGHTY = frozenset({OpKind.CONTRACTION, OpKind.INDEXING, OpKind.COLLECTIVE, OpKind.LINALG, OpKind.OPAQUE})
"""Kinds of operations that decide about kernels."""

MANY = range(4, 4096)
"""How many operations that came or went together are looked through for the one that decides about the others."""

GRADIENT = "transpose(jvp"
"""What JAX writes into the `op_name` of what it computes backwards."""

LEFT_OUT, FEWER, MOST_CHOSEN = 0.2, 2, 16
"""The share of them that need not be reached from those that decide about the others; how many times fewer these must
be than those of the other sort; and at how many of them the count ends."""


def beginning(changes: Sequence[Change], homes: Mapping[FlatSite, Change]) -> Callable[[Change], tuple[float, ...]]:
    """What orders the changes of a difference: first what it begins with, last what only comes with others. Where
    operations are there in the place of others, those of weight say what was replaced, and else the expensive ones
    rather than those that read something else now; where operations only went, those that something still there has
    read. A barrier that came or went is why something is computed again. Of loops that came or went, the largest:
    others may have run in it."""
    own = [c for c in changes if not _comes_along(c, homes)]
    whats = {d.what for c in changes for d in c.details if d.what not in FORMS}
    whats.update(d.what for c in own for d in c.details)
    is_rewritten = any(c.kind in ("added", "lost") for c in changes)  # a loop; else another constant ends it
    is_replaced = whats.isdisjoint(FORMS) and ({"added", "lost"} <= {c.kind for c in changes} or OPCODE in whats)
    is_gone = {"lost"} == {c.kind for c in changes} & {"added", "lost"}
    deciding = _deciding([c for c in changes if not _follows(c, homes)])
    is_retyped = any(_has(c, TYPE) and _begins(c, homes) and not _follows(c, homes) for c in changes)

    def key(change: Change) -> tuple[float, ...]:
        comes_with = TYPE in whats and _only_casts(change)
        comes_with = comes_with and (is_retyped or not _begins(change, homes) or not _retypes(change, homes))
        replaces = is_replaced and (change.kind in ("added", "lost") or _has(change, OPCODE))
        weighs = replaces and any(map(_is_of_weight, change.sites))
        is_dear = replaces and any(map(_is_expensive, change.sites))
        leads = (turns(change) if is_rewritten else _runs_others(change)) or _is_another_input(change)
        leads = leads or change is deciding or (is_rewritten and any(is_barrier(s.instruction) for s in change.sites))
        is_missed = is_gone and change.kind == "lost" and _is_missed(change.sites[0])
        size = _loop_size(change) if leads and turns(change) else inf
        return not leads, -size, not weighs, comes_with or _follows(change, homes), not is_dear, not is_missed

    return key


def _comes_along(change: Change, homes: Mapping[FlatSite, Change]) -> bool:
    """Whether it is a tuple, such as a loop's, or made of constants, or only moves something that changed: its form is
    another one because another value is in it, or is what reads it."""
    if any(s.instruction.shape.is_tuple for s in change.sites) or _follows(change, homes):
        return True
    return all(_moves(s) for s in change.sites) and not _begins(change, homes)


def _moves(site: FlatSite) -> bool:
    """Whether its elements are those of an operand: a view, a broadcast, a window at one place."""
    spec = find(site.instruction.opcode)
    return _is_window(site) or (spec is not None and spec.kind is OpKind.MOVEMENT)


def _is_window(site: FlatSite) -> bool:
    return read_window(site.instruction) is not None or written_window(site.instruction) is not None


def _deciding(changes: Sequence[Change]) -> Change | None:
    """Of many operations that only came, or only went, the one that decided about most: that others are computed from,
    as where no gradient flows any more, or that others are computed for, as where nothing reads a value any more. None
    where as many of either sort decide about all."""
    found = {site: c for c in changes if c.kind in ("added", "lost") for site in c.sites}
    if len(found) not in MANY or len({c.kind for c in found.values()}) > 1:
        return None
    order = sorted(found, key=lambda site: site.index)  # operands stand before what reads them
    firsts, lasts = _that_reach_most(order[::-1], _readers), _that_reach_most(order, _inputs)
    few, others = sorted((firsts, lasts), key=len)
    return found[few[0]] if FEWER * len(few) <= len(others) else None


def _that_reach_most(order: Sequence[FlatSite], near: Callable[[FlatSite], Iterable[FlatSite]]) -> list[FlatSite]:
    """The sites that reach most of the sites by way of others, the one that reaches most first. In the order, what is
    near comes before."""
    reached: dict[FlatSite, int] = {}
    for number, site in enumerate(order):
        reached[site] = 1 << number
        for other in near(site):
            reached[site] |= reached.get(other, 0)
    chosen: list[FlatSite] = []
    left = (1 << len(order)) - 1
    while left.bit_count() > LEFT_OUT * len(order) and len(chosen) < MOST_CHOSEN:
        chosen.append(max(order, key=lambda site: (reached[site] & left).bit_count()))
        left &= ~reached[chosen[-1]]
    return chosen


def _is_missed(site: FlatSite) -> bool:
    """Whether something that is still there has read it, so that it went for that reason. No gradient is, and nothing
    that reads one that went: it goes where what it is computed from does, as gradients flow from the loss."""
    gone = (site, *(s for s in _inputs(site) if s.partner is None))
    is_gradient = any(GRADIENT in s.instruction.metadata.op_name for s in gone)
    return not is_gradient and any(reader.partner is not None for reader in _readers(site))


def _readers(site: FlatSite) -> Iterable[FlatSite]:
    return (user for user, _, _ in site.users)


def _inputs(site: FlatSite) -> Iterable[FlatSite]:
    return (source for source, _ in site.inputs)


def _is_of_weight(site: FlatSite) -> bool:
    """Whether it is a product, a gather, a collective or the like: what decides about kernels. A window at one place is
    not: where loops keep what a round computes, another value has another window."""
    spec = find(site.instruction.opcode)
    return spec is not None and spec.kind in WEIGHTY and not _is_window(site)


def _is_expensive(site: FlatSite) -> bool:
    """Whether it takes longer than to move an element, such as a tangent."""
    spec = find(site.instruction.opcode)
    return spec is not None and spec.is_expensive(site.instruction)


def turns(change: Change) -> bool:
    """Whether a loop came or went, or runs in another number of rounds: what changed inside comes with that."""
    return _runs_others(change) or _has(change, ROUNDS)


def _loop_size(change: Change) -> float:
    """The operations in a loop that came or went; more than any for one that runs in another number of rounds."""
    return inf if _has(change, ROUNDS) else change.holds


def _has(change: Change, what: str) -> bool:
    """Whether a detail of this name changed."""
    return any(d.what == what for d in change.details)


def _runs_others(change: Change) -> bool:
    """Whether a loop or a branch came or went, by itself or in the place of another operation: the operations in it
    went or came with it."""
    is_other = change.kind in ("added", "lost") or _has(change, OPCODE)
    return is_other and any(is_run(body) for site in change.sites for _, body in site.bodies)


def _follows(change: Change, homes: Mapping[FlatSite, Change]) -> bool:
    """Whether it is an operation on constants alone, or a constant of the same value in another form: where it is
    another one, what reads it made it so. So are a view that was added or lost, and the parameters of a loop that
    changed."""
    site = change.new or change.old
    if site is None:
        return False
    if site.instruction.literal is not None:
        return any(d.what in FORMS for d in change.details)
    if site.instruction.parameter_number is not None:
        return site.scope.owner in homes
    if change.kind in ("added", "lost") and is_view(site.opcode):
        return True
    return site.inputs != () and all(s.instruction.literal is not None for s, _ in site.inputs)


def _begins(change: Change, homes: Mapping[FlatSite, Change]) -> bool:
    """Whether nothing that it reads has changed."""
    return all(near not in homes for site in change.sites for near, _ in site.inputs)


def _is_another_input(change: Change) -> bool:
    """Whether a parameter of the module has another type, shape or layout: all else comes with that."""
    site = change.new
    is_input = site is not None and site.scope.owner is None and site.instruction.parameter_number is not None
    return is_input and any(d.what in FORMS for d in change.details)


def _only_casts(change: Change) -> bool:
    """Whether something was added or lost that gives its operand in another element type: where something is computed
    in another type, this comes with it."""
    site = change.new or change.old
    if site is None or change.kind not in ("added", "lost") or len(site.inputs) != 1:
        return False
    one, other = site.instruction.shape, site.inputs[0][0].instruction.shape
    return one.element_type != other.element_type and one.dimensions == other.dimensions


def _retypes(change: Change, homes: Mapping[FlatSite, Change]) -> bool:
    """Whether something that reads a cast, perhaps through operations of one operand, has another type because of it:
    not where it reads a second operand of another type, which the cast was made to match. Nor does a cast to a wider
    type decide where one to a narrower type of another operand came or went: what is left is promoted."""
    for site in change.sites:
        for reader in _readers(site):
            seen = site
            while (home := homes.get(reader)) is not None and _has(home, TYPE):
                others = [homes.get(s) for s, _ in reader.inputs if s is not seen]
                if any(o is not None and _has(o, TYPE) and not _follows(o, homes) for o in others):
                    break
                if _bits(site) > 0 and any(map(_narrows, _beside(reader, seen, homes))):
                    break
                if len(reader.inputs) > 1 or not reader.users:
                    return True
                seen, reader = reader, reader.users[0][0]
    return False


def _bits(site: FlatSite) -> int:
    """How much wider the elements of a cast are than those that it reads; negative where they are narrower."""
    return site.instruction.shape.type.bits - site.inputs[0][0].instruction.shape.type.bits


def _beside(reader: FlatSite, seen: FlatSite, homes: Mapping[FlatSite, Change]) -> Iterable[Change]:
    """What changed of the other operands of an operation, in either text."""
    texts = [reader] if reader.partner is None else [reader, reader.partner]
    near = (homes.get(s) for text in texts for s in _inputs(text) if s is not seen)
    return (change for change in near if change is not None)


def _narrows(change: Change) -> bool:
    """Whether a cast to a narrower type came or went."""
    return _only_casts(change) and any(_bits(site) < 0 for site in change.sites)
