"""A cluster: what one kernel computes, as a small graph, without building a computation for it.

A candidate fusion is judged on the cluster of its parts; nothing is cloned until it is accepted.
"""

from __future__ import annotations

from collections.abc import Iterable

from hlo_opt.ir import Instruction, Shape


class Node:
    """An instruction inside a cluster. An input stands for a value of the surrounding computation and has no operands here."""

    __slots__ = ("instruction", "is_input", "operands", "users")

    def __init__(self, instruction: Instruction, operands: tuple[Node, ...], *, is_input: bool = False) -> None:
        self.instruction = instruction
        self.operands = operands
        self.users: list[Node] = []
        self.is_input = is_input
        if len(operands) == 1:
            operands[0].users.append(self)
        else:
            for operand in dict.fromkeys(operands):
                operand.users.append(self)

    @property
    def opcode(self) -> str:
        return self.instruction.opcode

    @property
    def shape(self) -> Shape:
        return self.instruction.shape

    def __repr__(self) -> str:
        return f"<{'input' if self.is_input else 'node'} {self.instruction.name}>"


class Cluster:
    """Nodes (operands before users, inputs among them) and the roots that the kernel writes."""

    __slots__ = ("_opcodes", "inputs", "nodes", "roots")

    def __init__(self, nodes: list[Node], roots: list[Node]) -> None:
        self.nodes = nodes
        self.roots = roots
        self.inputs: dict[Instruction, Node] = {n.instruction: n for n in nodes if n.is_input}
        self._opcodes: frozenset[str] | None = None

    @property
    def members(self) -> Iterable[Node]:
        """The nodes that are computed, without the inputs."""
        return (n for n in self.nodes if not n.is_input)

    @property
    def opcodes(self) -> frozenset[str]:
        """Of the members. Most questions about a kernel are answered by what it does not hold."""
        if self._opcodes is None:
            self._opcodes = frozenset([n.instruction.opcode for n in self.nodes if not n.is_input])
        return self._opcodes


def cluster_of(instruction: Instruction) -> Cluster:
    """The cluster of an instruction: the instruction alone, or what a fusion holds. A tuple at a fusion's root gives several roots."""
    inputs: dict[Instruction, Node] = {}
    nodes: list[Node] = []
    for operand in instruction.operands:
        if operand not in inputs:
            inputs[operand] = Node(operand, (), is_input=True)
            nodes.append(inputs[operand])
    if instruction.opcode != "fusion":
        node = Node(instruction, tuple(inputs[o] for o in instruction.operands))
        return Cluster([*nodes, node], [node])
    body = instruction.called_by("calls")
    made: dict[Instruction, Node] = {}
    for member in operands_first(body.root):
        if member.parameter_number is not None:
            made[member] = inputs[instruction.operands[member.parameter_number]]
        elif member is body.root and member.opcode == "tuple":
            return Cluster(nodes, [made[o] for o in member.operands])
        else:
            made[member] = Node(member, tuple(made[o] for o in member.operands))
            nodes.append(made[member])
    return Cluster(nodes, [made[body.root]])


def operands_first(root: Instruction) -> list[Instruction]:
    """The instructions that a root needs, operands first, whatever order its computation is in."""
    seen: set[Instruction] = set()
    found: dict[Instruction, None] = {}
    stack = [root]
    while stack:
        instruction = stack[-1]
        if instruction in seen:
            found[instruction] = None
            stack.pop()
            continue
        seen.add(instruction)
        operands = instruction.operands
        if len(operands) == 1:
            if operands[0] not in seen:
                stack.append(operands[0])
        else:
            stack.extend([o for o in reversed(operands) if o not in seen])
    return list(found)


def merge(producer: Instruction, consumer: Instruction, *, keep_producer: bool = False) -> Cluster:
    """The cluster of a producer fused into a consumer that reads it; with `keep_producer` its roots are written too."""
    return merge_clusters(cluster_of(producer), cluster_of(consumer), producer, keep_producer=keep_producer)


def merge_clusters(above: Cluster, below: Cluster, producer: Instruction, *, keep_producer: bool = False) -> Cluster:
    """As `merge`, from the clusters of the producer and of the consumer."""
    nodes: list[Node] = []
    inputs: dict[Instruction, Node] = {}
    copies: dict[Node, Node] = {}

    def take(node: Node) -> Node:
        if node.is_input:
            if node.instruction not in inputs:
                inputs[node.instruction] = Node(node.instruction, (), is_input=True)
                nodes.append(inputs[node.instruction])
            return inputs[node.instruction]
        made = Node(node.instruction, tuple(copies[o] for o in node.operands))
        nodes.append(made)
        return made

    for node in above.nodes:
        copies[node] = take(node)
    root = copies[above.roots[0]]
    for node in below.nodes:
        copies[node] = root if node.is_input and node.instruction is producer else take(node)
    roots = [copies[r] for r in below.roots]
    if keep_producer:
        roots.extend(copies[r] for r in above.roots)
    return Cluster(nodes, roots)
