"""Compile every kernel of dumps with NVRTC, which needs no GPU: python -m scripts.compile_kernels [FILE|DIR...] [--preset P]... [--arch sm_90]... [--known FILE]

Each module (default: all of `testdata/dumps`) is fused with each preset, and the kernels of the result are emitted as `--emit` writes them. A text that several
modules share, comments and names left aside, is compiled once per architecture. Prints a row per module and one of totals, then the kernels that spill registers
to local memory; exits 1 when a module could not be fused, NVRTC refuses a kernel, or a kernel spills that FILE (a line per kernel: module and symbol) does not name.

launches   instructions that launch a kernel; loops count once
kernels    distinct kernels of the module
new        kernels that no module before it had
registers  the most that a thread of a new kernel needs, over the architectures
spill      new kernels that spill registers on some architecture
fuse       seconds to read, fuse and emit
compile    seconds in NVRTC, all architectures together
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from cupy.cuda import nvrtc

import hlo_opt
from hlo_opt.codegen import Kernel
from hlo_opt.diag import HloOptError
from hlo_opt.passes import preset_names
from hlo_opt.runtime.cupy_device import NVRTC_OPTIONS
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.steps import KernelStep

DUMPS = Path(__file__).resolve().parent.parent / "testdata" / "dumps"
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
SHOWN = 3
"""Lines of a failure's log that are printed."""

REGISTERS = re.compile(r"Used (\d+) registers")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True)
class Compiled:
    """A kernel for one architecture: registers of a thread; bytes of a thread's stack, and of spill stores and loads in the text; the log of a refusal."""

    kernel: Kernel
    architecture: str
    registers: int = 0
    stack: int = 0
    stores: int = 0
    loads: int = 0
    refusal: str = ""

    @property
    def spills(self) -> bool:
        return bool(self.stores or self.loads)


@dataclass
class Row:
    """What became of a module; times in seconds."""

    name: str
    preset: str = ""
    launches: int = 0
    kernels: int = 0
    new: int = 0
    registers: int = 0
    fuse: float = 0.0
    compile: float = 0.0
    failures: list[str] = field(default_factory=list)
    spills: list[Compiled] = field(default_factory=list)

    @property
    def spilling(self) -> list[str]:
        """The symbols of the kernels that spill."""
        return list(dict.fromkeys(c.kernel.symbol for c in self.spills))

    def __str__(self) -> str:
        counts = f"{self.launches:9d}{self.kernels:9d}{self.new:6d}{self.registers:10d}{len(self.spilling):6d}"
        return f"{self.name:40.40s} {self.preset:8s}{counts}{self.fuse:8.2f}{self.compile:9.2f}{len(self.failures):10d}"


def compiled(kernel: Kernel, architecture: str) -> Compiled:
    """What NVRTC, and the assembler behind it, make of a kernel."""
    program = nvrtc.createProgram(kernel.source, f"{kernel.symbol}.cu", (), ())
    try:
        nvrtc.compileProgram(program, (f"-arch={architecture}", *NVRTC_OPTIONS, "--ptxas-options=-v"))
        log = nvrtc.getProgramLog(program)
    except nvrtc.NVRTCError as error:
        lines = nvrtc.getProgramLog(program).strip().splitlines()
        return Compiled(
            kernel, architecture, refusal="\n".join([f"{kernel.symbol} for {architecture}: {error}", *lines[:SHOWN]])
        )
    finally:
        nvrtc.destroyProgram(program)
    registers = max((int(n) for n in REGISTERS.findall(log)), default=0)
    stack, stores, loads = (
        sum(column) for column in zip((0, 0, 0), *(map(int, m) for m in SPILLS.findall(log)), strict=True)
    )
    return Compiled(kernel, architecture, registers, stack, stores, loads)


def without_names(kernel: Kernel) -> str:
    """The text of a kernel without its comments and its own name."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", kernel.source, flags=re.DOTALL).replace(kernel.symbol, "kernel")


def sweep(path: Path, preset: str, architectures: Sequence[str], known: set[str]) -> Row:
    """Fuse a file and compile those of its kernels that are not among the known texts, which it adds them to."""
    row = Row(path.stem, preset)
    start = time.perf_counter()
    try:
        module, _ = hlo_opt.fuse(hlo_opt.parse(path.read_text(encoding="utf-8"), filename=str(path)), preset=preset)
        schedule = build_schedule(module)
    except HloOptError as error:
        row.failures.append(str(error))
        return row
    row.fuse = time.perf_counter() - start
    row.launches = sum(isinstance(step, KernelStep) for _, step in schedule.steps())
    row.kernels = len(schedule.kernels)
    start = time.perf_counter()
    new: list[tuple[Kernel, str]] = []
    for kernel in schedule.kernels:
        text = without_names(kernel)
        if text in known:
            continue
        known.add(text)
        row.new += 1
        new += [(kernel, architecture) for architecture in architectures]
    with ThreadPoolExecutor() as pool:  # NVRTC works outside the interpreter's lock
        for found in pool.map(lambda pair: compiled(*pair), new):
            row.registers = max(row.registers, found.registers)
            row.failures += [found.refusal] if found.refusal else []
            row.spills += [found] if found.spills else []
    row.compile = time.perf_counter() - start
    return row


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, metavar="FILE|DIR", default=[DUMPS])
    parser.add_argument("--preset", action="append", choices=preset_names(), help="default: default")
    parser.add_argument("--arch", action="append", metavar="ARCH", help=f"default: {', '.join(ARCHITECTURES)}")
    parser.add_argument("--known", type=Path, metavar="FILE", help="kernels that are known to spill")
    arguments = parser.parse_args()
    files = [file for path in arguments.paths for file in (sorted(path.glob("*.hlo")) if path.is_dir() else [path])]
    if not files:
        parser.error("there is no .hlo file")
    listed = set(arguments.known.read_text(encoding="utf-8").split("\n")) if arguments.known else set()
    total = Row("total")
    known: set[str] = set()
    unlisted = 0
    print(f"{'module':40s} {'preset':8s} launches  kernels   new registers spill    fuse  compile  failures")
    for preset in arguments.preset or ["default"]:
        for path in files:
            row = sweep(path, preset, arguments.arch or ARCHITECTURES, known)
            print(row, flush=True)
            for failure in row.failures:
                print("  " + failure.replace("\n", "\n  "), flush=True)
            for c in row.spills:
                name = f"{row.name} {c.kernel.symbol}"
                unlisted += name not in listed
                print(
                    f"  spills: {name} {c.architecture}: {c.registers} registers, {c.stack} bytes of stack, stores {c.stores}, loads {c.loads}",
                    flush=True,
                )
            total.launches += row.launches
            total.kernels += row.kernels
            total.new += row.new
            total.registers = max(total.registers, row.registers)
            total.fuse += row.fuse
            total.compile += row.compile
            total.failures += row.failures
            total.spills += row.spills
    print(total)
    return 1 if total.failures or unlisted else 0


if __name__ == "__main__":
    sys.exit(main())
