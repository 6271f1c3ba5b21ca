"""A cluster: what one kernel computes, as a small graph, without a computation of its own.

Candidate fusions are judged on clusters; nothing is cloned until one is accepted. When a fusion grows, its cluster is
not rebuilt: a producer replaces an input (`Cluster.absorb`), and facts about the cluster are updated (`Follower`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.walk import operands_first, reached
from hlo_opt.ops.emission import HEROES, NOTABLE, XlaEmitter, emitters_of
from hlo_opt.ops.sets import fused, is_view, results_of, tuple_index


class Node:
    """An instruction inside a cluster. An input stands for a value from outside and has no operands here."""

    __slots__ = ("instruction", "is_input", "operands", "users")

    def __init__(self, instruction: Instruction, operands: tuple[Node, ...], *, is_input: bool = False) -> None:
        self.instruction = instruction
        self.users: list[Node] = []
        self.is_input = is_input
        self.take(operands)

    def take(self, operands: tuple[Node, ...]) -> None:
        """Set the operands, and register as their user."""
        self.operands = operands
        if len(operands) == 1:
            operands[0].users.append(self)
        elif operands:
            for operand in dict.fromkeys(operands):
                operand.users.append(self)

    @property
    def opcode(self) -> str:
        return self.instruction.opcode

    @property
    def shape(self) -> Shape:
        return self.instruction.shape

    @property
    def emitter(self) -> XlaEmitter | None:
        """The emitter of which it can be the hero."""
        return HEROES.get(self.instruction.opcode)

    @property
    def is_view(self) -> bool:
        """Whether it reinterprets its operand's memory in another shape."""
        return is_view(self.instruction.opcode)

    def __repr__(self) -> str:
        return f"<{'input' if self.is_input else 'node'} {self.instruction.name}>"


class Follower(Protocol):
    """A fact about every node that depends on its users, so that it can be updated while the cluster grows."""

    def spread(self, nodes: list[Node], inputs: list[Node]) -> None:
        """Process new members (at first all), users before operands, and new inputs. The first member may have been an
        input."""

    def fits(self, above: Follower, place: Node) -> bool:
        """Whether facts about a producer's cluster remain valid where it replaces the input `place`."""

    def adopt(self, above: Follower, root: Node, place: Node, inputs: Mapping[Node, Node]) -> None:
        """Adopt the facts about a producer's cluster. `place` now stands for its root; `inputs` maps its inputs to
        nodes here.

        The producer's own follower is not used again.
        """


F = TypeVar("F", bound=Follower)

ADOPTED = 4
"""Producers with at least this many members are merged together with their facts; smaller ones are reprocessed."""

WORTH_KEEPING = 32
"""Facts about a producer with at least this many members are kept even if the consumer does not have them yet."""


