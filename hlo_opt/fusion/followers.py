"""Facts about the nodes of a kernel that depend on their users, kept up while the kernel grows
(`hlo_opt.analysis.graph.cluster.Follower`)."""

from __future__ import annotations

from collections.abc import Mapping

from hlo_opt.analysis.graph.cluster import Cluster, Follower, Node
from hlo_opt.fusion.traits import is_long_window
from hlo_opt.ir import Instruction
from hlo_opt.ops.emission import HEROES, XlaEmitter
from hlo_opt.ops.sets import reuses_elements

_Users = dict[Node | None, None]
"""The users that compute an index of their own on the way from a value to the results; None stands for the kernel
itself."""


class Emissions:
    """How often the code of each operand would be emitted in a kernel if the operand were fused: once for each user
    inside that computes an index of its own, as often as that user is emitted.

    Source: xla/service/fusion_node_indexing_evaluation.cc. Users that keep the shape (and transposes) share their
    users' indices.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._users: dict[Node, _Users] = {root: {None: None} for root in cluster.roots}
        self._counts: dict[Node | None, int] = {None: 1}
        self._own = set(cluster.roots)  # the others share what they have with a user, until they need more

    def of(self, operand: Instruction) -> int:
        """The count for an operand of the kernel; 0 for what it does not read."""
        node = self._cluster.inputs.get(operand)
        return 0 if node is None else sum([self._counts[user] for user in self._users.get(node, ())])

    def spread(self, nodes: list[Node], inputs: list[Node]) -> None:
        users, own, counts = self._users, self._own, self._counts
        for node in nodes:
            mine = users.setdefault(node, {})
            counts[node] = sum([counts[user] for user in mine])
            shape, is_transpose = node.instruction.shape, HEROES.get(node.instruction.opcode) is XlaEmitter.TRANSPOSE
            for operand in node.operands:
                there = users.get(operand)
                operand_shape = operand.instruction.shape
                same_index = operand_shape is shape or is_transpose or operand_shape == shape
                if there is None and same_index:
                    users[operand] = mine
                    continue
                if there is mine and same_index:
                    continue
                if there is None or operand not in own:
                    own.add(operand)
                    there = users[operand] = {} if there is None else dict(there)
                there.update(mine if same_index else {node: None})

    def fits(self, above: Follower, place: Node) -> bool:
        """What is emitted once is emitted as it is by itself."""
        return sum([self._counts[user] for user in self._users.get(place, ())]) == 1

    def adopt(self, above: Follower, root: Node, place: Node, inputs: Mapping[Node, Node]) -> None:
        assert isinstance(above, Emissions)
        below = self._users[place]
        self._counts[place] = 1
        for old, new in inputs.items():
            mine: _Users = {}
            for user in above._users.get(old, ()):
                if user is None:
                    mine.update(below)
                elif user is root:
                    mine[place] = None
                else:
                    mine[user] = None
                    self._counts[user] = above._counts[user]
            self._users[new] = self._users.get(new, {}) | mine
            self._own.add(new)


class Below:
    """What lies between each node of a kernel and its results, kept up while the kernel grows."""

    def __init__(self, cluster: Cluster) -> None:
        self.reusing: dict[Node, Node | None] = {}
        """A user, direct or not, that reads an element of its operand several times."""
        self.reusing_once_per_row: dict[Node, Node | None] = {}
        """The same, where no way leads through a reduction: a row kernel computes its result once."""
        self.enlarging: dict[Node, Node | None] = {}
        """A user, direct or not, that makes more elements out of fewer."""

    def spread(self, nodes: list[Node], inputs: list[Node]) -> None:
        for node in nodes:
            instruction = node.instruction
            beyond = self.reusing.get(node), self.reusing_once_per_row.get(node), self.enlarging.get(node)
            for position, operand in enumerate(node.operands):
                reuses = reuses_elements(instruction, position) and not is_long_window(instruction)
                direct = node if reuses else None
                if self.reusing.get(operand) is None:
                    self.reusing[operand] = direct or beyond[0]
                if self.reusing_once_per_row.get(operand) is None:
                    self.reusing_once_per_row[operand] = direct or (
                        None if HEROES.get(instruction.opcode) is XlaEmitter.REDUCTION else beyond[1]
                    )
                if self.enlarging.get(operand) is None:
                    self.enlarging[operand] = node if _enlarges(node, operand) else beyond[2]

    def fits(self, above: Follower, place: Node) -> bool:
        """Where a way from the producer's operands to its result leads through a reduction is not kept."""
        return self.reusing_once_per_row.get(place) is None

    def adopt(self, above: Follower, root: Node, place: Node, inputs: Mapping[Node, Node]) -> None:
        assert isinstance(above, Below)
        for name in ("reusing", "reusing_once_per_row", "enlarging"):
            mine, theirs = getattr(self, name), getattr(above, name)
            for old, new in inputs.items():
                if old in theirs and mine.get(new) is None:
                    mine[new] = theirs[old] or mine.get(place)


def _enlarges(user: Node, operand: Node) -> bool:
    if user.opcode in ("broadcast", "gather"):
        return user.shape.element_count > operand.shape.element_count
    return user.opcode == "reduce-window"
