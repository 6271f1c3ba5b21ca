"""Compile every kernel of dumps with NVRTC, which needs no GPU: python -m scripts.compile_kernels [FILE|DIR...] [--arch sm_90]...

Each module (default: all of `testdata/dumps`) is fused, and the kernels of the result are emitted as `--emit` writes them. A text that several modules
share is compiled once per architecture. Prints a row per module and one of totals; exits 1 when a module could not be fused or NVRTC refuses a kernel.

launches   instructions that launch a kernel; loops count once
kernels    distinct kernels of the module
new        kernels that no module before it had
fuse       seconds to read, fuse and emit
compile    seconds in NVRTC, all architectures together
"""

from __future__ import annotations

import argparse
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
from hlo_opt.runtime.cupy_device import NVRTC_OPTIONS
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.steps import KernelStep

DUMPS = Path(__file__).resolve().parent.parent / "testdata" / "dumps"
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
SHOWN = 3
"""Lines of a failure's log that are printed."""


@dataclass
class Row:
    """What became of a module; times in seconds."""

    name: str
    launches: int = 0
    kernels: int = 0
    new: int = 0
    fuse: float = 0.0
    compile: float = 0.0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = f"{self.launches:9d}{self.kernels:9d}{self.new:6d}"
        return f"{self.name:44s}{counts}{self.fuse:8.2f}{self.compile:9.2f}{len(self.failures):10d}"


def refusal(kernel: Kernel, architecture: str) -> str | None:
    """What NVRTC says against a kernel, or None when it compiles it."""
    program = nvrtc.createProgram(kernel.source, f"{kernel.symbol}.cu", (), ())
    try:
        nvrtc.compileProgram(program, (f"-arch={architecture}", *NVRTC_OPTIONS))
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(program).strip().splitlines()
        return "\n".join([f"{kernel.symbol} for {architecture}: {error}", *log[:SHOWN]])
    finally:
        nvrtc.destroyProgram(program)
    return None


def sweep(path: Path, architectures: Sequence[str], compiled: set[str]) -> Row:
    """Fuse a file and compile those of its kernels that are not among the compiled texts, which it adds them to."""
    row = Row(path.stem)
    start = time.perf_counter()
    try:
        module, _ = hlo_opt.fuse(hlo_opt.parse(path.read_text(encoding="utf-8"), filename=str(path)))
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
        if kernel.source in compiled:
            continue
        compiled.add(kernel.source)
        row.new += 1
        new += [(kernel, architecture) for architecture in architectures]
    with ThreadPoolExecutor() as pool:  # NVRTC works outside the interpreter's lock
        refused = pool.map(lambda pair: refusal(*pair), new)
        row.failures += [text for text in refused if text is not None]
    row.compile = time.perf_counter() - start
    return row


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, metavar="FILE|DIR", default=[DUMPS])
    parser.add_argument("--arch", action="append", metavar="ARCH", help=f"default: {', '.join(ARCHITECTURES)}")
    arguments = parser.parse_args()
    files = [file for path in arguments.paths for file in (sorted(path.glob("*.hlo")) if path.is_dir() else [path])]
    if not files:
        parser.error("there is no .hlo file")
    total = Row("total")
    compiled: set[str] = set()
    print(f"{'module':44s} launches  kernels   new    fuse  compile  failures")
    for path in files:
        row = sweep(path, arguments.arch or ARCHITECTURES, compiled)
        print(row, flush=True)
        for failure in row.failures:
            print("  " + failure.replace("\n", "\n  "), flush=True)
        total.launches += row.launches
        total.kernels += row.kernels
        total.new += row.new
        total.fuse += row.fuse
        total.compile += row.compile
        total.failures += row.failures
    print(total)
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
