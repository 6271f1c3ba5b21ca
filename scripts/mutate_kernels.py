"""Faults planted in the CUDA text of kernels: each must be caught by `check --backend host` or by `--sanitize`.

    python -m scripts.mutate_kernels [FILE|DIR...] [--count 300] [--seed 0] [--only WORD] [--jobs 2] [--limit 60]
    [--survivors FILE] [--functions]

FILE and DIR are modules, `testdata/kernels` and `testdata/dumps` where none are given. Each is fused, and a map says
which function of an emitter (`hlo_opt/codegen`), of a lowering (`hlo_opt/ops`) or which device function (a helper of
`codegen/device`) wrote each line of its kernels. Functions come in turn, in an order that the seed draws; for each one
a kernel that it wrote a part of, a token of that part, and another text for that token are drawn: a bound, an offset, a
mask or another number, a comparison (and with it the rule of ties), an operator, a type, the thread's or block's
number, a direction of a shuffle, an atomic function or a plain update in its place, a barrier or fence left out, a
statement or a guard left out, the branches of a choice swapped, a returned value lost. `--only` takes functions whose
name holds a word. The same seed plants the same faults.

Each fault has a process of its own, with a limit in seconds (one that runs longer counts as caught). A text that the
compiler refuses is no fault, and another one is drawn. So is what neither way catches and the compiler, asked for
speed, makes the same machine code of. Before faults are planted in a module, it must agree as it is, both ways: else it
is named and left out. What one module does not show is planted in others, at the same place of a line of the same form.
What gives the same bits on many draws of every style and is not seen elsewhere changes nothing: it is listed, but is no
fault either. The table counts faults by function; `--survivors` writes the texts of those that nothing caught, and
`faults_equivalent.toml` says of some why they change nothing. Exit code 1 where less than 97 % are caught, or a
function that writes kernels writes none of these.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import hlo_opt
from hlo_opt.codegen.host_plain import plain_unit
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.diag import HloOptError
from hlo_opt.evaluate.devices import device_inputs
from hlo_opt.evaluate.reach import styles
from hlo_opt.ir import Module
from hlo_opt.plans.plan import Plan
from hlo_opt.runtime.check import compare
from hlo_opt.runtime.host.library import find_compiler
from hlo_opt.runtime.rounding.analysis import analyse_devices
from hlo_opt.runtime.schedule import build_schedule, lowering
from scripts.kernel_faults import form, sites
from scripts.kernel_writers import Tracer, writers

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("testdata/kernels", "testdata/dumps")
EQUIVALENT = Path(__file__).with_name("faults_equivalent.toml")
MOST_ELEMENTS = 1 << 21
"""Of all arrays of a kernel that faults are planted in."""
MOST_ELSEWHERE = 16
"""Other modules in which a fault is looked for that one module does not show."""
MOST_BESIDE_NEUTRAL = 4
"""And how many where it changes nothing in that one."""
NEUTRAL_SEEDS, NEUTRAL_SECONDS = 10, 120.0
"""A fault is shown to change nothing by so many draws of each style, and within so many seconds."""
_REFUSED = "HLO511"
"""The code where the compiler refuses a kernel."""


@dataclass(frozen=True)
class Fault:
    """A kernel with a fault, and where it was planted: at which place of its line, and which of the place's texts."""

    function: str
    module: str
    kernel: Kernel
    line: int
    kind: str
    text: str
    source: str
    place: int = 0
    which: int = 0

    @property
    def old(self) -> str:
        """The line as it is without the fault."""
        return self.kernel.source.split("\n")[self.line]


class Known:
    """What `check` finds out of a module before it looks at a kernel: draws, and how far each may be rounded. It is the
    same for every fault."""

    def __init__(self, module: Module, fused: Module) -> None:
        module, _ = compare.on_named_devices(module, fused)
        self.draws = compare.reached(module, 0, None)
        self._analyses = {
            id(draw.inputs): analyse_devices(module, draw.inputs, 0, rewritten=False) for draw in self.draws.draws
        }

    def reached(self, *_: Any) -> Any:
        return self.draws

    def analyse_devices(self, module: Module, inputs: Any, seed: int, *, rewritten: bool, **how: Any) -> Any:
        if rewritten:
            return analyse_devices(module, inputs, seed, rewritten=True, **how)
        return self._analyses[id(inputs)]


