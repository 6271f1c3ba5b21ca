"""Heroes: the instruction that decides how a kernel is emitted, the emitter, and the shared memory that XLA reckons with.

Source: xla/service/gpu/ir_emission_utils.cc (FindNonTrivialHero), hlo_fusion_analysis.cc, gpu_fusible.cc.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from hlo_opt.analysis.cluster import Cluster, Node
from hlo_opt.analysis.facts import is_elementwise
from hlo_opt.analysis.reductions import WARP, fast_form
from hlo_opt.analysis.transposes import tiled_transpose
from hlo_opt.ir import Instruction

Emitter = Literal["loop", "reduction", "transpose", "concatenate", "scatter", "in-place", "library"]

CONCATENATE_OPERANDS = 4
_HEROES = frozenset({"transpose", "concatenate", "reduce"})


def _is_intermediate(node: Node, operand_limit: int) -> bool:
    """Whether the search for a hero may climb through the node."""
    if node.is_input or len(set(node.operands)) > operand_limit or not node.operands:
        return False
    instruction = node.instruction
    if instruction.opcode == "bitcast":
        return True
    if instruction.opcode == "reshape":
        return operand_limit == 1
    return instruction.opcode != "copy" and is_elementwise(instruction)


def _climb(root: Node, wanted: Callable[[Node], bool], operand_limit: int) -> Node | None:
    """The one wanted node above the root through intermediates; None when there is none, or more than one."""
    found: list[Node] = []
    todo, seen = [root], {root}
    while todo:
        node = todo.pop()
        if not node.is_input and wanted(node):
            found.append(node)
            continue
        if node.is_input:
            continue
        if not _is_intermediate(node, operand_limit):
            if node is root:
                return None
            continue
        for operand in node.operands:
            if operand not in seen:
                seen.add(operand)
                todo.append(operand)
    return found[0] if len(found) == 1 else None


def hero_of(root: Node, opcodes: frozenset[str] = _HEROES) -> Node:
    """The non-trivial hero of a root: a tiled transpose, a concatenate or a reduce above it; the root itself when there is none. `opcodes`: those
    of all members."""
    if _HEROES.isdisjoint(opcodes):
        return root
    return (
        _climb(root, lambda n: tiled_transpose(n.instruction) is not None, 1)
        or _climb(root, lambda n: n.opcode == "concatenate", 3)
        or _climb(root, lambda n: n.opcode == "reduce", 1)
        or root
    )


def is_real_reduction(root: Node, hero: Node) -> bool:
    """Whether the reduction emitter takes the root: a fast reduction, and race-free where an epilogue follows."""
    form = fast_form(hero.instruction)
    return form is not None and (hero is root or form.is_race_free)


def emitter_of(cluster: Cluster) -> tuple[Emitter, Node]:
    """Which emitter XLA would choose, and the hero that decides it."""
    heroes = [hero_of(root, cluster.opcodes) for root in cluster.roots]
    for root, hero in zip(cluster.roots, heroes, strict=True):
        if is_real_reduction(root, hero):
            form = fast_form(hero.instruction)
            assert form is not None
            reduced_elements = math.prod(form.sizes)
            if all(
                (is_real_reduction(r, h) and fast_form(h.instruction) == form)
                or r.shape.element_count == reduced_elements
                for r, h in zip(cluster.roots, heroes, strict=True)
            ):
                return "reduction", hero
    transposes = [h for h in heroes if tiled_transpose(h.instruction) is not None]
    if len(transposes) == len(heroes):
        return "transpose", transposes[0]
    hero = heroes[0]
    if len(heroes) > 1:
        return "loop", cluster.roots[0]
    if hero.opcode == "scatter":
        return "scatter", hero
    if cluster.roots[0].opcode == "dynamic-update-slice":
        return "in-place", cluster.roots[0]
    if hero.opcode == "concatenate" and len(hero.operands) <= CONCATENATE_OPERANDS:
        return "concatenate", hero
    return "loop", cluster.roots[0]


def shared_memory(instruction: Instruction) -> int:
    """Bytes of shared memory that the instruction would need if it were a hero (SharedMemoryUsage)."""
    form = fast_form(instruction)
    if form is not None:
        count = len(instruction.operands) // 2
        widths = sum(operand.shape.type.bytes for operand in instruction.operands[:count])
        return WARP * widths if form.is_row else WARP * (4 * WARP + 1) * widths
    tiled = tiled_transpose(instruction)
    return 0 if tiled is None else tiled.shared_bytes
