"""Which outputs of a module have the memory of which parameters, kept while parameters and outputs go and change their
numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hlo_opt.ir import Attribute, Instruction, Module
from hlo_opt.ops.sets import held
from hlo_opt.text.aliases import ALIASES, Alias, alias_text, aliases_of, subshape


@dataclass(frozen=True)
class Shared:
    """An output, by what gives it and the place in that, and the parameter whose memory it may have."""

    parameter: Instruction
    output: Instruction
    place: tuple[int, ...]
    alias: Alias


def shared_memory(module: Module) -> list[Shared]:
    """What the header says, by instructions. Entries whose place is not there are left out."""
    found = []
    numbered = {p.parameter_number: p for p in module.entry.parameters}
    for alias in aliases_of(module):
        output, place = module.entry.root, alias.output
        elements = held(output)
        if elements is not None and place:
            if not 0 <= place[0] < len(elements):
                continue
            output, place = elements[place[0]], place[1:]
        if alias.parameter in numbered:
            found.append(Shared(numbered[alias.parameter], output, place, alias))
    return found


def share(module: Module, shared: Iterable[Shared]) -> None:
    """Write into the header what still holds: the parameter and the output are there, and as large as each other."""
    root = module.entry.root
    elements = held(root)
    places = {root: ()} if elements is None else {e: (n,) for n, e in reversed(list(enumerate(elements)))}
    parameters = set(module.entry.parameters)
    found: list[Alias] = []
    for one in shared:
        place, number = places.get(one.output), one.parameter.parameter_number
        if place is None or one.parameter not in parameters or number is None:
            continue
        made = Alias((*place, *one.place), number, one.alias.index, one.alias.must)
        shapes = subshape(root.shape, made.output), subshape(one.parameter.shape, made.index)
        sizes = [-1 if s is None else sum(leaf.byte_size for leaf in s.leaves()) for s in shapes]
        if sizes[0] == sizes[1] and sizes[0] >= 0 and all(made.output != other.output for other in found):
            found.append(made)
    module.attributes.pop(ALIASES, None)
    if found:
        module.attributes[ALIASES] = Attribute(alias_text(found))
