"""Bounds of the size of a kernel's code that are kept up while the kernel grows: most kernels that two would become are
seen to be within the limits (`hlo_opt.plans.limits`) without being made."""

from __future__ import annotations

from collections.abc import Mapping

from hlo_opt.analysis.graph.cluster import Cluster, Follower, Node
from hlo_opt.ir import Instruction
from hlo_opt.ops.lowering import Elementwise
from hlo_opt.ops.spec import find
from hlo_opt.plans.limits import DEEPEST, LARGEST, is_direct, nesting, same_index

_Indices = frozenset[object]
"""Marks of the different indices at which a value is computed: those of one value do not equal each other."""

_ONE_ELEMENT: _Indices = frozenset({()})


class CodeSize:
    """What a kernel's code adds up to, as `nesting` and `values_computed` count it; both are upper bounds. Above the
    limit of values, and without `has_texts`, nothing is counted any more.

    depth      how deep it nests
    values     how many values its members compute per element
    has_texts  whether kernels of any kind compute an element of each member by a text of its own: no member needs a
               kind of its own or stands for others
    """

    def __init__(self, cluster: Cluster) -> None:
        self.depth = 0
        self.values = 0
        self.has_texts = True
        self._indices: dict[Node, _Indices] = {root: frozenset({root}) for root in cluster.roots}
        self._nested: dict[Node, int] = {}
        """How deep the code nests between a value and the results."""

    @property
    def _is_full(self) -> bool:
        return self.values > LARGEST or not self.has_texts

    def times(self, place: Node) -> int:
        """At how many indices a kernel computes an operand, at most."""
        return len(self._indices.get(place, ()))

    def nested(self, place: Node) -> int:
        """How deep the code nests between an operand and the results."""
        return self._nested.get(place, 0)

    def spread(self, nodes: list[Node], inputs: list[Node]) -> None:
        indices, nested = self._indices, self._nested
        for node in nodes:
            if self._is_full:
                break
            mine, depth = indices.get(node), nested.get(node, 0)
            if mine is None:  # no result needs it
                continue
            instruction = node.instruction
            self.values += len(mine)
            called = instruction.called() if instruction.attributes else ()
            self.depth = max([self.depth, depth, *[depth + 1 + nesting(c) for c in called]])
            spec = find(instruction.opcode)
            if instruction.literal is None and (spec is None or spec.cuda is None or spec.is_library):
                self.has_texts = False
            at_index = spec is not None and isinstance(spec.cuda, Elementwise)
            for number, operand in enumerate(node.operands):
                shape = operand.instruction.shape
                if shape.is_array and not shape.rank:
                    there = _ONE_ELEMENT
                elif at_index or same_index(instruction, number):
                    there = mine
                else:
                    there = frozenset([(node, number, hash(index)) for index in mine])
                known = indices.get(operand)
                indices[operand] = there if known is None or known is there else known | there
                below = depth + (not at_index and not is_direct(instruction, number))
                if below > nested.get(operand, -1):
                    nested[operand] = below
                    self.depth = max(self.depth, below)

    def fits(self, above: Follower, place: Node) -> bool:
        """What is computed at one index, before all that nests, is computed as it is by itself."""
        return self._is_full or (self.times(place) == 1 and not self.nested(place))

    def adopt(self, above: Follower, root: Node, place: Node, inputs: Mapping[Node, Node]) -> None:
        assert isinstance(above, CodeSize)
        self.values += above.values
        self.has_texts &= above.has_texts
        self.depth = max(self.depth, above.depth)
        for old, new in inputs.items():
            if old in above._indices:
                self._indices[new] = self._indices.get(new, frozenset()) | above._indices[old]
                self._nested[new] = max(self.nested(new), above.nested(old))


def surely_within_limits(above: Cluster, below: Cluster, producer: Instruction) -> bool:
    """Whether a kernel that computes a producer in its reader certainly has a plan, where kernels can compute the
    members of both."""
    if not all(i.shape.is_array for cluster in (above, below) for i in cluster.inputs):
        return False
    first, second = above.following(CodeSize, CodeSize), below.following(CodeSize, CodeSize)
    if not (first.has_texts and second.has_texts):
        return False
    place = below.inputs[producer]
    if max(second.depth, second.nested(place) + first.depth) > DEEPEST:
        return False
    one, other = _values(above, first), _values(below, second)
    return other + second.times(place) * one <= LARGEST


def _values(cluster: Cluster, size: CodeSize) -> int:
    """The values that a kernel computes or reads per element."""
    return size.values + sum(map(size.times, cluster.inputs.values()))
