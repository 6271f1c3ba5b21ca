"""What `hlo-opt simplify` leaves of texts against what XLA:GPU's simplification leaves of them.

    python -m scripts.bench.simplify_xla TEXTS DUMPS [--match REGEX] [--check] [--all]

TEXTS is a folder of HLO texts. DUMPS has a folder for each, of the same stem, in which XLA wrote its modules between
passes (`--xla_dump_hlo_as_text --xla_dump_hlo_pass_re=flatten-call-graph`, the first pass of its layout assignment).
XLA's module is the one that its layout assignment begins with: all simplification is done, nothing is fused. Both sides
count the instructions of all computations. Where XLA had to write the interface of a text anew (tuples taken apart,
calls gone), both begin with what XLA began with, `before_optimizations`. A text that XLA leaves as it is, since its
rule is off, is left out and counted, and so is one in which it calls a library by then that the text does not call; one
that XLA:GPU does not compile has no figure. With `--check`, each original and its simplified module run on the same
inputs, a text whose arrays do not fit with smaller sizes on which the same rules fire; what has no values to compare
(loops that never end, operations without a meaning) is named.

Prints the texts of which we leave more than XLA, worst first, and the shares. Exit code 1 where a text fails, or the
share is below 80 %.
"""

from __future__ import annotations

import argparse
import collections
import math
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import hlo_opt
from hlo_opt.evaluate.devices import device_inputs, evaluate_devices
from hlo_opt.evaluate.memory import check_memory
from hlo_opt.ir import Module, Shape
from hlo_opt.ops.collective.module_devices import for_devices, named
from hlo_opt.passes.run import Outcome
from hlo_opt.passes.simplified import check_certificate, simplified
from hlo_opt.runtime.check.compare import check

SHARE = 0.8
"""Of the texts with a figure, so many are to have no more instructions than XLA's module."""
AFTER_SIMPLIFICATION = "*.layout_assignment.after_pipeline-start.*"
AT_FIRST = "*before_optimizations.txt"
MEMORY = 400_000_000
"""Bytes that a run may take."""
STEPS = 20_000
"""Iterations of all loops together; what takes more is taken to have no end."""


@dataclass(frozen=True)
class Line:
    """Instructions of a text as it is, as we leave it and as XLA leaves it, and the libraries that only XLA calls;
    `wrong` says why it does not hold, `untold` why it has no values to compare, and
    `shrunk` whether smaller sizes ran."""

    name: str
    start: int
    ours: int
    xla: int | None
    libraries: int
    wrong: str | None
    untold: str | None
    shrunk: bool

    @property
    def is_open(self) -> bool:
        """Whether XLA has a rule for it that is on, and leaves the rest to its own kernels."""
        return self.xla is not None and self.xla < self.start and not self.libraries


def size(module: Module) -> int:
    """The instructions of all computations."""
    return sum(len(c.instructions) for c in module.computations)


def libraries(module: Module) -> set[str]:
    """The targets of custom calls."""
    calls = (i for c in module.computations for i in c.instructions if i.opcode == "custom-call")
    return {i.word("custom_call_target") for i in calls}


def dumped(folder: Path, pattern: str) -> Module | None:
    """A module that XLA wrote; None where there is none, or none that can be read: some have a computation after its
    use, which XLA does not read either."""
    found = sorted((folder / "dump").glob(pattern))
    try:
        return hlo_opt.parse(found[0].read_text()) if found else None
    except hlo_opt.ParseError:
        return None


def interface(module: Module) -> tuple[list[str], str]:
    """The shapes that the entry takes and gives, without layouts."""
    entry = module.entry
    return [_spelled(p.shape) for p in entry.parameters], _spelled(entry.root.shape)


def _spelled(shape: Shape) -> str:
    return re.sub(r"\{[^}]*\}", "", str(shape))


def compared(module: Module, made: Module) -> tuple[str | None, str | None]:
    """How two modules disagree on drawn inputs, and why there are no values to compare: one of both, or none."""
    try:
        own = for_devices(module, named(module))
        evaluate_devices(own, device_inputs(own, seed=1), max_steps=STEPS, memory_limit=MEMORY)
    except hlo_opt.EvaluationError as error:
        return None, error.message
    try:
        result = check(module, made, seed=1, backend="numpy", memory_limit=3 * MEMORY)
    except hlo_opt.HloOptError as error:
        return str(error), None
    return None if result.ok else "outputs differ", None


def fits(module: Module) -> bool:
    try:
        check_memory(for_devices(module, named(module)), MEMORY, devices=math.prod(named(module)), drawn=True)
    except hlo_opt.EvaluationError:
        return False
    return True


