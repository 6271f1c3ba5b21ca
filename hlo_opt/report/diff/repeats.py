"""Operations of a module that compute what it computes already, where only barriers hide that: how `jax.checkpoint`
keeps a compiler from merging both."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping

from hlo_opt.analysis.graph.compare.flat import Flat, FlatSite, Scope
from hlo_opt.ops.sets import passes_on


def repeats(flat: Flat, sites: Collection[FlatSite]) -> dict[FlatSite, FlatSite]:
    """For those of the sites that compute again what an operation computes that is not among them, this operation.

    Barriers are looked through. Nothing where the module has none, as equal operations are one for a comparison.
    """
    found: dict[FlatSite, FlatSite] = {}
    for scope in flat.scopes.values():
        if any(_is_seen_through(site) for site in scope.sites):
            found |= _in_scope(scope, frozenset(sites))
    return found


def _in_scope(scope: Scope, asked: Collection[FlatSite]) -> Iterable[tuple[FlatSite, FlatSite]]:
    values: dict[tuple[FlatSite, int], tuple[Hashable, int]] = {}
    numbers: dict[Hashable, int] = {}
    alike: dict[int, FlatSite] = {}
    repeated: list[tuple[FlatSite, int]] = []
    for site in scope.sites:
        reads = [_value(values, source, result) for source, result in site.inputs]
        if _is_seen_through(site):
            values |= {(site, result): read for result, read in enumerate(reads)}
            continue
        called = tuple((name, body.number) for name, body in site.bodies)
        key = (site.key, site.instruction.parameter_number, called, *reads)
        number = numbers.setdefault(key, len(numbers))
        values[site, -1] = (number, -1)
        if site in asked:
            repeated.append((site, number))
        elif site.inputs:
            alike.setdefault(number, site)
    return [(site, alike[number]) for site, number in repeated if number in alike]


def _value(
    values: Mapping[tuple[FlatSite, int], tuple[Hashable, int]], site: FlatSite, result: int
) -> tuple[Hashable, int]:
    """The number of a result: of a barrier that of the value that it passes on."""
    passed = values.get((site, result))
    return passed if passed is not None else (values[site, -1][0], result)


def _is_seen_through(site: FlatSite) -> bool:
    return bool(site.inputs) and passes_on(site.opcode)
