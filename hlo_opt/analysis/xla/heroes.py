"""Heroes: the instruction that decides how a kernel is emitted, the emitter, and the shared memory that XLA reckons with.

Source: xla/service/gpu/ir_emission_utils.cc (FindNonTrivialHero), xla/codegen/ir_emission_utils.cc (FindHero, IsIntermediate,
CanEmitFusedDynamicUpdateSliceInPlace), xla/service/gpu/hlo_fusion_analysis.cc, xla/service/gpu/gpu_fusible.cc.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from hlo_opt.analysis.graph.cluster import Cluster, Follower, Node, merge_clusters
from hlo_opt.analysis.memory.reductions import WARP, fast_form
from hlo_opt.analysis.memory.transposes import TiledTranspose, moves_data, tiled_transpose
from hlo_opt.analysis.properties import is_elementwise
from hlo_opt.ir import Instruction, Shape

Emitter = Literal["loop", "reduction", "transpose", "concatenate", "scatter", "in-place", "library"]

CONCATENATE_OPERANDS = 4
SEARCH_OPERANDS = 3
"""The search for a transpose or a concatenate climbs through operations of up to so many operands."""
_HEROES = frozenset({"transpose", "concatenate", "reduce"})


def _is_row_major(shape: Shape) -> bool:
    return tuple(shape.minor_to_major) == tuple(range(shape.rank - 1, -1, -1))


def _is_intermediate(node: Node, operand_limit: int) -> bool:
    """Whether the search for a hero may climb through the node: elementwise, or a bitcast by any name (IsIntermediate)."""
    if node.is_input or not 1 <= len(node.operands) <= operand_limit:
        return False
    instruction = node.instruction
    match instruction.opcode:
        case "bitcast":
            return True
        case "copy" | "transpose":
            return not moves_data(instruction)
        case "reshape":
            return _is_row_major(instruction.shape) and _is_row_major(instruction.operands[0].shape)
        case _:
            return is_elementwise(instruction)


def _climb(root: Node, wanted: Callable[[Instruction], bool]) -> Node | None:
    """The one wanted node above the root through intermediates, with nothing else between it and any result; None when there is no such node."""
    found: Node | None = None
    todo, seen = [root], {root}
    while todo:
        node = todo.pop()
        if wanted(node.instruction):
            if found is not None:
                return None
            found = node
        elif _is_intermediate(node, SEARCH_OPERANDS):
            for operand in node.operands:
                if operand not in seen and not operand.is_input:
                    seen.add(operand)
                    todo.append(operand)
    if found is None:
        return None
    todo = list(found.users)
    seen = set(todo)
    while todo:
        node = todo.pop()
        if not _is_intermediate(node, SEARCH_OPERANDS):
            return None
        for user in node.users:
            if user not in seen:
                seen.add(user)
                todo.append(user)
    return found


def _is_tiled_transpose(instruction: Instruction) -> bool:
    return tiled_transpose(instruction) is not None


def _is_concatenate(instruction: Instruction) -> bool:
    return instruction.opcode == "concatenate"


def hero_of(root: Node, opcodes: frozenset[str] = _HEROES) -> Node:
    """The non-trivial hero of a root: a tiled transpose, a concatenate or a reduce above it; the root itself when there is none. `opcodes`: those
    of all members."""
    if _HEROES.isdisjoint(opcodes) or root.is_input:
        return root
    hero = root
    while _is_intermediate(hero, 1) and not hero.operands[0].is_input:
        hero = hero.operands[0]
    found = None
    if "transpose" in opcodes:
        found = _climb(hero, _is_tiled_transpose)
    if found is None and "concatenate" in opcodes:
        found = _climb(hero, _is_concatenate)
    if found is not None:
        return found
    return hero if hero.opcode == "reduce" else root


class Climb:
    """What the search for a hero from the one root of a cluster comes to, kept up while the cluster grows. Of a cluster with several roots, which may
    take it over from a producer, it follows the first; nobody asks for it there."""

    def __init__(self, cluster: Cluster) -> None:
        root = cluster.roots[0]
        self.reached: dict[Node, bool] = {root: True}
        """Whether only intermediates lie on some way from the root to a node."""
        self.clear: dict[Node, bool] = {root: True}
        """Whether only intermediates lie on all of them."""
        self.transposes: list[Node] = []
        self.concatenates: list[Node] = []
        """Reached ones."""
        self.end = root
        """Where the intermediates of one operand end that start at the root."""

    def spread(self, nodes: list[Node], inputs: list[Node]) -> None:
        reached, clear = self.reached, self.clear
        for node in nodes:
            here = reached.get(node, False)  # False where the node is used by other roots only
            if here:
                if _is_tiled_transpose(node.instruction):
                    self.transposes.append(node)
                if _is_concatenate(node.instruction):
                    self.concatenates.append(node)
            passes = _is_intermediate(node, SEARCH_OPERANDS)
            climbs, is_clear = passes and here, passes and clear.get(node, True)
            for operand in node.operands:
                if climbs or operand not in reached:
                    reached[operand] = climbs
                if not is_clear or operand not in clear:
                    clear[operand] = is_clear
        self._climb()

    def fits(self, above: Follower, place: Node) -> bool:
        return True

    def adopt(self, above: Follower, root: Node, place: Node, inputs: Mapping[Node, Node]) -> None:
        assert isinstance(above, Climb)
        reached, clear = self.reached.get(place, False), self.clear.get(place, True)
        if reached:
            for mine, found in ((self.transposes, above.transposes), (self.concatenates, above.concatenates)):
                for node in found:
                    mine.append(place if node is root else node)
                    self.clear[mine[-1]] = clear and above.clear[node]
        for old, new in inputs.items():
            if old in above.reached:
                self.reached[new] = self.reached.get(new, False) or (reached and above.reached[old])
                self.clear[new] = self.clear.get(new, True) and clear and above.clear[old]
        if self.end.operands == (place,) and _is_intermediate(self.end, 1):
            self.end = place if above.end is root else above.end
        self._climb()

    def _climb(self) -> None:
        while _is_intermediate(self.end, 1) and not self.end.operands[0].is_input:
            self.end = self.end.operands[0]


def climb_of(cluster: Cluster) -> Climb:
    """The climb from the cluster's one root."""
    return cluster.following("climb", Climb)


