"""Single mistakes planted in real programs: does `check` see them, with inputs that it draws itself?

    python -m scripts.plant_programs [DIR] [--count 300] [--seed 0] [--show] [--only KIND] [--keep FOLDER]

Each mistake is in one module of DIR (testdata/dumps), of a kind and at a place drawn by the seed: see `scripts.plants`.
The original is checked against the module with the mistake. What `check` accepts is looked at once more: it is neutral
where both modules have one value graph after simplification, or where they give the same bits on many draws of all
magnitudes (--draws) that include ties, infinities and NaN; otherwise it is undetected, and must be called weak or
unreached: `check` says of an output that it can say little about it, or names an instruction among those that the
mistake touches as one that did not go all its ways. Exit code 1 when more than --most are undetected, or one of them is
not called anything.
"""

from __future__ import annotations

import argparse
import collections
import functools
import random
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import hlo_opt
from hlo_opt.diag import HloOptError, ProofError
from hlo_opt.evaluate import device_inputs, evaluate_devices
from hlo_opt.evaluate.inputs import Style
from hlo_opt.evaluate.reach import Way
from hlo_opt.fusion.proof import prove_same_graph
from hlo_opt.ir import Module
from hlo_opt.ir.values import Array
from hlo_opt.ops.control.meaning import same_bits
from hlo_opt.runtime.check.compare import compare_outputs, reached
from hlo_opt.runtime.check.mistakes import Tried
from scripts.plants import KINDS, Plant, plant

STEPS = 50_000
"""Iterations of loops, of a program with a mistake; one that takes more has been seen."""
EXACT, NOISE = 1e-9, 1e-13
"""In f64, elements of modules that compute the same differ by less than this share of themselves, and of the largest
element."""
WIDER = re.compile(r"\b(?:f32|bf16|f16)(?=\[)")


@dataclass(frozen=True)
class Found:
    """What became of a mistake: seen, neutral, or not seen and why that may be so."""

    name: str
    plant: Plant
    verdict: str
    why: str


@functools.cache
def original(path: Path) -> tuple[Module, Tried]:
    """A program, and the draws that `check` makes of it."""
    module = hlo_opt.parse(path.read_text(), filename=path.name)
    return module, reached(module, 0, None)


def judged(path: Path, found: Plant, draws: int, quick: bool) -> Found:
    """Whether `check` sees the mistake, and what it says where it does not."""
    module, inputs = original(path)
    weak = ""
    try:
        for draw in inputs.draws:
            got = evaluate_devices(found.module, draw.inputs, max_steps=STEPS)
            wants = draw.outputs
            if all(same_bits(a, b) for w, g in zip(wants, got, strict=True) for a, b in zip(w, g, strict=True)):
                continue
            if quick:
                seen = any(differs(w, g) for w, g in zip(wants, got, strict=True))
            else:
                by_device, _ = compare_outputs(module, found.module, draw.inputs, wants, got, 0)
                reports = [r for own in by_device for r in own]
                seen = not all(r.ok for r in reports)
                weak = weak or next((f"out{r.output} is weak: {r.weak}" for r in reports if r.weak), "")
            if seen:
                return Found(path.name, found, "seen", f"draw {draw.style.number}")
    except HloOptError as error:
        return Found(path.name, found, "seen", str(error.code))
    why = neutral(module, found.module, draws)
    if why:
        return Found(path.name, found, "neutral", why)
    called = calls(found, inputs.unseen) or weak
    return Found(path.name, found, "called" if called else "not seen", called)


def differs(wants: Sequence[Array], gots: Sequence[Array]) -> bool:
    """A rough comparison: some element is off by thousands of units in its last place."""
    for want, got in zip(wants, gots, strict=True):
        if want.dtype.kind not in "fcV":
            if not same_bits(want, got):
                return True
            continue
        eps = 2.0**-10 if want.dtype.itemsize == 2 else 2.0**-23 if want.dtype.itemsize == 4 else 2.0**-52
        a, b = (np.asarray(x, np.complex128 if x.dtype.kind == "c" else np.float64) for x in (want, got))
        with np.errstate(all="ignore"):
            near = (
                (a == b)
                | (np.isnan(a) & np.isnan(b))
                | (np.isfinite(b) & (abs(a - b) <= (100 if eps > 1e-5 else 1000) * eps * np.maximum(abs(a), abs(b))))
            )
        if not near.all():
            return True
    return False


