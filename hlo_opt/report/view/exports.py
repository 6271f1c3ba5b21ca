"""The fused graph for other programs: Graphviz, and a trace of the estimated times for Perfetto and Chrome."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ir.walk import CONTROL_FLOW, needed_first
from hlo_opt.ops.sets import launches, looped
from hlo_opt.passes import ExplainReport
from hlo_opt.report.page import microseconds
from hlo_opt.report.summary import label
from hlo_opt.report.view.graph import NOWHERE, graph_of, shortened
from hlo_opt.text.frames import source_location

MOST_EVENTS = 20_000
"""Slices of a trace: of long programs the beginning is shown."""


def dot(report: ExplainReport) -> str:
    """The fused module for Graphviz: a cluster for each kernel and each computation, with the estimated time."""
    module = report.outcome.module
    graph = graph_of(module)
    times = {(one.computation, one.instruction): one.est_us * one.rounds for one in report.after.launched}
    inner: dict[int, list[int]] = {}
    for at, one in enumerate(graph.scopes):
        inner.setdefault(one.owner, []).append(at)
    lines = [
        f"digraph {_quoted(module.name)} {{",
        "  compound=true; node [shape=box, fontname=sans];",
        "  edge [color=gray40];",
    ]

    def write(number: int, indent: str) -> None:
        for node in (n for row in graph.scopes[number].rows for n in row):
            instruction = graph.instructions[node]
            text = f"{instruction.name}\n{instruction.opcode} {shortened(str(instruction.shape.without_layout()), 60)}"
            us = times.get((instruction.computation.name, instruction.name))
            if us is not None:
                text += f"\n{microseconds(us)}"
            if node in inner:
                lines.append(f"{indent}subgraph cluster_{node} {{ label={_quoted(text)};")
                lines.append(f"{indent}  n{node} [label={_quoted(label(instruction))}, style=dashed];")
                for scope in inner[node]:
                    write(scope, indent + "  ")
                lines.append(f"{indent}}}")
            else:
                lines.append(f"{indent}n{node} [label={_quoted(text)}];")

    for scope in inner[NOWHERE]:
        write(scope, "  ")
    lines += [f"  n{producer} -> n{consumer};" for producer, consumer in graph.edges]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    """A text as Graphviz's quoted string, in which only quotes and backslashes mean anything; lines are broken by
    `\\n`."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + "".join(c if c.isprintable() else " " for c in escaped) + '"'


def perfetto(report: ExplainReport) -> str:
    """The estimated times as a trace in Chrome's JSON format, which Perfetto reads: kernels one after another, loops
    with their first iteration, and how many there are."""
    module, target = report.outcome.module, report.outcome.target
    prices = {(one.computation, one.instruction): (one.est_us, one.bytes) for one in report.after.launched}
    events: list[dict[str, object]] = [
        {"ph": "M", "pid": 1, "tid": 1, "name": "process_name", "args": {"name": f"{module.name} (estimated)"}},
        {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": target.title}},
    ]
    lasts = _lengths(module, report.rounds, {key: us for key, (us, _) in prices.items()})
    todo: list[tuple[Iterator[Instruction], float]] = [(iter(module.entry.instructions), 0.0)]
    while todo and len(events) < MOST_EVENTS:
        instructions, now = todo.pop()
        for instruction in instructions:
            key = (instruction.computation.name, instruction.name)
            if instruction.opcode in CONTROL_FLOW:
                length = _control(instruction, lasts, report.rounds)
                rounds = _rounds(instruction, report.rounds)
                events.append(_slice(module, instruction, now, length, {"iterations": rounds}))
                todo.append((instructions, now + length))
                todo.append((iter(_shown(instruction, lasts).instructions), now))
                break
            if key in prices and launches(instruction):
                us, moved = prices[key]
                events.append(_slice(module, instruction, now, us, {"bytes": round(moved)}))
                now += us
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events}, indent=0) + "\n"


def _slice(
    module: Module, instruction: Instruction, start: float, us: float, more: Mapping[str, object]
) -> dict[str, object]:
    return {
        "ph": "X",
        "pid": 1,
        "tid": 1,
        "ts": round(start, 4),
        "dur": round(us, 4),
        "name": instruction.name,
        "cat": instruction.opcode,
        "args": {"what": label(instruction), "line": source_location(module, instruction), **more},
    }


def _rounds(instruction: Instruction, rounds: Mapping[str, int]) -> int:
    """How many iterations a loop makes each time that it runs; 1 for other control flow."""
    body = looped(instruction)
    outside = max(1, rounds.get(instruction.computation.name, 1))
    return 1 if body is None else rounds.get(body.name, outside) // outside


def _shown(instruction: Instruction, lasts: Mapping[Computation, float]) -> Computation:
    """What is shown of control flow: the body of a loop, the longest branch."""
    body = looped(instruction)
    return max(instruction.called(), key=lambda c: lasts.get(c, 0.0)) if body is None else body


def _control(instruction: Instruction, lasts: Mapping[Computation, float], rounds: Mapping[str, int]) -> float:
    """Microseconds of a loop, a branch or a call: of branches the longest is taken."""
    if looped(instruction) is not None:
        return _rounds(instruction, rounds) * sum(lasts.get(called, 0.0) for called in instruction.called())
    return max((lasts.get(called, 0.0) for called in instruction.called()), default=0.0)


def _lengths(
    module: Module, rounds: Mapping[str, int], times: Mapping[tuple[str, str], float]
) -> dict[Computation, float]:
    """Microseconds of one run of each computation that is executed, callees first."""
    lengths: dict[Computation, float] = {}
    for computation in needed_first([module.entry], _callees):
        lengths[computation] = sum(
            _control(i, lengths, rounds) if i.opcode in CONTROL_FLOW else times.get((computation.name, i.name), 0.0)
            for i in computation.instructions
        )
    return lengths


def _callees(computation: Computation) -> list[Computation]:
    return [c for i in computation.instructions if i.opcode in CONTROL_FLOW for c in i.called()]
