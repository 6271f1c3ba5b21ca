"""Mutated modules: each must fuse, mean the same afterwards, and run from its kernels.

    python -m scripts.mutate_modules DIR [--count 2000] [--seed 0] [--way WAY]... [--preset P]... [--wide | --any]
    [--plain] [--only WORD] [--keep FOLDER]

DIR/*.hlo are texts to start from. In each, sizes, element types, layouts, opcodes and results are replaced, everywhere
or in one place, shapes are inferred anew where that is possible, and what `verify` refuses then is thrown away. The
same seed gives the same mutants; `--plain` takes the texts as they are.

Each mutant is fused with each preset, or with `--wide` in ways of random_modules, or with `--any` by passes in any
order with any options, rules switched off and edges forced, and explained in all forms. That must be proved; the result
must read back as it was printed, and verify. Ways to look at it:

fuse   XLA's parser reads it, where jaxlib is installed and XLA reads the mutant; it computes what the mutant computes,
       on all devices, with the same draws and
       transfers (the default): see `drawn_effects`
host   so do its kernels, built by the C++ compiler, without fallbacks
xla    what the mutant computes is what XLA:CPU computes, where HLO leaves nothing open: see `left_open`
emit   it can be emitted
nvrtc  its kernels compile for a GPU
again  fused once more it is the same text

Each mutant has a process of its own with a time limit. What is refused with a code, by the evaluator or by `emit`, is
counted, not judged. Exit code 1 where any failed.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import math
import os
import pickle
import random
import re
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hlo_opt
from hlo_opt.analysis.targets import target_names
from hlo_opt.diag import HloOptError, reason_specs
from hlo_opt.diag.annotation import github, sarif
from hlo_opt.evaluate import device_inputs
from hlo_opt.ir import Module
from hlo_opt.passes import pass_names, pass_options, preset_names, report_on, run
from hlo_opt.report import explain
from hlo_opt.report.annotate import edge_annotations
from hlo_opt.text import print_module
from scripts import drawn_effects
from scripts.left_open import left_open
from scripts.mutations import mutant
from scripts.random_modules import WAYS_OF_A_CHUNK, Way, wide_ways
from scripts.swept import fuses, text_for_xla
from scripts.xla_judge import Judge, difference

SECONDS = 120.0
MEMORY = 8 << 30  # bytes
ELEMENTS = 1 << 21  # of an array; larger mutants are not evaluated
STEPS = 3000  # iterations of loops
LIMITS: dict[str, Any] = {"max_steps": STEPS, "memory_limit": 1 << 30}
SHOWN = 1500  # characters of a failure
KEPT = 5  # texts of each kind of failure
NOT_COMPARABLE = re.compile(
    r"[)\]}] (rng|rng-get-and-update-state|stochastic-convert|infeed|outfeed|partition-id|replica-id|all-\w+"
    r"|collective-\w+|send|recv|custom-call)(-start)?\("
)


# ---- ways to fuse


@dataclass(frozen=True)
class AnyWay:
    """Passes in any order with any options, rules switched off, edges forced, an early end, a device: what the options
    of the command line can ask for."""

    passes: str | None
    preset: str
    target: str
    what_if: tuple[str, ...]
    force: tuple[tuple[str, str], ...]
    simplify: str
    stop_after_step: int | None

    @staticmethod
    def drawn(generator: random.Random, module: Module) -> AnyWay:
        """Drawn for a module."""

        def one() -> str:
            name = generator.choice(pass_names())
            options = [
                f"{option}={_value(generator, kind)}"
                for option, (kind, _) in pass_options(name).items()
                if generator.random() < 0.4
            ]
            return name + (f"{{{','.join(options)}}}" if options else "")

        def several() -> str:
            parts = [one() for _ in range(generator.randint(1, 5))]
            return f"fixpoint({','.join(parts)})" if generator.random() < 0.3 else ",".join(parts)

        codes = [spec.code for spec in reason_specs()]
        edges = [(o.name, i.name) for c in module.computations for i in c.instructions for o in i.operands]
        some = generator.choice([0, 1, 3, len(codes)])
        passes = several() if generator.random() < 0.5 else f"best({several()}|{several()}),{several()}"
        return AnyWay(
            passes if generator.random() < 0.7 else None,
            generator.choice(preset_names()),
            generator.choice(target_names()),
            tuple(sorted(generator.sample(codes, some))),
            tuple(generator.sample(edges, min(len(edges), generator.choice([0, 0, 1, 3, 1000])))),
            generator.choice(["auto", "always", "never"]),
            generator.choice([None, None, 0, 1, 2, 5, 17]),
        )

    def fuse(self, module: Module) -> Module:
        """Fuse, and print the explanation of it in all forms."""
        report = report_on(run(
            module, self.preset, self.passes, self.target, self.simplify,
            what_if=self.what_if, force=self.force, stop_after_step=self.stop_after_step,
        ))  # fmt: skip
        explain.as_page(report, report.decisions, None, most=None)
        json.dumps(explain.as_json(report, report.decisions))
        found = edge_annotations(report.outcome.original, report.refused, os.curdir)
        github(found)
        json.dumps(sarif(found, reason_specs(), ""))
        return report.outcome.module


def _value(generator: random.Random, kind: str) -> str:
    if kind == "bool":
        return generator.choice(["true", "false"])
    if "str" in kind:  # a number from 2 on, or a word
        return generator.choice(["auto", "2", "3", "15"])
    return str(generator.choice([0, 1, 2, 3, 15, 1000, 10**6]))


# ---- one mutant


def fails(
    text: str, ways: Sequence[str], fusing: Sequence[Way | AnyWay], count: collections.Counter[str], by_xla: Any = None
) -> str | None:
    """What is wrong with how a module is fused and run; None where nothing is."""
    module = hlo_opt.parse(text)
    hlo_opt.verify(module)
    inputs, wants = None, None
    shapes = [i.shape for c in module.computations for i in c.instructions]
    if all(s.element_count <= ELEMENTS for s in shapes):
        try:
            inputs = device_inputs(module, 0)
            wants = drawn_effects.run(module, inputs, **LIMITS)
        except HloOptError as error:
            count[f"not evaluated: {error.code} {re.sub(r'[0-9]+', 'N', error.message)[:60]}"] += 1
    else:
        count["not evaluated: large"] += 1
    if wants is not None and by_xla is not None:
        count["compared with XLA:CPU"] += 1
        why = difference(wants.outputs, by_xla)
        if why is not None:
            return f"evaluate: {why}"
    done: set[str] = set()
    for way in fusing:
        try:
            after = way.fuse(module)
            count[f"fused something: {way}" if isinstance(way, Way) else "fused something"] += fuses(module, after)
            fused = print_module(after)
            if fused in done:
                continue
            done.add(fused)
            why = _fused(text, fused, inputs, wants, ways, count)
            if why is None and "again" in ways and print_module(way.fuse(hlo_opt.parse(text))) != fused:
                why = "another result the second time"
        except HloOptError as error:
            why = f"{type(error).__name__}: {error}"
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            why = f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
        if why is not None:
            return f"{way}: {why}"
    return None


def _fused(
    text: str, fused: str, inputs: Any, wants: Any, ways: Sequence[str], count: collections.Counter[str]
) -> str | None:
    module = hlo_opt.parse(fused)
    hlo_opt.verify(module)
    if print_module(module) != fused:
        return "reads as another module than was printed"
    if "fuse" in ways:
        why = _by_xla(text, fused)
        if why is not None:
            return why
        if wants is not None:
            why = drawn_effects.differs(wants, module, inputs, **LIMITS)
            if why is not None:
                return why
    if "host" in ways:
        executable = hlo_opt.compile(module, backend="host", max_steps=STEPS)
    if "host" in ways and wants is not None and len(inputs) == 1 and not drawn_effects.has_effects(module):
        try:
            got = executable(*inputs[0])
        except hlo_opt.EvaluationError as error:
            count[f"not run: {error.code}"] += 1
            return None
        why = difference(got, wants.outputs)
        if why is not None:
            return f"host: {why}"
        fallbacks = executable.report()["fallbacks"]
        if fallbacks and not NOT_COMPARABLE.search(text):
            return f"fallbacks {sorted(fallbacks)}"
    if "emit" in ways:
        with tempfile.TemporaryDirectory() as folder:
            try:
                hlo_opt.emit(module, str(Path(folder) / "out"))
            except HloOptError as error:
                count[f"not emitted: {error.code}"] += 1
    return _by_nvrtc(module, count) if "nvrtc" in ways else None


def _by_xla(text: str, fused: str) -> str | None:
    try:
        import jaxlib._hlo as hlo
    except ImportError:
        return None
    try:
        hlo.hlo_module_from_text(text)
    except Exception:
        return None
    try:
        hlo.hlo_module_from_text(fused)
    except Exception as error:
        return f"XLA does not read the result: {str(error)[:300]}"
    return None


def _by_nvrtc(module: Module, count: collections.Counter[str]) -> str | None:
    from hlo_opt.runtime.schedule import build_schedule
    from scripts.compile_kernels import compiled

    for kernel in build_schedule(module).kernels:
        count["kernels compiled"] += 1
        found = compiled(kernel, "", "sm_90")
        if found.refusal:
            return f"nvrtc: {found.refusal}"
    return None


# ---- many mutants


def from_xla(judge: Judge, text: str, count: collections.Counter[str]) -> Any:
    """What XLA:CPU computes, or None where nobody can be asked: HLO leaves it open, it has effects, is large, or XLA
    refuses it."""
    try:
        module = hlo_opt.parse(text)
        found = "it has effects" if drawn_effects.has_effects(module) else left_open(module)
        if found is None and NOT_COMPARABLE.search(text) and math.prod(drawn_effects.counts(module)) == 1:
            found = "it asks for devices that there are not"
        if any(i.shape.element_count > ELEMENTS for c in module.computations for i in c.instructions):
            found = "it is large"
        if found is not None:
            count[f"not asked XLA:CPU: {found}"] += 1
            return None
        inputs = device_inputs(module, 0)
        drawn_effects.run(module, inputs, **LIMITS)
        outcome = judge(text_for_xla(module), inputs)
    except Exception:
        return None
    if isinstance(outcome, str):
        count["refused by XLA:CPU"] += 1
        return None
    return outcome


def _address_space() -> int:
    """Bytes that this process has mapped: with XLA loaded that is more than it will ever use."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    return int(pages) * resource.getpagesize()