def neutral(module: Module, other: Module, draws: int) -> str:
    """Why a mistake changes nothing; empty where it changes something."""
    try:
        prove_same_graph(module, other)
        return "one value graph"
    except ProofError:
        pass
    try:
        wide = [hlo_opt.parse(WIDER.sub("f64", str(m))) for m in (module, other)]
        for m in wide:
            hlo_opt.verify(m)
    except HloOptError:
        wide = [module, other]
    for number in range(1, draws + 1):
        style = Style(
            100 + number,
            loudness=30.0,
            mixed=True,
            axis=number % 3 - 1,
            whole=number % 4 == 0,
            beyond=0.2 * (number % 3 == 0),
            special=0.01 * (number % 5 == 4),
        )
        inputs = device_inputs(wide[0], number, style=style)
        try:
            a, b = ([o for own in evaluate_devices(m, inputs, max_steps=STEPS) for o in own] for m in wide)
        except HloOptError:
            return ""
        if not all(close(x, y) for x, y in zip(a, b, strict=True)):
            return ""
    return f"{draws} draws in {'f64' if wide[0] is not module else 'its own types'}"


def close(a: Array, b: Array) -> bool:
    if same_bits(a, b):
        return True
    if a.dtype.kind not in "fc":
        return False
    with np.errstate(all="ignore"):
        largest = np.max(np.where(np.isfinite(a), abs(a), 0), initial=0)
        same = (
            (a == b)
            | (np.isnan(a) & np.isnan(b))
            | (np.isfinite(b) & (abs(a - b) <= EXACT * np.maximum(abs(a), abs(b)) + NOISE * largest))
        )
    return bool(np.all(same))


def calls(found: Plant, unreached: Sequence[Way]) -> str:
    """What `check` says about the place of the mistake: a way that nothing went, there or at what comes of it."""
    names = {found.place}
    for computation in found.module.computations:
        for instruction in computation.instructions:
            if any(o.name in names for o in instruction.operands):
                names.add(instruction.name)
    hits = sorted(
        (way for way in unreached if way.instruction.name in names), key=lambda w: w.instruction.name != found.place
    )
    return str(hits[0]) if hits else ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("testdata/dumps"))
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=40, help="that show a mistake to be neutral")
    parser.add_argument(
        "--most", type=int, default=10, help="mistakes that may stay unseen, if they are called something"
    )
    parser.add_argument("--only", help="part of the name of a dump")
    parser.add_argument("--quick", action="store_true", help="compare roughly instead of with check")
    parser.add_argument("--show", action="store_true", help="every mistake, not only those that are not seen")
    options = parser.parse_args(arguments)
    paths = [
        p for p in sorted(options.folder.glob("*.hlo")) if p.name.count(".") == 1
    ]  # other forms of a dump are the same program
    paths = [p for p in paths if options.only is None or options.only in p.name]
    count: collections.Counter[tuple[str, str]] = collections.Counter()
    number = 0
    planted = 0
    while planted < options.count:
        generator = random.Random(f"{options.seed}:{number}")
        path = generator.choice(paths)
        found = plant(path.read_text(), generator)
        number += 1
        if found is None:
            continue
        planted += 1
        result = judged(path, found, options.draws, options.quick)
        count[found.kind, result.verdict] += 1
        if options.show or result.verdict != "seen":
            print(
                f"{number - 1:4} {result.verdict:8} {path.name}: {found.place}: {found.kind}: {found.what}; "
                f"{result.why}",
                flush=True,
            )
    verdicts = ("seen", "neutral", "called", "not seen")
    print(f"{'':14}" + "".join(f"{v:>10}" for v in verdicts))
    for kind in KINDS:
        print(f"{kind:14}" + "".join(f"{count[kind, v]:10}" for v in verdicts))
    totals = {v: sum(count[kind, v] for kind in KINDS) for v in verdicts}
    print(f"{'all':14}" + "".join(f"{totals[v]:10}" for v in verdicts))
    return int(totals["called"] + totals["not seen"] > options.most or totals["not seen"] > 0)


if __name__ == "__main__":
    sys.exit(main())
