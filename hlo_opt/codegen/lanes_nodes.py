"""What the statements of lanes are made into: loops over lanes, what stands around these, and what is the same for all
lanes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from hlo_opt.codegen.lanes_cuts import parts_by_weight, parts_of, reads_apart
from hlo_opt.codegen.lanes_halves import Halves
from hlo_opt.codegen.lanes_text import declared_in
from hlo_opt.codegen.lanes_turns import Turns
from hlo_opt.codegen.tree import Assign, Let, Statement, names_in, walk
from hlo_opt.ops.code import Code, Name, of


@dataclass(eq=False)
class Stretch:
    """What lanes do side by side. With `sums`, it is a loop that adds to these along a row, lane after lane. With
    `ends`, a condition under which a lane needs no further round: the loop around ends once it holds for all."""

    items: list[Statement] = field(default_factory=list)
    sums: Sequence[Name] = ()
    ends: Code | None = None

    @property
    def is_closed(self) -> bool:
        """Whether nothing may be added."""
        return bool(self.sums) or self.ends is not None

    @property
    def names(self) -> Set[Name]:
        """The names that it mentions."""
        return names_in(self.items) | (set() if self.ends is None else set(self.ends.names()))


@dataclass(eq=False)
class Around:
    header: str
    inside: list[Node]
    is_condition: bool = False
    is_loop: bool = False


Node = Stretch | Around | Turns | Halves | str
"""A string is a declaration that is the same for all lanes."""


def changes(node: Node, name: Name) -> bool:
    """Whether a variable gets a new value there."""
    if isinstance(node, Around):
        return any(changes(inner, name) for inner in node.inside)
    items = walk(node.items) if isinstance(node, Stretch) else ()
    return any(isinstance(s, Assign) and s.target.name == name for s in items)


def known_turns(angle: Name, nodes: Sequence[Node]) -> Turns | None:
    """The known result for an angle that has not changed since."""
    for node in reversed(nodes):
        if isinstance(node, Turns) and node.angle == angle.text:
            return node
        if changes(node, angle):
            break
    return None


def turned(function: str, angle: Name, nodes: list[Node], homes: Mapping[str, Stretch], name: Name) -> Code:
    """A function of a lane's angle, found for all lanes before the stretch at hand, or behind what makes the angle;
    called `name` if it is the first such."""
    turns = known_turns(angle, nodes)
    if turns is None:
        turns, last = Turns(angle.text), nodes[-1]
        is_later = isinstance(last, Stretch) and (homes[angle.text] is last or changes(last, angle))
        nodes.insert(len(nodes) - (isinstance(last, Stretch) and not is_later), turns)
    return of(turns.results.setdefault(function, name))


def names_of(node: Node) -> set[str]:
    """The variables of lanes that a node itself declares or mentions."""
    match node:
        case Stretch():
            return {name.text for name in node.names} | declared_in(node.items)
        case Halves():
            return {node.name.text}
        case Turns():
            return {node.angle, *(name.text for name in node.results.values())}
    return set()


def has_condition(nodes: Sequence[Node]) -> bool:
    return any(isinstance(node, Around) and (node.is_condition or has_condition(node.inside)) for node in nodes)


def cut(nodes: list[Node], read_by: Callable[[Statement], Name | None], *, is_hot: bool = False) -> dict[str, Stretch]:
    """Cut what lanes do into short stretches, the shortest in the rounds of a loop; `read_by` as in `reads_apart`.
    Gives where variables are then declared."""
    homes: dict[str, Stretch] = {}
    result: list[Node] = []
    for node in nodes:
        if isinstance(node, Around):
            homes |= cut(node.inside, read_by, is_hot=is_hot or node.is_loop)
        if isinstance(node, Stretch) and not node.is_closed:
            pieces = (parts_of if is_hot else parts_by_weight)(node.items)
            parts = [Stretch(part) for piece in pieces for part in reads_apart(piece, read_by)]
            homes.update((s.name.text, part) for part in parts for s in part.items if isinstance(s, Let))
            result += parts
        else:
            result.append(node)
    nodes[:] = result
    return homes