def in_a_child(
    text: str, ways: Sequence[str], fusing: Sequence[Way | AnyWay], by_xla: Any = None
) -> tuple[str | None, collections.Counter[str]]:
    """Judge a text in a child process with limits."""
    count: collections.Counter[str] = collections.Counter()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.setpgid(0, 0)  # so that a compiler that it has started ends with it
        try:
            limit = MEMORY + _address_space()
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
            why = fails(text, ways, fusing, count, by_xla)
        except BaseException as error:
            why = f"{type(error).__name__}: {error}"
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump((why, count), pipe)
        os._exit(0)
    os.close(writing)
    with contextlib.suppress(OSError):  # whoever of the two is first
        os.setpgid(pid, pid)
    os.set_blocking(reading, False)
    data, end = b"", time.monotonic() + SECONDS
    while time.monotonic() < end:
        if select.select([reading], [], [], 1.0)[0]:
            part = os.read(reading, 1 << 20)
            if not part:
                break
            data += part
    else:
        os.killpg(pid, signal.SIGKILL)
    os.close(reading)
    status = os.waitpid(pid, 0)[1]
    if not data:
        return (
            f"no result in {SECONDS:.0f} seconds" if time.monotonic() >= end else f"ended with status {status}"
        ), count
    why, count = pickle.loads(data)
    return why, count


