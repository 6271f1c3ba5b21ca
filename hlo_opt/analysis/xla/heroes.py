"""Heroes: the instruction that selects a kernel's emitter, and the shared memory that XLA assumes for it.

Source: xla/service/gpu/ir_emission_utils.cc (FindNonTrivialHero), xla/codegen/ir_emission_utils.cc (FindHero,
IsIntermediate, CanEmitFusedDynamicUpdateSliceInPlace), xla/service/gpu/hlo_fusion_analysis.cc,
xla/service/gpu/gpu_fusible.cc.
"""

from __future__ import annotations

import math

from hlo_opt.analysis.graph.cluster import Cluster, Node
from hlo_opt.analysis.memory.forms import WARP, TiledTranspose, fast_form, moves_data, tiled_transpose
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ops.emission import HEROES, ORDERS, XlaEmitter
from hlo_opt.ops.sets import RESHAPES, is_elementwise

CONCATENATE_OPERANDS = 4
SEARCH_OPERANDS = 3
"""The search for a transpose or concatenate passes through operations with up to this many operands."""
_SOUGHT = (XlaEmitter.TRANSPOSE, XlaEmitter.CONCATENATE)
"""Emitters whose heroes the search looks for, in order."""
_DECIDES = frozenset({*_SOUGHT, XlaEmitter.REDUCTION})


def _is_intermediate(node: Node, operand_limit: int) -> bool:
    """Whether the search for a hero may pass through the node: elementwise, or effectively a bitcast
    (IsIntermediate)."""
    if node.is_input or not 1 <= len(node.operands) <= operand_limit:
        return False
    instruction = node.instruction
    if node.is_view:
        return True
    if instruction.opcode in ORDERS:
        return not moves_data(instruction)
    if instruction.opcode in RESHAPES:
        return instruction.shape.is_row_major and instruction.operands[0].shape.is_row_major
    return is_elementwise(instruction)


def _sought(instruction: Instruction) -> XlaEmitter | None:
    """The emitter of which an instruction is a hero that the search looks for: a tiled transpose, a concatenate."""
    emitter = HEROES.get(instruction.opcode)
    if emitter is XlaEmitter.TRANSPOSE and tiled_transpose(instruction) is None:
        return None
    return emitter if emitter in _SOUGHT else None


def _climb(root: Node, wanted: XlaEmitter) -> Node | None:
    """The only wanted hero above the root, with nothing but intermediates between it and all results; None
    otherwise."""
    hero: Node | None = None
    todo, seen = [root], {root}
    while todo:
        node = todo.pop()
        if _sought(node.instruction) is wanted:
            if hero is not None:
                return None
            hero = node
        elif _is_intermediate(node, SEARCH_OPERANDS):
            for operand in node.operands:
                if operand not in seen and not operand.is_input:
                    seen.add(operand)
                    todo.append(operand)
    if hero is None:
        return None
    todo = list(hero.users)
    seen = set(todo)
    while todo:
        node = todo.pop()
        if not _is_intermediate(node, SEARCH_OPERANDS):
            return None
        for user in node.users:
            if user not in seen:
                seen.add(user)
                todo.append(user)
    return hero


def _end_of(node: Node) -> Node:
    """The end of the chain of unary intermediates above a node."""
    while _is_intermediate(node, 1) and not node.operands[0].is_input:
        node = node.operands[0]
    return node


def hero_of(root: Node, emitters: frozenset[XlaEmitter] = _DECIDES) -> Node:
    """The non-trivial hero of a root: a tiled transpose, concatenate or reduce above it; otherwise the root.

    `emitters`: those of which members can be heroes.
    """
    if _DECIDES.isdisjoint(emitters) or root.is_input:
        return root
    end = _end_of(root)
    for wanted in _SOUGHT:
        if wanted in emitters and (hero := _climb(end, wanted)) is not None:
            return hero
    return end if end.emitter is XlaEmitter.REDUCTION else root


def heroes_of(cluster: Cluster) -> list[Node]:
    """The hero of each root."""
    return [hero_of(root, cluster.emitters) for root in cluster.roots]


def is_real_reduction(root: Node, hero: Node) -> bool:
    """Whether the reduction emitter takes the root: a fast reduction, race-free if an epilogue follows."""
    if hero.is_input:
        return False
    form = fast_form(hero.instruction)
    return form is not None and (hero is root or form.is_race_free)


