"""A module in numbers: what it launches, and of which opcodes it is made."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from hlo_opt.analysis.memory.traffic import bytes_accessed
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.fusion.summary import ModuleSummary, launched, module_summary
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ops.shapes import flops_of
from hlo_opt.report.page import Page, Word, count, counted, microseconds, most_first, size
from hlo_opt.report.summary import summary_json


@dataclass(frozen=True)
class ComputationStats:
    """One computation run once: floating-point operations (0 for what the op table does not count) and bytes accessed, calls not followed."""

    name: str
    instructions: int
    parameters: int
    flops: float
    bytes: float
    opcodes: dict[str, int]


@dataclass(frozen=True)
class Stats:
    """The figures of a module on a target.

    opcodes   instructions by opcode, in all computations
    launched  instructions that launch work, by opcode (fusions with their kind, custom calls with their target)
    """

    module: str
    target: str
    summary: ModuleSummary
    computations: list[ComputationStats]
    parameters: int
    opcodes: dict[str, int]
    launched: dict[str, int]


def stats(module: Module, target: DeviceTarget) -> Stats:
    """Count a module."""
    opcodes = Counter(i.opcode for c in module.computations for i in c.instructions)
    return Stats(
        module.name,
        target.name,
        module_summary(module, target),
        [_of(c) for c in module.computations],
        len(module.entry.parameters),
        most_first(opcodes),
        most_first(Counter(label(i) for i in launched(module))),
    )


def _of(computation: Computation) -> ComputationStats:
    instructions = computation.instructions
    return ComputationStats(
        computation.name,
        len(instructions),
        len(computation.parameters),
        sum(flops_of(i) for i in instructions),
        sum(bytes_accessed(i) for i in instructions),
        most_first(Counter(i.opcode for i in instructions)),
    )


def label(instruction: Instruction) -> str:
    """The opcode, with the kind of a fusion and the target of a custom call."""
    words = (instruction.opcode, instruction.word("kind"), instruction.word("custom_call_target"))
    return " ".join(word for word in words if word)


def as_page(found: Stats) -> Page:
    """The figures for people."""
    page = Page()
    page.add(Word(found.module, "bold"), f" on {found.target}")
    summary = found.summary
    rows = [
        ["kernels", count(summary.kernels)],
        ["launches", count(summary.launches)],
        ["bytes", size(summary.bytes)],
        ["estimated", microseconds(summary.est_us)],
        ["computations", count(len(found.computations))],
        ["parameters", count(found.parameters)],
        ["instructions", count(sum(found.opcodes.values()))],
    ]
    page.table(rows, right=frozenset({1}), indent=2)
    if summary.unknown_trips:
        page.add(f"  {counted(summary.unknown_trips, 'loop')} of an unknown trip count, counted as one round")
    for title, counts in (("launched", found.launched), ("instructions", found.opcodes)):
        page.add()
        page.add(Word(title, "bold"))
        page.table([[count(number), name] for name, number in counts.items()], right=frozenset({0}), indent=2)
    page.add()
    page.add(Word("computations", "bold"))
    rows = [["", "instructions", "parameters", "flops", "bytes"]]
    for c in found.computations:
        rows.append([c.name, count(c.instructions), count(c.parameters), count(int(c.flops)), size(c.bytes)])
    page.table(rows, right=frozenset({1, 2, 3, 4}), indent=2)
    return page


def as_json(found: Stats) -> dict[str, Any]:
    """The figures for programs."""
    return {
        "schema": 1,
        "module": found.module,
        "target": found.target,
        **summary_json(found.summary),
        "unknown_trips": found.summary.unknown_trips,
        "computations": [asdict(c) for c in found.computations],
        "parameters": found.parameters,
        "opcodes": found.opcodes,
        "launched": found.launched,
    }
