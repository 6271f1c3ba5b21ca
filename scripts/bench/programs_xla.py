"""The programs of `scripts.programs.MEASURED` against what XLA:GPU makes of them.

    python -m scripts.bench.programs_xla write TEXTS
    python -m scripts.bench.programs_xla table TEXTS DUMPS [--match REGEX]

`write` writes each program's raw HLO. DUMPS has a folder for each text, of the same stem, in which XLA wrote its
modules between passes (`--xla_dump_hlo_as_text --xla_dump_hlo_pass_re=fusion`); what it has made when it begins to
rename fusions is its result. `table` fuses each text with the preset `default` and prints kernels (each once) and bytes
(by XLA's cost analysis, loop bodies once) of both, worst bytes first, and for modules with loops launches and bytes
times trip counts as our plans have them. Exit code 1 where a program has more kernels or bytes than XLA's.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.ir import Module
from scripts.bench.counted import counts_of
from scripts.bench.fuse_real import cost

RESULT = "*before_rename_fusions*"
TARGET = "h100_sxm"
SLACK = 1.0005
"""Bytes may be so much more: scalars that one side hands on and the other does not."""


@dataclass(frozen=True)
class Figures:
    """Kernels, each once; bytes with loop bodies once; launches and bytes of a whole run."""

    kernels: int
    bytes: float
    launches: int
    moved: float


def figures(text: str, module: Module) -> Figures:
    counts = counts_of(module, target(TARGET))
    return Figures(counts.kernels, cost(text)[0] + in_calls(module), counts.launches, counts.bytes)


def in_calls(module: Module) -> int:
    """Bytes that custom calls take and give: the analysis says nothing of them."""
    calls = [i for c in module.computations for i in c.instructions if i.opcode == "custom-call"]
    return sum(
        leaf.stored_bytes for i in calls for s in (i.shape, *(o.shape for o in i.operands)) for leaf in s.leaves()
    )


def measured(path: Path, dumps: Path) -> tuple[Figures, Figures] | None:
    """Ours and XLA's; None where XLA left no result."""
    found = sorted((dumps / path.stem / "dump").glob(RESULT))
    if not found:
        return None
    fused, _ = hlo_opt.fuse(hlo_opt.parse(path.read_text()), target=TARGET)
    theirs = found[0].read_text()
    return figures(str(fused), fused), figures(theirs, hlo_opt.parse(theirs))


def table(texts: Path, dumps: Path, match: str) -> int:
    rows = []
    for path in sorted(texts.glob("*.hlo")):
        if re.search(match, path.stem):
            found = measured(path, dumps)
            if found is None:
                print(f"{path.stem}: XLA:GPU did not compile it")
            else:
                rows.append((path.stem, *found))
    rows.sort(key=lambda row: -row[1].bytes / max(1.0, row[2].bytes))
    worse = 0
    print(
        f"{'':22} {'kernels':>7} {'XLA':>4} {'MB':>9} {'XLA':>9} {'ratio':>6} "
        f"{'launches':>8} {'XLA':>5} {'whole run':>9}"
    )
    for name, ours, xla in rows:
        looped = ours.launches != ours.kernels or xla.launches != xla.kernels
        bytes_more = ours.moved > SLACK * xla.moved if looped else ours.bytes > SLACK * xla.bytes
        more = ours.launches > xla.launches or ours.kernels > xla.kernels or bytes_more
        worse += more
        print(
            f"{name:22} {ours.kernels:7} {xla.kernels:4} {ours.bytes / 1e6:9.3f} {xla.bytes / 1e6:9.3f} "
            f"{ours.bytes / max(1.0, xla.bytes):6.3f} {ours.launches:8} {xla.launches:5} "
            f"{ours.moved / max(1.0, xla.moved):9.3f} {'worse' if more else ''}"
        )
    mean = [
        math.exp(sum(map(math.log, v)) / max(1, len(rows)))
        for v in zip(*(_shares(o, x) for _, o, x in rows), strict=True)
    ]
    print(f"{len(rows)} programs, {worse} worse; geometric mean of kernels {mean[0]:.3f}, of bytes {mean[1]:.3f}")
    return 1 if worse else 0


def _shares(ours: Figures, xla: Figures) -> tuple[float, float]:
    return max(1, ours.kernels) / max(1, xla.kernels), max(1.0, ours.bytes) / max(1.0, xla.bytes)


def write(folder: Path) -> int:
    """The raw HLO of each program."""
    from scripts.dump import lower
    from scripts.programs import measured_cases

    folder.mkdir(parents=True, exist_ok=True)
    for name, case in measured_cases().items():
        (folder / f"{name}.hlo").write_text(lower(case).to_string())
    return 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "table"))
    parser.add_argument("texts", type=Path)
    parser.add_argument("dumps", type=Path, nargs="?")
    parser.add_argument("--match", default="", help="of program names")
    given = parser.parse_args(arguments)
    if given.what == "write":
        return write(given.texts)
    if given.dumps is None:
        parser.error("table needs DUMPS")
    warnings.simplefilter("ignore")
    return table(given.texts, given.dumps, given.match)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
