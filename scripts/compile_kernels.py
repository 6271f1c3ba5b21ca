"""Compile every kernel of dumps with NVRTC, which needs no GPU: python -m scripts.compile_kernels [FILE|DIR...]
[--preset P]... [--arch sm_90]... [--known FILE]

Each module (default: all of `testdata/dumps`) is fused with each preset, and the kernels of the result are emitted as
`--emit` writes them. A text that several modules share, comments and names left aside, is a template and compiled once
per architecture that runs it. Prints a row per module, one per preset and one of totals, then the kernels that spill
registers to local memory. Exits 1 when a module could not be fused, NVRTC refuses a kernel, or a kernel spills that
FILE does not name. FILE is what an earlier run printed, or has a line per kernel with its symbol in it:
`bench/results/nvrtc_kernels.txt` is the list for the real models.

launches   instructions that launch a kernel; loops count once
kernels    distinct kernels of the module
templates  kernels whose text no module before it had
registers  of a thread of these: the median and the most, over the architectures
spill      those that spill registers on some architecture
fuse       seconds to read, fuse and emit
compile    seconds in NVRTC, all architectures together
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import cupy
from cupy.cuda import nvrtc

import hlo_opt
from hlo_opt.codegen import Kernel
from hlo_opt.codegen.options import compile_options
from hlo_opt.diag import HloOptError
from hlo_opt.passes import preset_names
from hlo_opt.plans.row_reduction import CLUSTERS_FROM
from hlo_opt.runtime.cupy.device import version
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.schedule.ops import LaunchOp

DUMPS = Path(__file__).resolve().parent.parent / "testdata" / "dumps"
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
SHOWN = 3
"""Lines of a failure's log that are printed."""

REGISTERS = re.compile(r"Used (\d+) registers")
SYMBOL = re.compile(r"\b[a-z_]+_[0-9a-f]{16}\b")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True)
class Compiled:
    """A kernel for one architecture: the first module that has it; registers of a thread; bytes of a thread's stack,
    and of spill stores and loads in the text; the log of a refusal."""

    kernel: Kernel
    module: str
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
    templates: int = 0
    registers: list[int] = field(default_factory=list)
    fuse: float = 0.0
    compile: float = 0.0
    failures: list[str] = field(default_factory=list)
    spills: list[Compiled] = field(default_factory=list)

    @property
    def spilling(self) -> list[str]:
        """The symbols of the kernels that spill."""
        return list(dict.fromkeys(c.kernel.symbol for c in self.spills))

    def __str__(self) -> str:
        registers = f"{statistics.median_high(self.registers)}/{max(self.registers)}" if self.registers else "-"
        counts = f"{self.launches:9d}{self.kernels:9d}{self.templates:11d}{registers:>11s}{len(self.spilling):7d}"
        return f"{self.name:40.40s} {self.preset:8s}{counts}{self.fuse:9.1f}{self.compile:9.1f}{len(self.failures):10d}"

    def add(self, other: Row) -> None:
        """Count another row in."""
        self.launches += other.launches
        self.kernels += other.kernels
        self.templates += other.templates
        self.registers += other.registers
        self.fuse += other.fuse
        self.compile += other.compile
        self.failures += other.failures
        self.spills += other.spills


HEADER = f"{'module':40s} {'preset':8s} launches  kernels  templates  registers  spill     fuse  compile  failures"


def compiled(kernel: Kernel, module: str, architecture: str) -> Compiled:
    """What NVRTC, and the assembler behind it, make of a kernel."""
    program = nvrtc.createProgram(kernel.source, f"{kernel.symbol}.cu", (), ())
    try:
        nvrtc.compileProgram(program, (f"-arch={architecture}", *compile_options(), "--ptxas-options=-v"))
        log = nvrtc.getProgramLog(program)
    except nvrtc.NVRTCError as error:
        lines = nvrtc.getProgramLog(program).strip().splitlines()
        told = "\n".join([f"{kernel.symbol} for {architecture}: {error}", *lines[:SHOWN]])
        return Compiled(kernel, module, architecture, refusal=told)
    finally:
        nvrtc.destroyProgram(program)
    registers = max((int(n) for n in REGISTERS.findall(log)), default=0)
    stack, stores, loads = (
        sum(column) for column in zip((0, 0, 0), *(map(int, m) for m in SPILLS.findall(log)), strict=True)
    )
    return Compiled(kernel, module, architecture, registers, stack, stores, loads)


