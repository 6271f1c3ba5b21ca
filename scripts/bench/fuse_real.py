"""Fusing real models against what XLA:GPU made of them: python -m scripts.bench.fuse_real [FILE|DIR...] --peer
PEER.json [--preset P]...

Without FILE: `real/fusion_input` of the corpus that HLO_OPT_CORPUS names. The peer file has for each module (its name
without .hlo) XLA's figures: `{"compile_s": s, "fused": {"kernels", "bytes", "flops"}}`. Prints for each preset and
module kernels, bytes and flops, ours and as a share of XLA's (bytes and floating-point operations by XLA's cost
analysis, loop bodies once), and the processor seconds of `hlo_opt.fuse` as a share of XLA's whole compile time: one
thread, proof included, without the decisions and with them. Then the geometric means and the largest shares. The
modules of passes are imported before: XLA is loaded before its time begins, too.

The peer file's compile times are another machine's. `--compiler COMMAND` takes them here, in the same run, just before
each module is fused: COMMAND OUT FILE compiles the module of the same name in the folder of `--raw` for a GPU and
leaves the seconds as `compile_s` in a file OUT/*/compile.json. With `--raw` each module is fused from its raw dump too
(the last columns: parsing left out, simplification included).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import jax
import jaxlib._hlo as hlo
from jaxlib import _jax

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.fusion.summary import module_summary
from hlo_opt.passes import parse_pipeline, preset_names
from hlo_opt.passes import preset as preset_text

SHARE = "/ XLA"
TIMES = ("fused", "decided", "raw fused", "raw decided")
TITLES = ("", *(title for name in ("kernels", "GB", "Gflop", *TIMES) for title in (name, SHARE)))


@dataclass(frozen=True)
class Row:
    """One module under one preset; `of_xla` are shares of XLA's figures."""

    name: str
    kernels: int
    kernels_of_xla: float
    bytes: float
    bytes_of_xla: float
    flops: float
    flops_of_xla: float
    alone: float
    alone_of_xla: float
    seconds: float
    seconds_of_xla: float
    raw_alone: float
    raw_alone_of_xla: float
    raw: float
    raw_of_xla: float

    def cells(self) -> list[str]:
        name, kernels, k, size, b, flops, *times = astuple(self)
        whole = [name, f"{kernels}", f"{k:.3f}", f"{size / 1e9:.3f}", f"{b:.3f}"]
        f, *pairs = times
        shares = [f"{time:.{3 if n % 2 else 2}f}" for n, time in enumerate(pairs)]
        return [*whole, f"{flops / 1e9:.2f}", f"{f:.3f}", *shares]


def cost(text: str) -> tuple[float, float]:
    """Bytes and floating-point operations by XLA's cost analysis."""
    found = _jax.hlo_module_cost_analysis(jax.devices()[0].client, hlo.hlo_module_from_text(text))
    return found.get("bytes accessed", 0.0), found.get("flops", 0.0)


def fusing(path: Path, preset: str, simplify: str) -> tuple[hlo_opt.Module, float, float]:
    """The fused module, and the processor seconds that fusing took, without its decisions and with them."""
    module = hlo_opt.parse(path.read_text(encoding="utf-8"), filename=path.name)
    started = time.process_time()
    fused, decisions = hlo_opt.fuse(module, preset=preset, simplify=simplify)
    alone = time.process_time() - started
    len(decisions)  # found out when they are looked at
    return fused, alone, time.process_time() - started


def compiling(compiler: str, path: Path) -> float:
    """The seconds that XLA takes to compile a module here."""
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([*shlex.split(compiler), out, str(path)], check=True, stdout=subprocess.DEVNULL)
        (times,) = Path(out).glob("*/compile.json")
        return float(json.loads(times.read_text(encoding="utf-8"))["compile_s"])


def measure(path: Path, preset: str, peer: Mapping[str, Any], compiler: str, raw: Path | None) -> Row:
    """Fuse one module as it is, and compare; without a raw dump its columns are not a number."""
    compile_s = compiling(compiler, raw / path.name) if compiler and raw else peer["compile_s"]
    fused, *seconds = fusing(path, preset, "never")
    seconds += fusing(raw / path.name, preset, "auto")[1:] if raw else (math.nan, math.nan)
    kernels = module_summary(fused, target("h100_sxm")).kernels
    size, flops = cost(str(fused))
    theirs = peer["fused"]
    return Row(
        path.stem,
        kernels,
        kernels / theirs["kernels"],
        size,
        size / theirs["bytes"],
        flops,
        flops / max(1.0, theirs["flops"]),
        *[figure for time in seconds for figure in (time, time / compile_s)],
    )


def table(rows: Sequence[Row]) -> str:
    """The rows as aligned columns, with the geometric means and the largest shares below."""
    shares = [field.name for field in fields(Row) if field.name.endswith("_of_xla")]
    means = [math.exp(sum(math.log(max(getattr(r, s), 1e-9)) for r in rows) / len(rows)) for s in shares]
    largest = [max(getattr(r, s) for r in rows) for s in shares]
    lines = [list(TITLES), *(r.cells() for r in rows)]
    for title, values in (("geometric mean", means), ("largest", largest)):
        lines.append([title, *(cell for value in values for cell in ("", f"{value:.3f}"))])
    return aligned(lines)


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Rows of cells as columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = [
        "  ".join([f"{first:<{widths[0]}}", *(f"{c:>{w}}" for c, w in zip(rest, widths[1:], strict=True))])
        for first, *rest in lines
    ]
    return "\n".join(text.rstrip() for text in texts)


def files(given: Iterable[Path]) -> list[Path]:
    """The files given, and the modules in the folders given, by size."""
    found = [p for path in given for p in (path.glob("*.hlo") if path.is_dir() else [path])]
    return sorted(found, key=lambda p: (p.stat().st_size, p.name))


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, metavar="FILE|DIR")
    parser.add_argument("--peer", type=Path, required=True, metavar="PEER.json")
    parser.add_argument("--preset", action="append", choices=preset_names(), help="default: all presets")
    parser.add_argument("--raw", type=Path, metavar="DIR", help="raw dumps of the same names")
    parser.add_argument("--compiler", default="", metavar="COMMAND", help="takes XLA's compile times here")
    arguments = parser.parse_args()
    corpus = os.environ.get("HLO_OPT_CORPUS")
    if not arguments.paths and not corpus:
        parser.error("name files, or a corpus in HLO_OPT_CORPUS")
    if arguments.compiler and not arguments.raw:
        parser.error("--compiler compiles what --raw has")
    paths = files(arguments.paths or [Path(str(corpus)) / "real" / "fusion_input"])
    peer = json.loads(arguments.peer.read_text(encoding="utf-8"))
    known = [p for p in paths if p.stem in peer]
    if not known:
        parser.error(f"{arguments.peer} has figures of none of the {len(paths)} modules")
    for preset in arguments.preset or preset_names():
        print(f"{preset}, {len(known)} modules", flush=True)
        parse_pipeline(preset_text(preset))
        print(
            table([measure(path, preset, peer[path.stem], arguments.compiler, arguments.raw) for path in known]),
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