class Cluster:
    """Nodes (operands before users, inputs among them) and the roots that the kernel writes. Inputs may become
    unused."""

    __slots__ = ("_followers", "_notable", "_opcodes", "_starts", "_users_first", "inputs", "roots")

    def __init__(self, nodes: Iterable[Node], roots: list[Node]) -> None:
        self.roots = roots
        self.inputs: dict[Instruction, Node] = {}
        self._users_first: list[Node] = []
        for node in nodes:
            if node.is_input:
                self.inputs[node.instruction] = node
            else:
                self._users_first.append(node)
        self._users_first.reverse()
        self._opcodes: frozenset[str] | None = None
        self._notable: list[Node] | None = None
        self._followers: dict[type[Follower], Follower] = {}
        self._starts: dict[type[Follower], Callable[[Cluster], Follower]] = {}

    @property
    def nodes(self) -> list[Node]:
        """Inputs and members, operands before users."""
        return [*self.inputs.values(), *reversed(self._users_first)]

    @property
    def members(self) -> Iterable[Node]:
        """The computed nodes, without inputs, operands before users."""
        return reversed(self._users_first)

    @property
    def users_first(self) -> list[Node]:
        """The members, users before operands."""
        return self._users_first

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self._users_first)

    def outweighs(self, consumer: int) -> bool:
        """Whether to keep facts about this producer when it merges into a consumer of this size that lacks them."""
        return self.size >= max(consumer, WORTH_KEEPING)

    @property
    def opcodes(self) -> frozenset[str]:
        """The members' opcodes. Most questions about a kernel are answered by what it does not contain."""
        if self._opcodes is None:
            self._opcodes = frozenset([n.instruction.opcode for n in self._users_first])
        return self._opcodes

    @property
    def emitters(self) -> frozenset[XlaEmitter]:
        """The emitters of which members can be heroes."""
        return emitters_of(self.opcodes)

    @property
    def notable(self) -> list[Node]:
        """The members with `NOTABLE` opcodes, users before operands."""
        if self._notable is None:
            if NOTABLE.isdisjoint(self.opcodes):
                self._notable = []
            else:
                self._notable = [n for n in self._users_first if n.instruction.opcode in NOTABLE]
        return self._notable

    def following(self, key: type[Follower], start: Callable[[Cluster], F]) -> F:
        """The follower of a class: created on first use, updated from then on."""
        follower = self._followers.get(key)
        if follower is None:
            follower = self._followers[key] = start(self)
            self._starts[key] = start
            follower.spread(self._users_first, list(self.inputs.values()))
        return follower  # type: ignore[return-value]

    def absorb(self, producer: Instruction, above: Cluster, moved: Mapping[Instruction, Instruction]) -> bool:
        """Make the members of a producer, so far an input, members of this cluster. `moved` maps copied instructions.

        The producer's cluster must not be used afterwards unless all its instructions were copied.
        Returns False without changes where the producer returns an input, has several results, or is not read: then the
        cluster must be rebuilt.
        """
        root = above.roots[0]
        place = self.inputs[producer]
        if root.is_input or len(above.roots) > 1 or not (place.users or place in self.roots):
            return False
        if above.outweighs(self.size):
            for key in [k for k in above._followers if k not in self._followers]:
                self.following(key, above._starts[key])
        if (
            above.size >= ADOPTED
            and not moved
            and all(
                known.fits(above.following(key, self._starts[key]), place) for key, known in self._followers.items()
            )
        ):
            self._adopt(producer, place, above, root)
            return True
        del self.inputs[producer]
        inside: dict[Node, Node] = {}
        new_inputs: list[Node] = []
        for instruction, node in above.inputs.items():
            known = self.inputs.get(instruction)
            if known is None:
                known = self.inputs[instruction] = Node(instruction, (), is_input=True)
                new_inputs.append(known)
            inside[node] = known
        new: list[Node] = []
        for node in above.members:
            operands = tuple([inside[o] for o in node.operands])
            mapped = moved.get(node.instruction, node.instruction)
            if node is root:
                place.instruction, place.is_input = mapped, False
                place.take(operands)
                inside[node] = place
            else:
                inside[node] = Node(mapped, operands)
            new.append(inside[node])
        new.reverse()
        self._add(above, new)
        for follower in self._followers.values():
            follower.spread(new, new_inputs)
        return True

    def _add(self, above: Cluster, new: list[Node]) -> None:
        self._users_first.extend(new)
        if self._opcodes is not None and not self._opcodes.issuperset(above.opcodes):
            self._opcodes |= above.opcodes
        if self._notable is not None and above.notable:
            self._notable.extend(n for n in new if n.instruction.opcode in NOTABLE)

    def _adopt(self, producer: Instruction, place: Node, above: Cluster, root: Node) -> None:
        """Reuse the nodes of a producer, except its root and the inputs that exist already; others cost no time."""
        del self.inputs[producer]
        inputs: dict[Node, Node] = {}
        for instruction, node in above.inputs.items():
            known = inputs[node] = self.inputs.setdefault(instruction, node)
            if known is not node:
                for user in node.users:
                    user.operands = tuple([known if o is node else o for o in user.operands])
                known.users.extend(u for u in node.users if u is not root)
        place.instruction, place.is_input = root.instruction, False
        place.operands = root.operands
        for operand in dict.fromkeys(root.operands):
            if root in operand.users:
                operand.users[operand.users.index(root)] = place
            else:
                operand.users.append(place)
        self._add(above, [place, *above.users_first[1:]])
        for key, follower in self._followers.items():
            follower.adopt(above._followers[key], root, place, inputs)

    def rename(self, old: Instruction, new: Instruction) -> None:
        """Replace the instruction of an input."""
        self.inputs = {new if i is old else i: node for i, node in self.inputs.items()}
        self.inputs[new].instruction = new