def writes_reduction(cluster: Cluster) -> bool:
    """Whether the reduction emitter takes some root (IsInputFusibleReduction)."""
    if XlaEmitter.REDUCTION not in cluster.emitters:
        return False
    return any(map(is_real_reduction, cluster.roots, heroes_of(cluster)))


def emitter_of(cluster: Cluster) -> tuple[XlaEmitter, Node]:
    """The emitter that XLA would choose, and its hero."""
    roots, emitters = cluster.roots, cluster.emitters
    heroes = heroes_of(cluster)
    for root, hero in zip(roots, heroes, strict=True):
        if is_real_reduction(root, hero):
            if _reductions_agree(roots, heroes, hero):
                return XlaEmitter.REDUCTION, hero
            break
    if XlaEmitter.TRANSPOSE in emitters:
        transpose = _common_transpose(roots, heroes)
        if transpose is not None:
            return XlaEmitter.TRANSPOSE, transpose
    if XlaEmitter.IN_PLACE in emitters:
        updated = updates_in_place(cluster)
        if updated is not None:
            return XlaEmitter.IN_PLACE, updated
    if len(roots) == 1 and not roots[0].is_input:
        if roots[0].emitter is XlaEmitter.SCATTER:
            return XlaEmitter.SCATTER, roots[0]
        if heroes[0].emitter is XlaEmitter.CONCATENATE and len(heroes[0].operands) <= CONCATENATE_OPERANDS:
            return XlaEmitter.CONCATENATE, heroes[0]
    return XlaEmitter.LOOP, roots[0]


def _reductions_agree(roots: list[Node], heroes: list[Node], first: Node) -> bool:
    """Whether one reduction kernel can write all roots: reductions of one form, or values of the size of its input."""
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
    """The hero of a tiled transpose kernel, where the other roots have the transpose's size
    (FindConsistentTransposeHero); None otherwise."""
    described: TiledTranspose | None = None
    transpose: Node | None = None
    others: list[Node] = []
    for root, hero in zip(roots, heroes, strict=True):
        tiled = None if hero.is_input else tiled_transpose(hero.instruction)
        if tiled is None:
            others.append(root)
        elif described is None:
            described, transpose = tiled, hero
        elif (described.sizes, described.permutation) != (tiled.sizes, tiled.permutation):
            return None
    if transpose is None:
        return None
    elements = transpose.shape.element_count
    return transpose if all(o.shape.element_count == elements for o in others) else None


def updates_in_place(cluster: Cluster) -> Node | None:
    """The first dynamic-update-slice of a kernel that may update its buffers in place; None when it must write whole
    results.

    Every root must be such an update (perhaps bitcast) of an input that the kernel does not read elsewhere.
    """
    updates: list[Node] = []
    for root in cluster.roots:
        node = root
        while node.is_view and not node.is_input:
            node = node.operands[0]
        if node.is_input or node.emitter is not XlaEmitter.IN_PLACE:
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
    """Whether at most one chain of bitcasts follows."""
    users = update.users
    while users:
        if len(users) > 1 or not users[0].is_view:
            return False
        users = users[0].users
    return True


def _updated(update: Node) -> Node:
    """The updated buffer, below a bitcast."""
    buffer = update.operands[0]
    return buffer.operands[0] if buffer.is_view and not buffer.is_input else buffer


def _reads_own_window(update: Node, window: Shape) -> bool:
    """Whether the updated buffer is an input and is read only where it is written, so that threads do not race."""
    buffer = _updated(update)
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
            elif not user.is_view and not is_elementwise(user.instruction):
                return False
            if user not in seen:
                seen.add(user)
                todo.append(user)
    return True


def shared_memory(instruction: Instruction) -> int:
    """Bytes of shared memory that the instruction would need as a hero (SharedMemoryUsage)."""
    form = fast_form(instruction)
    if form is not None:
        count = len(instruction.operands) // 2
        widths = sum(operand.shape.type.bytes for operand in instruction.operands[:count])
        return WARP * widths if form.is_row else WARP * (4 * WARP + 1) * widths
    tiled = tiled_transpose(instruction)
    return 0 if tiled is None else tiled.shared_bytes
