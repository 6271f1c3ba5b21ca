"""Whether kernels are launched as they are priced: python -m scripts.launches [--targets A,B] [--preset P] FILE|DIR...

Fuses each module for each device and holds against each other, for every kernel: the launch of the sketch that its
price is of, its plan, its row in the manifest, and what is launched; and the bytes and microseconds of the price and of
the manifest. Prints a row for each module and device, and what differs. Exits 1 where anything does.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import hlo_opt
from hlo_opt.analysis.targets import target as find
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Module
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.sketch import Sketch
from hlo_opt.runtime.driver.emission import kernel_files, manifest_of
from hlo_opt.runtime.schedule import build_schedule, ops

TARGETS = ("a100_sxm_80", "h100_sxm", "b200")

Sizes = tuple[int, int, int]
"""Blocks, threads of a block, bytes of its shared memory."""


@dataclass(frozen=True)
class Row:
    """A launch, and what each part of the program says of it; `bytes` and `us` of the price and of the manifest."""

    instruction: str
    kind: str
    price: Sizes
    plan: Sizes
    manifest: Sizes
    launch: Sizes
    bytes: tuple[int, int]
    us: tuple[float, float]

    @property
    def agrees(self) -> bool:
        return (
            len({self.price, self.plan, self.manifest, self.launch}) == 1
            and len(set(self.bytes)) == len(set(self.us)) == 1
        )


def rows(module: Module, target: str) -> list[Row]:
    """The launches of a module as it is, on a device. What one kernel cannot write together, and so is several
    launches, has no price of its own and is left out."""
    schedule = build_schedule(module, target)
    files = kernel_files(schedule.kernels)
    manifest = manifest_of(schedule, files)
    kernels = {row["symbol"]: row for row in manifest["kernels"]}
    launches = {row["instruction"]: row for row in manifest["launches"]}
    state = FusionState(schedule.module, find(target))
    found = []
    for _, op in schedule.ops():
        if not isinstance(op, ops.LaunchOp) or "further_symbols" in launches[op.instruction.name]:
            continue
        instruction = op.instruction
        sketch = state.sketch(state.structure(instruction), functools.partial(state.cluster, instruction))
        assert isinstance(sketch, Sketch)
        made = plan(region_of(schedule.module, op.instruction), find(target))
        assert isinstance(made, Plan)
        row, told = kernels[op.kernel.symbol], launches[op.instruction.name]
        launch = op.kernel.launch
        found.append(
            Row(
                op.instruction.name,
                op.kernel.kind,
                (sketch.launch.grid, sketch.launch.block, sketch.launch.shared_bytes),
                (made.launch.grid, made.launch.block, made.launch.shared_bytes),
                (row["grid"], row["block"], row["shared_bytes"]),
                (launch.grid, launch.block, launch.shared_bytes),
                (round(sketch.price.bytes), told["bytes"]),
                (round(sketch.price.us, 3), told["est_us"]),
            )
        )
    return found


def modules(paths: Iterable[Path]) -> Iterable[tuple[str, Module]]:
    """The modules of files, and of the .hlo files of folders, by name."""
    for path in paths:
        for file in sorted(path.rglob("*.hlo")) if path.is_dir() else [path]:
            yield file.stem, hlo_opt.parse(file.read_text(encoding="utf-8"), filename=str(file))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--preset", default="default")
    given = parser.parse_args()
    different = 0
    print(f"{'module':40} {'target':14} {'launches':>8} {'segments > 1':>12} {'agree':>7}")
    for name, module in modules(given.paths):
        for target in given.targets.split(","):
            fused, _ = hlo_opt.fuse(module, preset=given.preset, target=target)
            found = rows(fused, target)
            bad = [row for row in found if not row.agrees]
            several = sum("+" in row.kind for row in found)
            print(f"{name[:40]:40} {target:14} {len(found):8} {several:12} {len(found) - len(bad):7}", flush=True)
            for row in bad:
                print(
                    f"  {row.instruction} ({row.kind}): price {row.price}, plan {row.plan}, manifest {row.manifest}, "
                    f"launch {row.launch}, bytes {row.bytes}, us {row.us}"
                )
            different += len(bad)
    print(f"{different} differ")
    return different > 0


if __name__ == "__main__":
    sys.exit(main())