def without_names(kernel: Kernel) -> str:
    """The text of a kernel without its comments and its own name."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", kernel.source, flags=re.DOTALL).replace(kernel.symbol, "kernel")


def runs_on(kernel: Kernel, architecture: str) -> bool:
    """Whether an architecture has what a kernel for newer ones needs: clusters of blocks."""
    return kernel.launch.cluster == 1 or int(re.sub(r"\D", "", architecture)) >= CLUSTERS_FROM


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
    row.launches = sum(isinstance(step, LaunchOp) for _, step in schedule.ops())
    row.kernels = len(schedule.kernels)
    start = time.perf_counter()
    new: list[tuple[Kernel, str]] = []
    for kernel in schedule.kernels:
        text = without_names(kernel)
        if text in known:
            continue
        known.add(text)
        row.templates += 1
        new += [(kernel, architecture) for architecture in architectures if runs_on(kernel, architecture)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # NVRTC works outside the interpreter's lock
        for found in pool.map(lambda pair: compiled(pair[0], row.name, pair[1]), new):
            if found.refusal:
                row.failures.append(found.refusal)
                continue
            row.registers.append(found.registers)
            row.spills += [found] if found.spills else []
    row.compile = time.perf_counter() - start
    return row


def commit() -> str:
    """The commit that is checked out, `+` where files differ from it; nothing outside a repository."""
    command = ["git", "-C", str(DUMPS), "describe", "--always", "--exclude=*", "--dirty=+"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f" ({done.stdout.strip()})"


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
    for file in files:
        if not file.is_file():
            parser.error(f"there is no file {file}")
    listed = set(SYMBOL.findall(arguments.known.read_text(encoding="utf-8"))) if arguments.known else set()
    architectures = arguments.arch or ARCHITECTURES
    print(" ".join(["# python -m scripts.compile_kernels", *(Path(a).name for a in sys.argv[1:])]))
    print(
        f"# {datetime.date.today()}, hlo-opt {hlo_opt.__version__}{commit()}, NVRTC {version(nvrtc)} "
        f"{' '.join(compile_options())}, CuPy {cupy.__version__}"
    )
    print(f"# {len(files)} modules, {', '.join(architectures)}; {os.cpu_count()} processors\n\n{HEADER}", flush=True)
    total = Row("total")
    known: set[str] = set()
    for preset in arguments.preset or ["default"]:
        of_preset = Row("all modules", preset)
        for path in files:
            row = sweep(path, preset, architectures, known)
            print(row, flush=True)
            for failure in row.failures:
                print("  " + failure.replace("\n", "\n  "), flush=True)
            of_preset.add(row)
        print(of_preset, flush=True)
        total.add(of_preset)
    print(total)
    spills: dict[str, list[Compiled]] = {}
    for found in total.spills:
        spills.setdefault(found.kernel.symbol, []).append(found)
    print(f"\n{len(spills)} kernels spill" + (":" if spills else ""))
    for symbol, of_kernel in sorted(spills.items()):
        print(f"  {symbol}{'' if symbol in listed else '  (not listed)' if arguments.known else ''}")
        print(f"    {of_kernel[0].module}, {of_kernel[0].kernel.launch.block} threads a block")
        for c in of_kernel:
            print(
                f"    {c.architecture}: {c.registers} registers, stack {c.stack} bytes, spill stores {c.stores}, loads "
                f"{c.loads}"
            )
    return 1 if total.failures or spills.keys() - listed else 0


if __name__ == "__main__":
    sys.exit(main())
