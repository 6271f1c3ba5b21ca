"""How long the proof of a fused module takes, against reading its text: python -m scripts.bench.proof_speed
[FILE|DIR...] [--preset P] [--runs N]

Without FILE: `real/fusion_input` of the corpus that HLO_OPT_CORPUS names, else all our dumps. Prints for each module
the instructions of its text, and with calls and fusions put back into their callers before and after; the processor
seconds of `hlo_opt.parse` and of the proof, each the fastest of N runs, taken in turns; and the proof's time as a share
of parsing. Then the geometric mean and the largest share.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import hlo_opt
from hlo_opt.analysis.graph.numbering import Numbering, Table
from hlo_opt.fusion.proof import prove_same_graph
from hlo_opt.passes import preset_names
from hlo_opt.passes.run import run

DUMPS = Path(__file__).resolve().parent.parent.parent / "testdata" / "dumps"


def seconds(action: Callable[[], object]) -> float:
    """Processor seconds of one run, without collecting garbage."""
    gc.collect()
    gc.disable()
    start = time.process_time()
    action()
    taken = time.process_time() - start
    gc.enable()
    return taken


def visited(module: hlo_opt.Module) -> int:
    """Instructions with all bodies put back, each body once for what it is given."""
    numbering = Numbering(module, Table())
    numbering.entry()
    return numbering.visited


def measure(path: Path, preset: str, runs: int) -> float:
    """Print the figures of one module. Returns the share."""
    text = path.read_text(encoding="utf-8")
    module = hlo_opt.parse(text)
    fused = run(module, preset, simplify="never").module
    parsing = proving = math.inf
    for _ in range(runs):
        parsing = min(parsing, seconds(lambda: hlo_opt.parse(text)))
        proving = min(proving, seconds(lambda: prove_same_graph(module, fused)))
    count = sum(len(c.instructions) for c in module.computations)
    share = proving / parsing
    print(
        f"{path.stem[:66]:66} {count:7,} {visited(module):7,} {visited(fused):7,}  {1e3 * parsing:8.1f} ms  "
        f"{1e3 * proving:8.1f} ms  {share:6.2f}",
        flush=True,
    )
    return share


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, metavar="FILE|DIR")
    parser.add_argument("--preset", default="xla-2023", choices=preset_names())
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    corpus = os.environ.get("HLO_OPT_CORPUS")
    given: list[Path] = arguments.paths or [Path(corpus) / "real" / "fusion_input" if corpus else DUMPS]
    paths = [p for path in given for p in (path.glob("*.hlo") if path.is_dir() else [path])]
    paths.sort(key=lambda p: (p.stat().st_size, p.name))
    print(f"{arguments.preset:66} {'read':>7} {'before':>7} {'after':>7}  {'parsing':>11}  {'proof':>11}  {'share':>6}")
    shares = [measure(path, arguments.preset, arguments.runs) for path in paths]
    mean = math.exp(sum(map(math.log, shares)) / len(shares))
    print(f"geometric mean {mean:.2f}, largest {max(shares):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