def texts(paths: Sequence[Path], number: int, seed: int, plain: bool) -> Iterator[tuple[str, str]]:
    """Names and texts of mutants, or of the files themselves."""
    sources = [(path.name, path.read_text(encoding="utf-8", errors="replace")) for path in paths]
    for place in range(number):
        name, text = sources[place % len(sources)]
        if plain:
            yield name, text
            continue
        found = mutant(random.Random(f"{seed} {place} {name}"), text)
        if found is not None:
            yield f"{seed}.{place}.{name}", found


def general(why: str) -> str:
    """A failure without the names and numbers of one module."""
    return re.sub(r"\d+", "N", why.split("\n")[0])[:140]


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--way", action="append", choices=["fuse", "host", "emit", "nvrtc", "xla", "again"], help="default: fuse"
    )
    parser.add_argument("--preset", action="append", choices=preset_names())
    drawn = parser.add_mutually_exclusive_group()
    drawn.add_argument("--wide", action="store_true", help="fuse in other ways too: see random_modules")
    drawn.add_argument("--any", action="store_true", help="fuse with any passes and options, and explain the result")
    parser.add_argument("--plain", action="store_true", help="the texts as they are")
    parser.add_argument("--only", default="", metavar="WORD", help="only texts with this in their names")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="save what failed there")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin with no further mutant after so long")
    options = parser.parse_args()
    paths = sorted(p for p in options.folder.glob("*.hlo") if options.only in p.name)
    random.Random(options.seed).shuffle(paths)
    if not paths:
        parser.error(f"there is no .hlo file in {options.folder}")
    with contextlib.suppress(ImportError):
        import jaxlib._hlo  # noqa: F401  # read once, before the children
    presets = options.preset or preset_names()
    fusing: list[Way | AnyWay] = [*map(Way, presets)]
    judge = Judge() if "xla" in (options.way or []) else None
    count: collections.Counter[str] = collections.Counter()
    failures: dict[str, list[str]] = {}
    number = min(options.count, len(paths)) if options.plain else options.count
    begin = time.monotonic()
    for name, text in texts(paths, number, options.seed, options.plain):
        if time.monotonic() - begin > options.seconds:
            break
        if options.plain:
            try:
                hlo_opt.verify(hlo_opt.parse(text))
            except HloOptError:
                count["refused"] += 1
                continue
        if options.any:
            generator = random.Random(f"{options.seed} {name}")
            fusing = [AnyWay.drawn(generator, hlo_opt.parse(text)) for _ in range(WAYS_OF_A_CHUNK)]
        elif options.wide:
            fusing = random.Random(name).sample([*map(Way, presets), *wide_ways()], WAYS_OF_A_CHUNK)
        by_xla = from_xla(judge, text, count) if judge is not None else None
        why, counted = in_a_child(text, options.way or ["fuse"], fusing, by_xla)
        if why is not None and "differ" in why and judge is not None and by_xla is not None:
            module = hlo_opt.parse(text)
            if judge.is_unsteady(text_for_xla(module), device_inputs(module, 0), by_xla):
                count["ill-conditioned"] += 1
                continue
        count += counted
        count["held" if why is None else "failed"] += 1
        if why is None:
            continue
        group = general(why)
        if group not in failures:
            print(f"{name}: {why[:SHOWN]}", flush=True)
        failures.setdefault(group, []).append(name)
        if options.keep is not None and len(failures[group]) <= KEPT:
            options.keep.mkdir(parents=True, exist_ok=True)
            (options.keep / name).write_text(text, encoding="utf-8")
    print()
    for group, names in sorted(failures.items(), key=lambda pair: -len(pair[1])):
        print(f"{len(names):5d} {group}\n      {' '.join(names[:5])}")
    for what, times in count.most_common():
        print(f"{times:6d} {what}")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