def smaller(text: str) -> Module | None:
    """The text with all large numbers divided by ten, or else each made small wherever it stands, as far as it stays
    valid and until it can run; None where that is not enough."""
    large = sorted({int(n) for n in re.findall(r"\d+", text) if 20 <= int(n) < 10**9}, reverse=True)
    for numbers, by in [(large, 10), *(([n], n // 2) for n in large)]:
        names = "|".join(map(str, numbers))
        at = rf"(?<![A-Za-z0-9])({names})(?![0-9])"
        changed = re.sub(at, lambda match, by=by: str(int(match[1]) // by), text)  # type: ignore[misc]
        try:
            module = hlo_opt.parse(changed)
            hlo_opt.verify(module)
        except hlo_opt.HloOptError:
            continue
        if fits(module):
            return module
        text = changed
    return None


def rules_of(outcome: Outcome) -> set[str]:
    return {step.rule for steps in outcome.context.simplified for step in steps}


def lines(texts: Path, dumps: Path, match: str, checks: bool) -> Iterator[Line]:
    for path in sorted(texts.glob("*.hlo")):
        if not (dumps / path.stem).is_dir() or not re.search(match, path.stem):
            continue
        try:
            module = hlo_opt.parse(path.read_text(), filename=path.name)
            hlo_opt.verify(module)
        except hlo_opt.HloOptError:
            continue  # what XLA parses, and refuses to verify
        xla, start = dumped(dumps / path.stem, AFTER_SIMPLIFICATION), dumped(dumps / path.stem, AT_FIRST)
        if start is not None and interface(start) != interface(module):
            module = start
        outcome = simplified(module)
        wrong, untold, shrunk = None, None, False
        try:
            check_certificate(outcome)
            if checks:
                wrong, untold = compared(module, outcome.module)
                small = None if fits(module) else smaller(str(module))
                own = None if small is None else simplified(small)
                if small is not None and own is not None and rules_of(own) == rules_of(outcome):
                    (wrong, untold), shrunk = compared(small, own.module), True
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        ours, theirs = size(outcome.module), None if xla is None else size(xla)
        called = 0 if xla is None else len(libraries(xla) - libraries(module))
        yield Line(path.stem, size(module), ours, theirs, called, wrong, untold, shrunk)


def report(found: list[Line], every: bool) -> int:
    """Print the table. Returns the exit code."""
    measured = [x for x in found if x.is_open and x.xla is not None]
    worse = [x for x in measured if x.xla is not None and x.ours > x.xla]
    for line in sorted(measured if every else worse, key=lambda x: (x.xla or 0) - x.ours):
        print(f"{line.start:5} -> {line.ours:5}  XLA {line.xla:5}  {line.name}")
    wrong = [x for x in found if x.wrong is not None]
    for line in wrong:
        print(f"wrong: {line.name}: {line.wrong}")
    for line in found:
        if line.untold is not None:
            print(f"nothing to compare: {line.name}: {line.untold}")
    for name in (x.name for x in found if x.shrunk):
        print(f"compared with smaller sizes: {name}")
    by_file = collections.Counter(x.name.rsplit("__", 1)[0] for x in worse)
    for name, count in by_file.most_common(12):
        print(f"{count:5} worse of {sum(x.name.startswith(name) for x in measured):4}  {name}")
    called = sum(x.libraries > 0 for x in found)
    unchanged = sum(x.xla is not None and not x.is_open for x in found) - called
    share = 1 - len(worse) / len(measured) if measured else 0.0
    print(
        f"{len(found)} texts; {sum(x.xla is None for x in found)} that XLA:GPU does not compile, {unchanged} in which "
        f"it finds nothing, {called} in which it calls a library; of the other {len(measured)} we leave no more than "
        f"XLA in {share:.1%}; {len(wrong)} do not hold"
    )
    fewer = sum(x.xla is not None and x.ours < x.xla for x in measured)
    total = sum(x.ours for x in measured), sum(x.xla or 0 for x in measured)
    print(f"fewer in {fewer}; instructions of all: {total[0]:,} against {total[1]:,}")
    return 0 if share >= SHARE and not wrong else 1


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path)
    parser.add_argument("dumps", type=Path)
    parser.add_argument("--match", default=r"hlo__transforms__simplifiers__|_simplifier_test", help="of stems")
    parser.add_argument("--check", action="store_true", help="run both modules on the same inputs")
    parser.add_argument("--all", action="store_true", dest="every", help="list each text")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    return report(list(lines(given.texts, given.dumps, given.match, given.check)), given.every)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