class Merged(Cluster):
    """A producer in the kernel of a consumer with one root, as far as emitter and launch depend on it. Its nodes are made only when they are looked at."""

    __slots__ = ("_above", "_below", "_made", "_producer")

    def __init__(self, above: Cluster, below: Cluster, producer: Instruction) -> None:
        super().__init__((), below.roots)
        self._above, self._below, self._producer = above, below, producer
        self._made: Cluster | None = None
        self.inputs = above.inputs | {i: n for i, n in below.inputs.items() if i is not producer}
        self._opcodes = above.opcodes | below.opcodes
        self._notable = [*below.notable, *above.notable]

    @property
    def made(self) -> Cluster:
        if self._made is None:
            self._made = merge_clusters(self._above, self._below, self._producer)
        return self._made

    @property
    def nodes(self) -> list[Node]:
        return self.made.nodes

    @property
    def members(self) -> Iterable[Node]:
        return self.made.members

    @property
    def users_first(self) -> list[Node]:
        return self.made.users_first

    @property
    def size(self) -> int:
        return self._above.size + self._below.size

    @property
    def hero(self) -> Node:
        """As `hero_of` the root."""
        above, below = climb_of(self._above), climb_of(self._below)
        place = self._below.inputs[self._producer]
        reached, clear = below.reached.get(place, False), below.clear.get(place, True)
        for opcode in ("transpose", "concatenate"):
            if opcode not in self.opcodes:
                continue
            here = below.transposes if opcode == "transpose" else below.concatenates
            there = above.transposes if opcode == "transpose" else above.concatenates
            if len(here) + (len(there) if reached else 0) != 1:
                continue
            found = (here or there)[0]
            if below.clear[found] if here else above.clear[found] and clear:
                return found
        end = below.end
        if _is_intermediate(end, 1) and end.operands[0] is place:
            end = above.end
        return end if end.opcode == "reduce" else self.roots[0]

    @property
    def updated(self) -> Node | None:
        """As `updates_in_place`."""
        below = self._below
        for node in below.notable:
            if node.opcode == "dynamic-update-slice":
                buffer = node.operands[0]
                if not buffer.is_input and buffer.opcode == "bitcast":
                    buffer = buffer.operands[0]
                if buffer.is_input and (
                    buffer.instruction is self._producer or buffer.instruction in self._above.inputs
                ):
                    return updates_in_place(self.made)
        if "dynamic-update-slice" in self._above.opcodes:
            return updates_in_place(self.made)
        return updates_in_place(below)


def merged_view(above: Cluster, below: Cluster, producer: Instruction) -> Cluster:
    """As `merge_clusters`, for whoever asks for emitter and launch: made only as far as they need it."""
    if len(below.roots) > 1 or below.roots[0].is_input or len(above.roots) > 1 or above.roots[0].is_input:
        return merge_clusters(above, below, producer)
    return Merged(above, below, producer)


def heroes_of(cluster: Cluster) -> list[Node]:
    """The hero of each root."""
    roots = cluster.roots
    if len(roots) > 1 or roots[0].is_input:
        return [hero_of(root, cluster.opcodes) for root in roots]
    if isinstance(cluster, Merged):
        return [cluster.hero]
    if _HEROES.isdisjoint(cluster.opcodes) or cluster.size == 1:
        return [roots[0]]
    climb = climb_of(cluster)
    for opcode, found in (("transpose", climb.transposes), ("concatenate", climb.concatenates)):
        if opcode in cluster.opcodes and len(found) == 1 and climb.clear[found[0]]:
            return found
    return [climb.end if climb.end.opcode == "reduce" else roots[0]]


def is_real_reduction(root: Node, hero: Node) -> bool:
    """Whether the reduction emitter takes the root: a fast reduction, and race-free where an epilogue follows."""
    if hero.is_input:
        return False
    form = fast_form(hero.instruction)
    return form is not None and (hero is root or form.is_race_free)


