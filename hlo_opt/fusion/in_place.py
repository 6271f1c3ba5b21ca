"""Consumers that overwrite one of their operands: a dynamic-update-slice or a scatter at the root.

If a producer that reads the same buffer moves into such a kernel, it may see values that are overwritten already.
Source: xla/service/instruction_fusion.cc, ShouldFuseInPlaceOp; xla/service/gpu/gpu_fusible.cc,
CanEmitInputFusedScatter.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlo_opt.analysis.graph.cluster import Cluster, Node
from hlo_opt.diag import Reason
from hlo_opt.fusion.legality import Edge
from hlo_opt.ir import Instruction, SliceDimension
from hlo_opt.ops.emission import HEROES, XlaEmitter
from hlo_opt.ops.sets import SLICES, UPDATES, is_elementwise, is_view, root_of, tuple_elements


def in_place_conflict(edge: Edge) -> Reason | None:
    """The reason why the consumer could no longer update its operand in place if it computed this producer itself; None
    where it could, or updates nothing in place."""
    if not _may_update(edge.consumer):
        return None
    cluster = edge.state.cluster(edge.consumer)
    for root in cluster.roots:
        if root.is_input or root.opcode not in UPDATES:
            continue
        place = _behind_bitcasts(root.operands[0])
        reason = _conflict(edge, cluster, root, place) if place.is_input else None
        if reason is not None:
            return reason
    return None


def readers_of_updated(cluster: Cluster, kernel: Instruction) -> Iterator[tuple[Instruction, Instruction]]:
    """The buffers that a kernel updates in place, each with a reader of it besides the kernel, also through views."""
    for root in cluster.roots:
        place = _behind_bitcasts(root.operands[0]) if not root.is_input and root.opcode in UPDATES else None
        if place is None or not place.is_input:
            continue
        stack, seen = [place.instruction], set[Instruction]()
        while stack:
            buffer = stack.pop()
            if buffer in seen:
                continue
            seen.add(buffer)
            for user in buffer.users:
                if is_view(user.opcode):
                    stack.append(user)
                elif user is not kernel:
                    yield place.instruction, user
            stack += buffer.operands[:1] if is_view(buffer.opcode) else ()


def _behind_bitcasts(node: Node) -> Node:
    """A bitcast is the same buffer under another shape."""
    while is_view(node.opcode) and not node.is_input:
        node = node.operands[0]
    return node


def _may_update(consumer: Instruction) -> bool:
    root = root_of(consumer)
    return any(r.opcode in UPDATES for r in tuple_elements(root) or [root])


def _conflict(edge: Edge, cluster: Cluster, root: Node, place: Node) -> Reason | None:
    producer = edge.producer
    buffer = place.instruction
    if any(o is place for o in root.operands[1:]):
        return Reason.of("FUS601", consumer=edge.consumer_name, buffer=buffer.name)
    if producer is not buffer and buffer not in producer.operands:
        return None
    odd = [n.instruction for n in edge.state.cluster(producer).members if not _harmless(n)]
    if len(odd) > 1:
        return Reason.of("FUS602", producer=edge.producer_name, count=len(odd))
    others = _other_uses(cluster, place, root)
    if not odd:
        if others:
            return Reason.of("FUS603", consumer=edge.consumer_name, buffer=buffer.name, opcode=others[0].opcode)
        return None
    updates = [r for r in cluster.roots if not r.is_input and HEROES.get(r.opcode) is XlaEmitter.IN_PLACE]
    if not updates:
        return None
    if len(updates) > 1:
        return Reason.of("FUS604", consumer=edge.consumer_name, count=len(updates))
    return _slice_conflict(edge, odd[0], updates[0], others)


def _slice_conflict(edge: Edge, odd: Instruction, update: Node, others: list[Node]) -> Reason | None:
    if odd.opcode not in SLICES:
        return Reason.of("FUS608", producer=edge.producer_name, opcode=odd.opcode, consumer=edge.consumer_name)
    wanted = update.operands[1].shape.dimensions
    if odd.shape.dimensions != wanted or any(d.stride != 1 for d in _slice_dimensions(odd)):
        return Reason.of("FUS605", producer=edge.producer_name, slice=str(odd.shape), update=_sizes(wanted))
    starts = [o.instruction for o in update.operands[2:]]
    if not _slice_dimensions(odd):
        same = all(_same_start(a, b) for a, b in zip(odd.operands[1:], starts, strict=False))
    else:
        same = all(_constant(s) == d.start for s, d in zip(starts, _slice_dimensions(odd), strict=False))
    if not same:
        return Reason.of("FUS606", producer=edge.producer_name, consumer=edge.consumer_name)
    if others:
        return Reason.of("FUS607", consumer=edge.consumer_name, opcode=others[0].opcode)
    return None


def _harmless(node: Node) -> bool:
    return is_view(node.opcode) or node.instruction.literal is not None or is_elementwise(node.instruction)


def _other_uses(cluster: Cluster, place: Node, root: Node) -> list[Node]:
    """Members other than the update itself that read the buffer at other places than they write."""
    uses: list[Node] = []
    todo = list(place.users)
    while todo:
        user = todo.pop()
        if is_view(user.opcode):
            todo.extend(user.users)
        elif user is not root and not is_elementwise(user.instruction):
            uses.append(user)
    return uses


def _slice_dimensions(instruction: Instruction) -> tuple[SliceDimension, ...]:
    """What a slice takes of each dimension; empty for a dynamic-slice."""
    return instruction.attribute("slice", tuple) if "slice" in instruction.attributes else ()


def _sizes(dimensions: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, dimensions))}]"


def _same_start(one: Instruction, other: Instruction) -> bool:
    if one is other:
        return True
    left, right = _constant(one), _constant(other)
    return left is not None and left == right


def _constant(start: Instruction) -> int | None:
    """The value of a constant scalar start; None where the start is no constant, or is elided."""
    literal = start.literal
    if literal is None or literal.is_elided:
        return None
    assert not isinstance(literal.value, tuple)
    return int(literal.value)


def scatter_conflict(edge: Edge) -> Reason | None:
    """A scatter takes producers into its indices and updates only, and nothing takes a scatter."""
    state = edge.state
    if edge.above.scatters:
        return Reason.of("FUS609", producer=edge.producer_name)
    if not edge.below.scatters:
        return None
    cluster = state.cluster(edge.consumer)
    for node in cluster.members:
        if HEROES.get(node.opcode) is not XlaEmitter.SCATTER:
            continue
        for operand in node.operands[: len(node.operands) // 2]:
            if operand.instruction is edge.producer or operand.instruction in edge.producer.operands:
                return Reason.of("FUS610", producer=edge.producer_name, scatter=node.instruction.name)
    return None
