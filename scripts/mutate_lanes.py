"""Faults planted in the lanes form of kernels, which `run`, `bench` and the hook for JAX run: `check` must catch each.

    python -m scripts.mutate_lanes [FILE|DIR...] [--count 60] [--seed 0] [--limit 120]

FILE and DIR are modules, `testdata/kernels` and `testdata/dumps` where none are given. Modules come in turn, in an
order that the seed draws; a kernel of the module, a kind of fault, and a place for it in the text of the kernel's lanes
form are drawn (`scripts.kernel_faults` says which there are). Each fault has a process of its own. As in
`scripts.mutate_kernels`, what the compiler refuses, and what gives the same machine code or the same bits on many
draws, is no fault. Exit code 1 where one survives.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from unittest import mock

import hlo_opt
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.lanes import has_lanes, lanes_unit
from hlo_opt.diag import HloOptError
from hlo_opt.evaluate.devices import device_inputs
from hlo_opt.evaluate.reach import styles
from hlo_opt.ir import Module
from hlo_opt.runtime.check import compare
from hlo_opt.runtime.host import library
from hlo_opt.runtime.host.compiler import FLAGS, find_compiler
from hlo_opt.runtime.host.crashes import crashes_told
from hlo_opt.runtime.host.lanes_schedule import lanes_schedule
from scripts.kernel_faults import sites
from scripts.mutate_kernels import FOLDERS, MOST_ELEMENTS, ROOT, Known, _child, same_values

SEEDS = 3
"""A fault is shown to change nothing by so many draws of each style."""
SECONDS = 120.0
_REFUSED = "HLO511"

T = TypeVar("T")


@dataclass(frozen=True)
class Fault:
    """A fault in a kernel of a module: the text of the kernel's lanes form, and what stands there instead."""

    module: str
    symbol: str
    kind: str
    text: str
    before: str
    after: str


class Modules:
    """The modules, fused; what a check of each finds out before it looks at a kernel is found out once."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = {file.name: file for file in files}
        self._of: dict[str, tuple[Module, Module]] = {}
        self._known: dict[str, Known] = {}

    def of(self, name: str) -> tuple[Module, Module]:
        """A module and its fused form."""
        if name not in self._of:
            file = self.files[name]
            module = hlo_opt.parse(file.read_text(encoding="utf-8"), filename=str(file))
            self._of[name] = module, hlo_opt.fuse(module)[0]
        return self._of[name]

    def known(self, name: str) -> Known:
        """What a check of it needs."""
        if name not in self._known:
            self._known[name] = Known(*self.of(name))
        return self._known[name]

    def draw(self, chance: random.Random, name: str) -> Fault | None:
        """A fault in a kernel of a module; None where it has no kernel for one."""
        kernels = [k for k in lanes_schedule(self.of(name)[1]).kernels if has_lanes(k) and _elements(k) < MOST_ELEMENTS]
        if not kernels:
            return None
        kernel = chance.choice(kernels)
        piece = piece_of(kernel)
        lines = piece.split("\n")
        places = list(sites(lines, range(len(lines))))
        if not places:
            return None
        kind = chance.choice(sorted({place.kind for place in places}))
        place = chance.choice([p for p in places if p.kind == kind])
        old = lines[place.line]
        lines[place.line] = place.planted(old, chance.choice([k for k, other in enumerate(place.others) if other]))
        text = f"{old.strip()}  ->  {lines[place.line].strip()}"
        return Fault(name, kernel.symbol, kind, text, piece, "\n".join(lines))


def piece_of(kernel: Kernel) -> str:
    """What is a kernel's own in the unit of its lanes form."""
    return lanes_unit([kernel]).split("\nnamespace kernel_0 {\n", 1)[1]


def _elements(kernel: Kernel) -> int:
    return sum(shape.element_count for shape in (*kernel.inputs, *kernel.outputs))


def planted(fault: Fault, work: Callable[[], T]) -> T:
    """What is done while the kernel has the fault."""

    def unit(kernels: Sequence[Kernel]) -> str:
        return lanes_unit(kernels).replace(fault.before, fault.after, 1)

    with mock.patch.object(library, "lanes_unit", unit):
        return work()


