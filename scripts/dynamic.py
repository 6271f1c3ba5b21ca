"""Every dump of `testdata` with its batch made dynamic: does it agree at five sizes, or which code refuses it?

    python -m scripts.dynamic [--backend host] [--most 64] [DUMP...]

The batch is dimension 0 of the first parameter whose request is not refused, or another dimension where none has one;
what is refused for all is shown with the code of the first. Sizes are those that `check --dynamic` tries.
Exit status 1 when one disagrees.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import hlo_opt
from hlo_opt.analysis.sizes.resize import SizeRequest
from hlo_opt.cli.fusing import Fusing
from hlo_opt.cli.sizes import Sized
from hlo_opt.diag import HloOptError, UsageError
from hlo_opt.runtime.check.sizes import check_sizes, tried
from hlo_opt.runtime.family.kernels import SizedExecutable

DUMPS = Path(__file__).resolve().parent.parent / "testdata" / "dumps"


def requests(module: hlo_opt.Module, most: int) -> list[SizeRequest]:
    """A request for each dimension of the parameters, dimension 0 of all first, with a range up to twice its size."""
    leaves = [leaf for p in module.entry.parameters for leaf in p.shape.leaves()]
    places = sorted((d, k, size) for k, leaf in enumerate(leaves) for d, size in enumerate(leaf.dimensions) if size > 1)
    return [SizeRequest(k, d, None, min(max(2 * size, 8), max(most, 8))) for d, k, size in places]


def outcome(path: Path, backend: str, most: int) -> tuple[str, str]:
    """What came of a dump, `agrees`, `differs` or a code, and the details."""
    module = hlo_opt.parse(path.read_text(), filename=path.name)
    refusals: list[UsageError] = []
    for request in requests(module, most):
        try:
            sized = Sized.of(module, [f"{request}=..{request.most}"])
            _, kernels = sized.fuse(Fusing())
        except UsageError as refusal:
            refusals.append(refusal)
            continue
        original, ties = sized.original, kernels.ties
        reports = check_sizes(original, SizedExecutable(kernels, backend), tried(original))
        wrong = [str(size) for size, report in reports.items() if not report.ok]
        told = f"{request} {ties.range}: {len(kernels.variants)} variants, {len(kernels.kernels)} kernels"
        if wrong:
            return "differs", f"{told}, at {', '.join(wrong)}: {reports[int(wrong[0])]}"
        frozen = f", frozen {', '.join(text for _, text in original.frozen)}" if original.frozen else ""
        return "agrees", f"{told}, sizes {', '.join(map(str, reports))}{frozen}"
    if not refusals:
        return "no size", "no parameter has a dimension above 1"
    return refusals[0].code, refusals[0].message


def main(arguments: list[str] | None = None) -> int:
    """Print the table. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dumps", nargs="*", type=Path)
    parser.add_argument("--backend", default="host")
    parser.add_argument("--most", type=int, default=64, help="the greatest size of a range")
    options = parser.parse_args(arguments)
    every = options.dumps or [p for p in sorted(DUMPS.glob("*.hlo")) if p.name.count(".") == 1]
    counts: Counter[str] = Counter()
    for path in every:
        started = time.perf_counter()
        try:
            verdict, details = outcome(path, options.backend, options.most)
        except HloOptError as error:
            verdict, details = error.code or "error", error.message
        counts[verdict] += 1
        print(f"{path.stem:36} {verdict:8} {time.perf_counter() - started:5.1f} s  {details}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    return int(bool(counts["differs"]))


if __name__ == "__main__":
    sys.exit(main())
