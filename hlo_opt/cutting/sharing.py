"""The parameters whose memory the outputs of a module share, kept while cuts remove and renumber both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hlo_opt.ir import Attribute, Instruction, Module
from hlo_opt.ops.sets import tuple_elements
from hlo_opt.text.aliases import ALIASES, Alias, alias_text, aliases_of, subshape


@dataclass(frozen=True)
class Shared:
    """An output, by the instruction that computes it and the place in its tuple, and the parameter whose memory it
    shares."""

    parameter: Instruction
    output: Instruction
    place: tuple[int, ...]
    alias: Alias


def shared_memory(module: Module) -> list[Shared]:
    """The aliases of the header, by instructions. An alias of a place that does not exist is left out."""
    shared = []
    numbered = {p.parameter_number: p for p in module.entry.parameters}
    for alias in aliases_of(module):
        output, place = module.entry.root, alias.output
        elements = tuple_elements(output)
        if elements is not None and place:
            if not 0 <= place[0] < len(elements):
                continue
            output, place = elements[place[0]], place[1:]
        if alias.parameter in numbered:
            shared.append(Shared(numbered[alias.parameter], output, place, alias))
    return shared


def share(module: Module, shared: Iterable[Shared]) -> None:
    """Write to the header the aliases that still hold: parameter and output exist and have equal byte sizes."""
    root = module.entry.root
    elements = tuple_elements(root)
    places = {root: ()} if elements is None else {e: (n,) for n, e in reversed(list(enumerate(elements)))}
    parameters = set(module.entry.parameters)
    aliases: list[Alias] = []
    for one in shared:
        place, number = places.get(one.output), one.parameter.parameter_number
        if place is None or one.parameter not in parameters or number is None:
            continue
        alias = Alias((*place, *one.place), number, one.alias.index, one.alias.must)
        shapes = subshape(root.shape, alias.output), subshape(one.parameter.shape, alias.index)
        sizes = [-1 if s is None else sum(leaf.byte_size for leaf in s.leaves()) for s in shapes]
        if sizes[0] == sizes[1] and sizes[0] >= 0 and all(alias.output != other.output for other in aliases):
            aliases.append(alias)
    module.attributes.pop(ALIASES, None)
    if aliases:
        module.attributes[ALIASES] = Attribute(alias_text(aliases))