def cluster_of(instruction: Instruction) -> Cluster:
    """The cluster of an instruction alone, or of a fusion's computation. A root tuple gives several roots."""
    inputs: dict[Instruction, Node] = {}
    nodes: list[Node] = []
    for operand in instruction.operands:
        if operand not in inputs:
            inputs[operand] = Node(operand, (), is_input=True)
            nodes.append(inputs[operand])
    body = fused(instruction)
    if body is None:
        node = Node(instruction, tuple([inputs[o] for o in instruction.operands]))
        return Cluster([*nodes, node], [node])
    node_of: dict[Instruction, Node] = {}
    results = results_of(body)
    for member in operands_first(results):
        if member.parameter_number is not None:
            node_of[member] = inputs[instruction.operands[member.parameter_number]]
        else:
            node_of[member] = Node(member, tuple([node_of[o] for o in member.operands]))
            nodes.append(node_of[member])
    return Cluster(nodes, [node_of[r] for r in results])


def merge_clusters(above: Cluster, below: Cluster, producer: Instruction, *, keep_producer: bool = False) -> Cluster:
    """The cluster of a producer fused into a consumer; with `keep_producer`, the producer's roots are written too."""
    nodes: list[Node] = []
    inputs: dict[Instruction, Node] = {}
    copies: dict[Node, Node] = {}

    def take(node: Node) -> Node:
        if node.is_input:
            if node.instruction not in inputs:
                inputs[node.instruction] = Node(node.instruction, (), is_input=True)
                nodes.append(inputs[node.instruction])
            return inputs[node.instruction]
        copy = Node(node.instruction, tuple([copies[o] for o in node.operands]))
        nodes.append(copy)
        return copy

    for node in above.nodes:
        copies[node] = take(node)
    root = copies[above.roots[0]]
    for node in below.nodes:
        copies[node] = root if node.is_input and node.instruction is producer else take(node)
    roots = [copies[r] for r in below.roots]
    if keep_producer:
        roots.extend(copies[r] for r in above.roots)
    return Cluster(nodes, roots)


def merge_elements(
    above: Cluster, below: Cluster, ways: Mapping[Instruction, Sequence[Instruction]], written: Iterable[Instruction]
) -> Cluster:
    """The cluster of a producer (with one or several results) fused into a consumer.

    `ways` maps each operand of the consumer that comes from the producer to the path to it: from a get-tuple-element,
    where there is one, to the operand itself. `written` lists the producer's elements (or itself) that remain results.
    """
    nodes: list[Node] = []
    inputs: dict[Instruction, Node] = {}
    copies: dict[Node, Node] = {}
    handed: dict[Instruction, Node] = {}
    is_whole = above.roots[0].shape.is_tuple  # one operation with a tuple result, not several roots

    def element_of(way: Sequence[Instruction]) -> int | None:
        return None if is_whole or not way else tuple_index(way[0])

    def take(node: Node) -> Node:
        if node.is_input:
            known = inputs.get(node.instruction)
            if known is None:
                known = inputs[node.instruction] = Node(node.instruction, (), is_input=True)
                nodes.append(known)
            return known
        copy = Node(node.instruction, tuple([copies[o] for o in node.operands]))
        nodes.append(copy)
        return copy

    def hand_on(way: Sequence[Instruction]) -> Node:
        element = element_of(way)
        value = copies[above.roots[element or 0]]
        for step in way if element is None else way[1:]:
            if step not in handed:
                handed[step] = Node(step, (value,))
                nodes.append(handed[step])
            value = handed[step]
        return value

    elements = {element_of(way) for way in ways.values()} | {element_of([w]) for w in written}
    needed = reached(
        above.roots if None in elements else [above.roots[e] for e in elements if e is not None],
        lambda node: node.operands,
    )
    for node in above.nodes:
        if node in needed:  # nobody reads the producer's other elements
            copies[node] = take(node)
    for node in below.nodes:
        way = ways.get(node.instruction) if node.is_input else None
        copies[node] = take(node) if way is None else hand_on(way)
    kept = [hand_on([w]) if tuple_index(w) is not None else None for w in written]
    roots = [copies[r] for r in below.roots]
    for value in kept:
        roots += [copies[r] for r in above.roots] if value is None else [value]
    return Cluster(nodes, list(dict.fromkeys(roots)))


def side_by_side(*parts: Cluster) -> Cluster:
    """The union of clusters that do not read each other, with shared inputs."""
    nodes: list[Node] = []
    inputs: dict[Instruction, Node] = {}
    roots: list[Node] = []
    for part in parts:
        copies: dict[Node, Node] = {}
        for node in part.nodes:
            known = inputs.get(node.instruction) if node.is_input else None
            if known is None:
                known = Node(node.instruction, tuple(copies[o] for o in node.operands), is_input=node.is_input)
                nodes.append(known)
                if node.is_input:
                    inputs[node.instruction] = known
            copies[node] = known
        roots.extend(copies[r] for r in part.roots)
    return Cluster(nodes, roots)