def writes_reduction(cluster: Cluster) -> bool:
    """Whether a root is taken by the reduction emitter (IsInputFusibleReduction)."""
    if "reduce" not in cluster.opcodes:
        return False
    return any(map(is_real_reduction, cluster.roots, heroes_of(cluster)))


def emitter_of(cluster: Cluster) -> tuple[Emitter, Node]:
    """Which emitter XLA would choose, and the hero that decides it."""
    roots, opcodes = cluster.roots, cluster.opcodes
    heroes = heroes_of(cluster)
    for root, hero in zip(roots, heroes, strict=True):
        if is_real_reduction(root, hero):
            if _reductions_agree(roots, heroes, hero):
                return "reduction", hero
            break
    if "transpose" in opcodes:
        transpose = _common_transpose(roots, heroes)
        if transpose is not None:
            return "transpose", transpose
    if "dynamic-update-slice" in opcodes:
        updated = cluster.updated if isinstance(cluster, Merged) else updates_in_place(cluster)
        if updated is not None:
            return "in-place", updated
    if len(roots) == 1 and not roots[0].is_input:
        if roots[0].opcode == "scatter":
            return "scatter", roots[0]
        if heroes[0].opcode == "concatenate" and len(heroes[0].operands) <= CONCATENATE_OPERANDS:
            return "concatenate", heroes[0]
    return "loop", roots[0]


def _reductions_agree(roots: list[Node], heroes: list[Node], first: Node) -> bool:
    """Whether one reduction kernel can write all roots: reductions of one form, and values of the size of what they read."""
    form = fast_form(first.instruction)
    assert form is not None
    elements = math.prod(form.sizes)
    for root, hero in zip(roots, heroes, strict=True):
        if is_real_reduction(root, hero):
            if fast_form(hero.instruction) != form:
                return False
        elif root.shape.element_count != elements:
            return False
    return True


def _common_transpose(roots: list[Node], heroes: list[Node]) -> Node | None:
    """The transpose that a tiled kernel would write, with the other roots as values of the transpose's input (FindConsistentTransposeHero)."""
    described: TiledTranspose | None = None
    found: Node | None = None
    others: list[Node] = []
    for root, hero in zip(roots, heroes, strict=True):
        tiled = None if hero.is_input else tiled_transpose(hero.instruction)
        if tiled is None:
            others.append(root)
        elif described is None:
            described, found = tiled, hero
        elif (described.sizes, described.permutation) != (tiled.sizes, tiled.permutation):
            return None
    if found is None:
        return None
    elements = found.shape.element_count
    return found if all(o.shape.element_count == elements for o in others) else None


def updates_in_place(cluster: Cluster) -> Node | None:
    """The first dynamic-update-slice of a kernel that may write into the buffers it updates; None when it must write whole results.

    Every root must be such an update, through bitcasts at most, of a value from outside that nothing else in the kernel reads elsewhere.
    """
    updates: list[Node] = []
    for root in cluster.roots:
        node = root
        while node.opcode == "bitcast" and not node.is_input:
            node = node.operands[0]
        if node.is_input or node.opcode != "dynamic-update-slice":
            return None
        updates.append(node)
    window = updates[0].operands[1].shape
    for update in updates:
        if not _ends_kernel(update) or not _reads_own_window(update, window):
            return None
        if update.operands[1].shape != window:
            return None
    return updates[0]


def _ends_kernel(update: Node) -> bool:
    """Whether nothing but one chain of bitcasts follows."""
    users = update.users
    while users:
        if len(users) > 1 or users[0].opcode != "bitcast":
            return False
        users = users[0].users
    return True


def _reads_own_window(update: Node, window: Shape) -> bool:
    """Whether the updated buffer comes from outside and is read only where it is written (no race between threads)."""
    buffer = update.operands[0]
    if not buffer.is_input and buffer.opcode == "bitcast":
        buffer = buffer.operands[0]
    if not buffer.is_input:
        return False
    todo, seen = [buffer], {buffer, update}
    while todo:
        node = todo.pop()
        for user in node.users:
            if user is update:
                continue
            if user.opcode == "dynamic-slice" and user.operands[0] is update.operands[0] and user.shape == window:
                if window.element_count != 1 and user.operands[1:] != update.operands[2:]:
                    return False
            elif user.opcode != "bitcast" and not is_elementwise(user.instruction):
                return False
            if user not in seen:
                seen.add(user)
                todo.append(user)
    return True


def shared_memory(instruction: Instruction) -> int:
    """Bytes of shared memory that the instruction would need if it were a hero (SharedMemoryUsage)."""
    form = fast_form(instruction)
    if form is not None:
        count = len(instruction.operands) // 2
        widths = sum(operand.shape.type.bytes for operand in instruction.operands[:count])
        return WARP * widths if form.is_row else WARP * (4 * WARP + 1) * widths
    tiled = tiled_transpose(instruction)
    return 0 if tiled is None else tiled.shared_bytes