def says(modules: Modules, fault: Fault) -> str:
    """`agrees`, `differs`, `fails`, or `refused` by the compiler."""
    module, fused = modules.of(fault.module)
    known = modules.known(fault.module)
    compare.reached = known.reached  # type: ignore[assignment]
    compare.analyse_devices = known.analyse_devices  # type: ignore[assignment,attr-defined]
    try:
        found = planted(fault, lambda: compare.check(module, fused, backend="host", form="lanes"))
        return "agrees" if found.ok else "differs"
    except HloOptError as error:
        return "refused" if error.code == _REFUSED else "fails"


def outcome(modules: Modules, fault: Fault, limit: float) -> str:
    """`caught`, `refused`, `same`, `neutral` or `survives`."""
    answer = _child(lambda: says(modules, fault), limit)
    if answer != "agrees":
        return "refused" if answer == "refused" else "caught"
    if _machine_code(fault.before) == _machine_code(fault.after):
        return "same"
    return "neutral" if _child(lambda: _shown(modules, fault), SECONDS) == "neutral" else "survives"


def _shown(modules: Modules, fault: Fault) -> str:
    """`neutral` where the module gives the same bits with and without the fault on all draws."""
    module, fused = modules.of(fault.module)
    right = hlo_opt.compile(fused, "host")
    wrong = planted(fault, lambda: hlo_opt.compile(fused, "host"))
    for seed in range(SEEDS):
        for style in styles():
            inputs = device_inputs(module, seed, style=style)
            with crashes_told():  # memory that holds no results of an earlier run
                expected, actual = (e.run_devices(inputs) for e in (right, wrong))
            for one, other in zip(expected, actual, strict=True):
                if not all(same_values(a, b) for a, b in zip(one, other, strict=True)):
                    return "differs"
    return "neutral"


def _machine_code(piece: str) -> str:
    unit = lanes_unit([]) + "\nnamespace kernel_0 {\n" + piece
    command = [*find_compiler(), *FLAGS, "-march=native", "-x", "c++", "-S", "-o", "-", "-"]
    return subprocess.run(command, input=unit, capture_output=True, text=True, check=False).stdout


def drawn(modules: Modules, count: int, seed: int) -> Iterator[Fault]:
    """Faults, none twice, one of each module in turn."""
    chance = random.Random(seed)
    order = sorted(modules.files)
    chance.shuffle(order)
    seen: set[str] = set()
    for turn in range(20 * count):
        fault = modules.draw(chance, order[turn % len(order)])
        if fault is not None and fault.after not in seen:
            seen.add(fault.after)
            yield fault


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=120)
    given = parser.parse_args(arguments)
    paths = given.paths or [ROOT / folder for folder in FOLDERS]
    files = [file for path in paths for file in (sorted(path.glob("*.hlo")) if path.is_dir() else [path])]
    modules = Modules([file for file in files if ".frames." not in file.name and ".classic." not in file.name])
    counts = collections.Counter[str]()
    with tempfile.TemporaryDirectory(prefix="mutate-") as cache:
        os.environ.update(HLO_OPT_CACHE=cache, OPENBLAS_NUM_THREADS="1", HLO_OPT_THREADS="1")
        for fault in drawn(modules, given.count, given.seed):
            modules.known(fault.module)
            found = outcome(modules, fault, given.limit)
            counts[found] += 1
            print(f"{found:9} {fault.module:32} {fault.symbol:40} {fault.kind:9} {fault.text[:160]}", flush=True)
            if counts["caught"] + counts["survives"] >= given.count:
                break
    planted_all = counts["caught"] + counts["survives"]
    print(
        f"{counts['caught']} of {planted_all} caught; {counts['same']} more were the same machine code, "
        f"{counts['neutral']} gave the same bits, {counts['refused']} the compiler refuses"
    )
    return 1 if counts["survives"] else 0


if __name__ == "__main__":
    sys.exit(main())
