"""What the page shows of a kernel: its plan, its price with its parts, its CUDA text, the Python lines that it comes
from, its point on the roofline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.diag import EvaluationError
from hlo_opt.fusion.decision import ByStructure
from hlo_opt.fusion.state import FusionState
from hlo_opt.fusion.summary import ModuleSummary
from hlo_opt.ir import Instruction, Module
from hlo_opt.ops.shapes import flops_of
from hlo_opt.plans.price import Price, clock
from hlo_opt.report.holding import members_of_kernels
from hlo_opt.report.summary import label
from hlo_opt.report.view.graph import NOWHERE, DrawnGraph
from hlo_opt.runtime.driver.emission import source_lines
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.schedule.ops import CallOp, LaunchOp

LONGEST_CUDA = 60_000
"""Characters of a kernel's text that the page holds."""


@dataclass(frozen=True)
class DrawnKernel:
    """An instruction of a module that launches work, what it takes, and the instructions that it holds, itself among
    them."""

    instruction: Instruction
    price: Price
    rounds: int
    members: Sequence[Instruction]


def launched(module: Module, summary: ModuleSummary, target: DeviceTarget, known: ByStructure) -> list[DrawnKernel]:
    """The kernels and library calls of a module that is priced, in the order of its summary. `known`: what a run found
    out about kernels."""
    named = {(c.name, i.name): i for c in module.computations for i in c.instructions}
    members: dict[Instruction, list[Instruction]] = {}
    for kernel, member in members_of_kernels(module):
        members.setdefault(kernel, []).append(member)
    prices = FusionState(module, target, known).prices
    kernels = []
    for one in summary.launched:
        kernel = named[one.computation, one.instruction]
        kernels.append(DrawnKernel(kernel, prices.of(kernel), one.rounds, members.get(kernel, [kernel])))
    return kernels


def rates(target: DeviceTarget) -> dict[str, object]:
    """The roof: bytes that memory moves, and f32 operations that the cores outside of tensor cores do, in a
    microsecond."""
    return {
        "name": target.name,
        "title": target.title,
        "bytes_per_us": target.memory_bandwidth / 1e6,
        "flops_per_us": 2 * target.fpus_per_core * target.core_count * clock(target),
    }


def kernels_json(module: Module, kernels: Iterable[DrawnKernel], graph: DrawnGraph) -> list[dict[str, object]]:
    """The kernels in the order given, each with the number of its node and of its group."""
    rows: list[dict[str, object]] = []
    for one in kernels:
        node = graph.numbers.get(one.instruction, NOWHERE)
        price = one.price
        rows.append(
            {
                "name": one.instruction.name,
                "computation": one.instruction.computation.name,
                "label": label(one.instruction),
                "node": node,
                "group": graph.groups[node] if node != NOWHERE else NOWHERE,
                "us": round(price.us, 4),
                "rounds": one.rounds,
                "flops": sum(map(flops_of, one.members)),
                "parts": {
                    "memory": round(price.memory, 4),
                    "cache": round(price.cache, 4),
                    "instructions": round(price.instructions, 4),
                    "functions": round(price.slow, 4),
                    "waiting": round(price.way, 4),
                    "launch": round(price.launch, 4),
                },
                "read": round(price.read),
                "written": round(price.written),
                "least": round(price.least),
                "waves": round(price.waves, 2),
                "resident": price.resident,
                "registers": price.registers,
                "in_flight": round(price.in_flight),
                "loads": list(price.loads),
                "stores": list(price.stores),
                "lines": source_lines(module, one.instruction)[:50],
                "plan": None,
            }
        )
    return rows


def add_plans(rows: Iterable[dict[str, object]], module: Module, target: DeviceTarget) -> list[str]:
    """Give each kernel its plan: kind, grid, block, shared memory, and the number of its CUDA text in the list that
    this returns. A library call gets what is called.

    A module whose control flow is not well formed has no program, so that nothing is added.
    """
    try:
        schedule = build_schedule(module, target)
    except EvaluationError:
        return []
    texts = {kernel.symbol: number for number, kernel in enumerate(schedule.kernels)}
    plans: dict[tuple[str, str], dict[str, object]] = {}
    for routine, op in schedule.ops():
        key = (routine.computation.name, op.instruction.name)
        if isinstance(op, LaunchOp):
            plans.setdefault(key, _plan(op.kernel, texts[op.kernel.symbol]))
        elif isinstance(op, CallOp) and op.kind != "empty":
            plans.setdefault(key, {"kind": op.kind, "calls": op.call})
    for row in rows:
        row["plan"] = plans.get((str(row["computation"]), str(row["name"])))
    return [_cut(kernel.source) for kernel in schedule.kernels]


def _plan(kernel: Kernel, text: int) -> dict[str, object]:
    launch = kernel.launch
    return {
        "kind": kernel.kind,
        "symbol": kernel.symbol,
        "grid": launch.grid,
        "block": launch.block,
        "shared": launch.shared_bytes,
        "cooperative": launch.cooperative,
        "text": text,
    }


def _cut(source: str) -> str:
    if len(source) <= LONGEST_CUDA:
        return source
    return f"{source[:LONGEST_CUDA]}\n// ... {len(source) - LONGEST_CUDA} characters more\n"
