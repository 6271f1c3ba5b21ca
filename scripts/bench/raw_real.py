"""Raw dumps of real models against what XLA:GPU made of them, both counted alike: python -m scripts.bench.raw_real
RAW_DIR XLA_DIR [NAME...]

RAW_DIR has modules before optimization, XLA_DIR files of the same names after XLA's fusion passes; NAME picks those
whose names hold one. Each raw module is fused by `default`, and both results are counted by hlo-opt:

kernels   instructions that launch work, calls of libraries among them
launches  the same, times the trip counts of the loops around them
GB        bytes of kernels and calls, times trip counts, as our prices count them
us        the price on the target, launches included
Gflop     floating-point operations by XLA's cost analysis, loop bodies once, without those of products and convolutions

Products are left out of the operations because XLA's convolutions are calls of cuDNN after its passes, which its cost
analysis takes for none, and ours of 1x1 windows are products. Each column is followed by ours as a share of XLA's; the
last rows are the geometric means and the largest. `loop?` marks modules with a loop of unknown count: it is
taken for one round on both sides.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import hlo_opt
from hlo_opt.analysis.targets import DEFAULT_TARGET, DeviceTarget, target
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.text.printer import PrintOptions, print_instruction
from scripts.bench.fuse_real import aligned, cost

FIGURES = ("kernels", "launches", "GB", "us", "Gflop")
DIGITS = (0, 0, 3, 1, 3)
PRODUCTS = ("convolution", "dot")
BARE = PrintOptions(control=False, hidden=frozenset({"metadata"}))


@dataclass(frozen=True)
class Counted:
    """The figures of a module, in the order of FIGURES, and whether a loop's count is unknown."""

    figures: tuple[float, ...]
    is_open: bool


def counted(module: Module, device: DeviceTarget) -> Counted:
    """Count a module after fusing."""
    summary = module_summary(module, device)
    moved = sum(kernel.bytes * kernel.rounds for kernel in summary.launched)
    flops = cost(str(module))[1] - sum(
        times * flops_alone(i) for c, times in calls(module).items() for i in c.instructions if i.opcode in PRODUCTS
    )
    figures = (summary.kernels, summary.launches, moved / 1e9, summary.est_us, flops / 1e9)
    return Counted(figures, bool(summary.unknown_loops))


def calls(module: Module) -> dict[Computation, int]:
    """How often XLA's cost analysis counts each computation: once for each call, a loop's body for one round."""
    times = dict.fromkeys(module.computations, 0)
    times[module.entry] = 1
    for caller in reversed(list(module.computations)):  # what is called stands before its callers
        for called in caller.called:
            times[called] += times[caller]
    return times


def flops_alone(instruction: Instruction) -> float:
    """Floating-point operations of an instruction by XLA's cost analysis."""
    operands = dict.fromkeys(instruction.operands)
    parameters = "".join(f"%{o.name} = {o.shape} parameter({k})\n" for k, o in enumerate(operands))
    return cost(f"HloModule alone\nENTRY %entry {{\n{parameters}ROOT {print_instruction(instruction, BARE)}\n}}")[1]


def share(ours: float, theirs: float) -> float:
    """Ours as a share of XLA's; 1 where neither has any."""
    return ours / theirs if theirs else 1.0 if not ours else math.inf


def cells(name: str, ours: Counted, theirs: Counted) -> list[str]:
    """A row of the table."""
    row = [name + " loop?" * (ours.is_open or theirs.is_open)]
    for mine, other, digits in zip(ours.figures, theirs.figures, DIGITS, strict=True):
        row += [f"{mine:.{digits}f}", f"{share(mine, other):.3f}"]
    return row


def table(rows: Sequence[tuple[str, Counted, Counted]]) -> str:
    """The rows as aligned columns, with the geometric means and the largest shares below."""
    lines = [["", *(title for figure in FIGURES for title in (figure, "/ XLA"))], *(cells(*row) for row in rows)]
    shares = [[share(a, b) for _, o, t in rows for a, b in [(o.figures[k], t.figures[k])]] for k in range(len(FIGURES))]
    means = [math.exp(sum(math.log(max(x, 1e-9)) for x in column) / len(column)) for column in shares]
    for title, values in (("geometric mean", means), ("largest", [max(column) for column in shares])):
        lines.append([title, *(cell for value in values for cell in ("", f"{value:.3f}"))])
    return aligned(lines)


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("raw", type=Path, metavar="RAW_DIR")
    parser.add_argument("xla", type=Path, metavar="XLA_DIR")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--target", default=DEFAULT_TARGET)
    arguments = parser.parse_args()
    device = target(arguments.target)
    paths = sorted(arguments.raw.glob("*.hlo"), key=lambda p: (p.stat().st_size, p.name))
    wanted = [p for p in paths if not arguments.names or any(name in p.name for name in arguments.names)]
    pairs = [(p, arguments.xla / p.name) for p in wanted if (arguments.xla / p.name).exists()]
    if not pairs:
        parser.error(f"{arguments.raw} and {arguments.xla} have no file of the same name")
    rows = []
    for raw, xla in pairs:
        fused, _ = hlo_opt.fuse(hlo_opt.parse(raw.read_text(encoding="utf-8"), filename=raw.name), target=device.name)
        theirs = hlo_opt.parse(xla.read_text(encoding="utf-8"), filename=xla.name)
        rows.append((raw.stem, counted(fused, device), counted(theirs, device)))
        print(table(rows[-1:]).splitlines()[1], file=sys.stderr, flush=True)
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
