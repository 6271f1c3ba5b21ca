"""Which inputs one of two modules gives away, and the other does not: what the headers say, by the names of the inputs.
An input may have another number in the other module."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_opt.analysis.graph.compare.flat import FlatSite
from hlo_opt.analysis.graph.compare.matching import Matched
from hlo_opt.ir import Module
from hlo_opt.report.page import count, size
from hlo_opt.text.aliases import TuplePath, aliases_of, subshape

NAMED = 3
"""Inputs that are named."""

InputPath = tuple[int, TuplePath]
"""An input, or an array of one: the parameter's number and the shape index in it."""


def donated_by_one(matched: Matched) -> tuple[str, str] | None:
    """How many inputs each gives away, with those that only one does; None where these are the same."""
    lost, gained = _by_one(matched)
    if not lost and not gained:
        return None
    old, new = matched.old.module, matched.new.module
    return _listed(old, lost), _listed(new, gained)


def inputs_donated_by_one(matched: Matched) -> Iterator[FlatSite]:
    """The inputs that only one of both gives away."""
    for flat, places in zip((matched.old, matched.new), _by_one(matched), strict=True):
        numbers = {number for number, _ in places}
        for site in flat.entry.sites:
            if site.instruction.parameter_number in numbers:
                yield site
                if site.partner is not None:
                    yield site.partner


def _by_one(matched: Matched) -> tuple[list[InputPath], list[InputPath]]:
    """What the old module alone gives away, and what the new one does."""
    numbers = {
        s.instruction.parameter_number: s.partner.instruction.parameter_number
        for s in matched.old.entry.sites
        if s.partner is not None and s.instruction.parameter_number is not None
    }
    old, new = ([(a.parameter, a.index) for a in aliases_of(f.module)] for f in (matched.old, matched.new))
    there = {place: (numbers.get(place[0]), place[1]) for place in old}
    return [p for p in old if there[p] not in new], [p for p in new if p not in there.values()]


def _listed(module: Module, only: list[InputPath]) -> str:
    total = count(len(aliases_of(module)))
    if not only:
        return total
    parameters = module.entry.parameters
    shapes = [subshape(parameters[number].shape, index) for number, index in only]
    names = [f"`{parameters[number].name}`" for number, _ in only[:NAMED]]
    if len(only) > NAMED:
        names.append(f"{count(len(only) - NAMED)} more")
    return f"{total}, with {', '.join(names)} ({size(sum(s.byte_size for s in shapes if s is not None))})"
