"""A module as a graph that can be drawn: nodes, the scopes that they stand in, and the edges between nodes of a scope.

A scope is a computation where it runs: the entry, the body of a fusion, of a loop or of a branch. It belongs to the
node that runs it, and is drawn inside that node when it is opened. A computation that several nodes run is drawn in the
first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hlo_opt.analysis.properties import inside
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ir.walk import CONTROL_FLOW
from hlo_opt.ops.sets import is_free
from hlo_opt.report.view.layers import rows_of
from hlo_opt.text.frames import source_location
from hlo_opt.text.printer import SHORT, print_instruction

LONGEST_TEXT = 600
"""Characters of one instruction. Of a longer one, such as a large constant, the middle is left out."""

NOWHERE = -1
"""No scope, no group, no node."""


@dataclass(frozen=True)
class DrawnComputation:
    """A computation, the number of the node that runs it (NOWHERE for the entry), and its rows of nodes."""

    title: str
    owner: int
    rows: list[list[int]]


@dataclass
class DrawnGraph:
    """The nodes by number, the scopes, the entry's first, and pairs of nodes: the second reads the first.

    groups    of each node, the number of what it is shown with on the other side; NOWHERE for nothing
    """

    instructions: list[Instruction] = field(default_factory=list)
    scopes: list[DrawnComputation] = field(default_factory=list)
    homes: list[int] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    numbers: dict[Instruction, int] = field(default_factory=dict)


def graph_of(module: Module) -> DrawnGraph:
    """The graph of what a module runs, from its entry. Reducers and comparators are no part of it."""
    graph = DrawnGraph()
    seen = {module.entry}
    todo: list[tuple[Computation, int]] = [(module.entry, NOWHERE)]
    while todo:
        computation, owner = todo.pop()
        first = len(graph.instructions)
        for number, instruction in enumerate(computation.instructions, first):
            graph.instructions.append(instruction)
            graph.homes.append(len(graph.scopes))
            graph.numbers[instruction] = number
        operands = []
        for number, instruction in enumerate(computation.instructions, first):
            read = list(dict.fromkeys(graph.numbers[o] for o in instruction.operands))
            graph.edges += [(operand, number) for operand in read]
            operands.append([operand - first for operand in read])
        rows = [[first + n for n in row] for row in rows_of(operands)]
        graph.scopes.append(DrawnComputation(computation.name, owner, rows))
        inner = []
        for number, instruction in enumerate(computation.instructions, first):
            for called in run_by(instruction):
                if called not in seen:
                    seen.add(called)
                    inner.append((called, number))
        todo.extend(reversed(inner))
    graph.groups = [NOWHERE] * len(graph.instructions)
    return graph


def run_by(instruction: Instruction) -> list[Computation]:
    """The computations that an instruction runs as a whole: the body of a fusion or of a call, those of control
    flow."""
    body = inside(instruction)
    if body is not None:
        return [body]
    return list(instruction.called()) if instruction.opcode in CONTROL_FLOW else []


def shortened(text: str, longest: int = LONGEST_TEXT) -> str:
    """A text without its middle where it is longer."""
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]} ... {text[-half:]}"


def text_of(instruction: Instruction) -> str:
    """An instruction as people read it: without metadata."""
    text = shortened(print_instruction(instruction, SHORT))
    return f"ROOT {text}" if instruction.is_root else text


def graph_json(module: Module, graph: DrawnGraph) -> dict[str, object]:
    """The graph as columns, which take less room than a record for each node. `lines` are numbers of `places`, the
    Python lines."""
    places: dict[str, int] = {"": 0}
    lines = [places.setdefault(source_location(module, i), len(places)) for i in graph.instructions]
    return {
        "names": [i.name for i in graph.instructions],
        "opcodes": [i.opcode for i in graph.instructions],
        "shapes": [shortened(str(i.shape.without_layout()), 80) for i in graph.instructions],
        "texts": [text_of(i) for i in graph.instructions],
        "free": [int(is_free(i.opcode)) for i in graph.instructions],
        "lines": lines,
        "places": list(places),
        "homes": graph.homes,
        "groups": graph.groups,
        "scopes": [{"title": s.title, "owner": s.owner, "rows": s.rows} for s in graph.scopes],
        "edges": [end for edge in graph.edges for end in edge],
    }