class Modules:
    """The modules, fused, their kernels, and which functions wrote them."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.of: dict[str, tuple[Module, Module]] = {}
        self.reached: dict[str, list[tuple[int, str, Kernel]]] = collections.defaultdict(list)
        self.maps: dict[str, dict[str, list[int]]] = {}
        self.known: dict[str, Known] = {}
        for file in files:
            module = hlo_opt.parse(file.read_text(encoding="utf-8"), filename=str(file))
            fused, _ = hlo_opt.fuse(module)
            self.of[file.name] = module, fused
            with Tracer() as tracer:
                found = build_schedule(fused).kernels
            self.maps.update(tracer.maps)
            size = sum(len(kernel.source) for kernel in found)
            for kernel in found:
                if sum(s.element_count for s in (*kernel.inputs, *kernel.outputs)) > MOST_ELEMENTS:
                    continue
                for function in tracer.maps[kernel.symbol]:
                    self.reached[function].append((size, file.name, kernel))
        for found_at in self.reached.values():
            found_at.sort(key=lambda at: (at[0], at[1], at[2].symbol))

    def learn(self, name: str) -> None:
        """Find out what every fault of a module needs."""
        if name not in self.known:
            self.known[name] = Known(*self.of[name])

    def draw(self, chance: random.Random, function: str) -> Fault | None:
        """A fault in what a function wrote; None where there is no place for one."""
        _, module, kernel = chance.choice(self.reached[function][:6])
        lines = kernel.source.split("\n")
        places = list(sites(lines, self.maps[kernel.symbol][function]))
        kinds = sorted({place.kind for place in places})
        if not kinds:
            return None
        kind = chance.choice(kinds)
        place = chance.choice([p for p in places if p.kind == kind])
        old = lines[place.line]
        which = chance.choice([k for k, other in enumerate(place.others) if other])
        lines[place.line] = place.planted(old, which)
        text = f"{old.strip()}  ->  {lines[place.line].strip()}"
        number = [p for p in places if p.line == place.line].index(place)
        return Fault(function, module, kernel, place.line, kind, text, "\n".join(lines), number, which)

    def elsewhere(self, fault: Fault) -> Iterator[Fault]:
        """The same fault in kernels of other modules that have such a line, of whatever numbers, from the same
        function; those with the very same line first."""
        done = {fault.module}
        for like in (str, form):
            wanted = like(fault.old)
            for _, module, kernel in self.reached[fault.function]:
                if module in done or len(done) > MOST_ELSEWHERE:
                    continue
                lines = kernel.source.split("\n")
                same = (n for n in self.maps[kernel.symbol][fault.function] if like(lines[n]) == wanted)
                line = next(same, None)
                if line is None:
                    continue
                places = list(sites(lines, [line]))
                place = places[fault.place] if fault.place < len(places) else None
                if place is None or place.kind != fault.kind or not place.others[fault.which : fault.which + 1] > ("",):
                    continue
                done.add(module)
                lines[line] = place.planted(lines[line], fault.which)
                yield replace(fault, module=module, kernel=kernel, line=line, source="\n".join(lines))


T = TypeVar("T")
WAYS = ("check", "sanitize")


def outcome(modules: Modules, fault: Fault, limit: float) -> str:
    """`check`, `sanitize`, `refused` by the compiler, `same`, `neutral` or `survives`. What a function writes for one
    kernel it writes for others: where the first does not show the fault, theirs may."""
    answer = _caught(modules, fault, WAYS, limit)
    if answer is not None:
        return answer
    if _machine_code(fault.kernel) == _machine_code(replace(fault.kernel, source=fault.source)):
        return "same"
    neutral = _child(lambda: _shown_neutral(modules, fault), NEUTRAL_SECONDS) == "neutral"
    others = itertools.islice(modules.elsewhere(fault), MOST_BESIDE_NEUTRAL if neutral else None)
    answers = (_caught(modules, other, WAYS[:1] if neutral else WAYS, limit) for other in others)
    return next((found for found in answers if found not in (None, "refused")), "neutral" if neutral else "survives")


def _caught(modules: Modules, fault: Fault, ways: Sequence[str], limit: float) -> str | None:
    """The way that sees a fault, or `refused`."""
    for way in ways:
        answer = _child(lambda w=way: _says(modules, fault, sanitize=w == "sanitize"), limit)  # type: ignore[misc]
        if answer != "agrees":
            return "refused" if answer == "refused" else way
    return None


def _shown_neutral(modules: Modules, fault: Fault) -> str:
    """`neutral` where the module gives the same bits with and without the fault on all draws."""
    module, fused = modules.of[fault.module]
    right, wrong = (
        _planted(kernel, lambda: hlo_opt.compile(fused, "host", form="plain"))
        for kernel in (fault.kernel, replace(fault.kernel, source=fault.source))
    )
    for seed in range(NEUTRAL_SEEDS):
        for style in styles():
            inputs = device_inputs(module, seed, style=style)
            expected, actual = (e.run_devices(inputs) for e in (right, wrong))
            for one, other in zip(expected, actual, strict=True):
                if not all(same_values(a, b) for a, b in zip(one, other, strict=True)):
                    return "differs"
    return "neutral"


def same_values(a: Any, b: Any) -> bool:
    """Whether two arrays are equal, with zeros of one sign and NaN wherever the other has one, of whatever sign."""
    if a.dtype.kind not in "fcV" or a.dtype.names:
        return bool(np.array_equal(a, b))
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y = (np.ascontiguousarray(v.astype(wide)).view(np.float64) for v in (a, b))
    numbers = ~np.isnan(x)
    return bool(
        np.array_equal(numbers, ~np.isnan(y))
        and np.array_equal(x[numbers], y[numbers])
        and np.array_equal(np.signbit(x[numbers]), np.signbit(y[numbers]))
    )


def _planted(kernel: Kernel, work: Callable[[], T]) -> T:
    """What is done while a kernel of this symbol has this text."""
    emitted = lowering.emit_kernel  # type: ignore[attr-defined]

    def planted(plan: Plan, in_place: Sequence[tuple[int, int]] = ()) -> Kernel:
        made = emitted(plan, in_place)
        return replace(made, source=kernel.source) if made.symbol == kernel.symbol else made

    lowering.emit_kernel = planted  # type: ignore[attr-defined]
    try:
        return work()
    finally:
        lowering.emit_kernel = emitted  # type: ignore[attr-defined]


def _says(modules: Modules, fault: Fault, *, sanitize: bool) -> str:
    module, fused = modules.of[fault.module]
    known = modules.known.get(fault.module)
    if known is not None:
        compare.reached = known.reached  # type: ignore[assignment]
        compare.analyse_devices = known.analyse_devices  # type: ignore[assignment,attr-defined]
    wrong = replace(fault.kernel, source=fault.source)
    try:
        found = _planted(wrong, lambda: compare.check(module, fused, backend="host", sanitize=sanitize))
        return "agrees" if found.ok else "differs"
    except HloOptError as error:
        return "refused" if error.code == _REFUSED else "fails"


def as_it_is(modules: Modules, fault: Fault, limit: float) -> str:
    """What each way says of a fault's module with nothing planted: `agrees` where all is well."""
    none = replace(fault, source=fault.kernel.source)
    answers = [
        _child(lambda way=way: _says(modules, none, sanitize=way == "sanitize"), limit)  # type: ignore[misc]
        for way in WAYS
    ]
    return next((f"{way}: {a or 'no answer'}" for way, a in zip(WAYS, answers, strict=True) if a != "agrees"), "agrees")


def _child(look: Callable[[], str], limit: float) -> str:
    """What a function says in a process of its own; nothing where that ends early or takes too long."""
    reader, child = _start(look)
    ready, _, _ = select.select([reader], [], [], limit)
    answer = _answer(reader) if ready else ""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if answer == "?":
        raise RuntimeError("a fault's own process failed")
    return answer


def _start(look: Callable[[], str]) -> tuple[int, int]:
    """A process of its own for a function: where its answer is to be read, and its number."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        answer = "?"
        try:
            os.close(reader)
            answer = look()
        except Exception:
            traceback.print_exc()
        finally:
            os.write(writer, answer.encode())
            os._exit(0)
    os.close(writer)
    os.set_inheritable(reader, False)
    return reader, child


def _answer(reader: int) -> str:
    found = os.read(reader, 100).decode()
    os.close(reader)
    return found


def _outcomes(
    modules: Modules, faults: Sequence[Fault], jobs: int, limit: float, look: Callable[[Modules, Fault, float], str]
) -> Iterator[tuple[Fault, str]]:
    """What becomes of faults, several at a time, in their order."""
    answers: dict[int, str] = {}
    running: dict[int, tuple[int, int]] = {}
    todo = list(enumerate(faults))
    while todo or running:
        while todo and len(running) < jobs:
            number, fault = todo.pop(0)
            reader, child = _start(lambda fault=fault: look(modules, fault, limit))  # type: ignore[misc]
            running[reader] = number, child
        for reader in select.select(list(running), [], [])[0]:
            number, child = running.pop(reader)
            answers[number] = _answer(reader)
            os.waitpid(child, 0)
    for number, fault in enumerate(faults):
        if answers[number] in ("", "?"):
            raise RuntimeError(f"no outcome of {fault.module}: {fault.kind} in {fault.function}, {fault.old.strip()}")
        yield fault, answers[number]


def _machine_code(kernel: Kernel) -> str:
    command = [*find_compiler(), "-x", "c++", "-std=c++17", "-O2", "-fwrapv", "-w", "-S", "-o", "-", "-"]
    done = subprocess.run(command, input=plain_unit([kernel]), capture_output=True, text=True, check=False)
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--survivors", type=Path)
    parser.add_argument("--functions", action="store_true", help="only say which functions write which kernels")
    given = parser.parse_args(arguments)
    paths = given.paths or [ROOT / folder for folder in FOLDERS]
    files = [file for path in paths for file in (sorted(path.glob("*.hlo")) if path.is_dir() else [path])]
    begun = time.monotonic()
    modules = Modules([file for file in files if ".frames." not in file.name and ".classic." not in file.name])
    unreached = sorted(name for name in writers() - set(modules.reached) if given.only in name)
    print(f"{len(modules.of)} modules, {len(modules.maps)} kernels, {len(modules.reached)} functions that write them")
    for name in unreached:
        print(f"no module reaches {name}")
    if given.functions:
        for name, found in sorted(modules.reached.items()):
            print(f"{name:60} {len(found):5} {found[0][1]}")
        return 1 if unreached else 0
    functions = sorted(name for name in modules.reached if given.only in name)
    with tempfile.TemporaryDirectory(prefix="mutate-") as cache:
        os.environ.update(HLO_OPT_CACHE=cache, OPENBLAS_NUM_THREADS="1", HLO_OPT_THREADS="1")
        table, survivors, neutral, beside = _run(modules, functions, given)
    for name, counts in sorted(table.items()):
        print(f"{name:60} {sum(counts.values()):5} {counts['check']:6} {counts['sanitize']:9} {counts['survives']:9}")
    total = sum(table.values(), collections.Counter[str]())
    planted, missed = sum(total.values()), total["survives"]
    print(f"{'function':60} {'planted':>5} {'check':>6} {'sanitize':>9} {'survivors':>9}")
    share = 1 - missed / max(1, planted)
    print(f"{'all':60} {planted:5} {total['check']:6} {total['sanitize']:9} {missed:9}")
    print(
        f"{share:.1%} caught; {beside['same']} more were the same machine code, {beside['neutral']} gave the same bits "
        f"on {NEUTRAL_SEEDS * len(list(styles()))} draws, {beside['refused']} the compiler refuses; "
        f"{time.monotonic() - begun:.0f} s"
    )
    known = equivalents()
    for fault in (*neutral, *survivors):
        print(
            f"{'neutral' if fault in neutral else 'survives'}: {fault.module} {fault.kernel.symbol} {fault.function} "
            f"line {fault.line + 1}, {fault.kind}: {fault.text}"
        )
        if (fault.function, fault.text) in known:
            print(f"  changes nothing: {known[fault.function, fault.text]}")
    if given.survivors:
        given.survivors.write_text("\n".join(f.source for f in survivors), encoding="utf-8")
    return 1 if unreached or beside["unsound"] or share < 0.97 else 0


def equivalents() -> dict[tuple[str, str], str]:
    """Why a fault changes nothing, by what wrote the line, and both lines."""
    rows = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["fault"]
    return {(row["function"], f"{row['before']}  ->  {row['after']}"): row["reason"] for row in rows}


def _run(
    modules: Modules, functions: Sequence[str], given: argparse.Namespace
) -> tuple[dict[str, collections.Counter[str]], list[Fault], list[Fault], collections.Counter[str]]:
    """Counts by function, what survives, what changes nothing, and how many drawn texts were no faults, and modules no
    good."""
    chance = random.Random(given.seed)
    order = list(functions)
    chance.shuffle(order)
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    survivors: list[Fault] = []
    neutral: list[Fault] = []
    seen: set[str] = set()
    sound: dict[str, bool] = {}
    beside = collections.Counter[str]()
    turn = 0
    while (left := given.count - sum(sum(c.values()) for c in table.values())) > 0 and turn < 20 * given.count:
        batch: list[Fault] = []
        while len(batch) < min(left, 4 * given.jobs) and turn < 20 * given.count:
            fault = modules.draw(chance, order[turn % len(order)])
            turn += 1
            if fault is not None and fault.source not in seen and sound.get(fault.module, True):
                seen.add(fault.source)
                batch.append(fault)
        new = list({fault.module: fault for fault in batch if fault.module not in sound}.values())
        for fault in new:
            modules.learn(fault.module)
        for fault, found in _outcomes(modules, new, given.jobs, given.limit, as_it_is):
            sound[fault.module] = found == "agrees"
            if found != "agrees":
                beside["unsound"] += 1
                print(f"{fault.module} does not agree with nothing planted: {found}", flush=True)
        batch = [fault for fault in batch if sound[fault.module]]
        for fault, found in _outcomes(modules, batch, given.jobs, given.limit, outcome):
            if found in ("same", "neutral", "refused"):
                beside[found] += 1
                if found == "neutral":
                    neutral.append(fault)
                continue
            table[fault.function][found] += 1
            print(
                f"{found:9} {fault.module:32} {fault.function:44} {fault.kind:9} {fault.text[:140]}",
                file=sys.stderr,
                flush=True,
            )
            if found == "survives":
                survivors.append(fault)
    return table, survivors, neutral, beside


if __name__ == "__main__":
    sys.exit(main())
