"""Random JAX functions with and without the hook: python -m scripts.random_jax [--count N] [--seed S] [--kept FILE]
[--seconds S]

Each is a few `jax.numpy` operations on arrays of a few shapes, with scans, conditions, gradients, maps and products of
matrices among them, loops that stay loops because XLA sorts in them, calls, other types, and some donate an input.
Every region that can be is replaced, however quick it is, and the results are compared with what XLA gives: to a
thousandth of the largest magnitude of an array. HLO allows more where XLA's own results move nearly as far when inputs
or steps are a few roundings off, where a sum leaves nothing of its terms (their order is open, so that it may be off by
a rounding of each), and where ours are at least as near to what steps in f64 give as XLA's. Nine of ten functions are
compiled with little optimisation, in half the time; ours may also agree with what XLA gives with ordinary options. How
many functions each of these rules lets pass is printed. Functions are judged by a process that is started again where
one ends it. With `--kept`, what was found is written to a file, a line for each function, and a later run goes on where
this one stopped. Prints the functions that differ, and exits with 1 where there are any.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from scripts.xla_cpu import Leaf, sample_inputs  # isort: skip  # sets up JAX for the CPU, so it comes first

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import hlo_opt.jax
from hlo_opt.jax import decide
from hlo_opt.runtime.host import library
from scripts.bench.jax_hook import apart, is_chaotic

Array = Any
Step = Callable[[Array], Array]

FAR = 1e-3
ROUNDINGS = 4
"""What a step may be off by, in roundings of its type."""
DRAWS = 16
NEARLY = 4
"""How many times as far as XLA's own results move ours may be: the largest of a few draws is not the largest of all."""
HUNG = 600
"""Seconds that a function may take."""
PART = 100
"""Functions that a process judges."""
WHOLE = 10
"""One of so many functions is compiled as users compile it. In others both compilers optimise little, which changes no
step of ours and halves the time: what GCC makes of kernels at -O3 is what `random_loops --lanes` is for."""

SHAPES = ((7,), (64,), (33, 5), (16, 16), (4, 8, 6), (2048,))

SIMPLE: dict[str, Step] = {
    "sin": jnp.sin,
    "tanh": jnp.tanh,
    "exp(-x*x)": lambda x: jnp.exp(-x * x),
    "x*0.5+1": lambda x: x * 0.5 + 1,
    "abs": jnp.abs,
    "where": lambda x: jnp.where(x > 0.3, x, -0.1 * x),
    "reverse": lambda x: x[::-1],
    "sum": lambda x: x - x.sum(0, keepdims=True) / x.shape[0],
    "max": lambda x: x - x.max(-1, keepdims=True),
    "softmax": lambda x: jax.nn.softmax(x, -1),
    "cumsum": lambda x: jnp.cumsum(x, 0) * 0.1,
    "roll": lambda x: jnp.roll(x, 1, 0) + x,
    "sort": lambda x: jnp.sort(x, 0),
    "at": lambda x: x.at[0].set(1.5),
    "int": lambda x: jnp.round(x * 4).astype(jnp.int32).astype(x.dtype) * 0.25,
    "bf16": lambda x: x.astype(jnp.bfloat16).astype(x.dtype),
    "concatenate": lambda x: jnp.concatenate([x[1:], x[:1] * 2]),
    "transpose": lambda x: x.T * 2 if x.ndim == 2 and x.shape[0] == x.shape[1] else x * 2,
    "product": lambda x: (x @ x.T / x.shape[-1]) @ x if x.ndim == 2 else x + 1,
    "gather": lambda x: x[jnp.arange(x.shape[0]) * 3 % x.shape[0]],
    "empty": lambda x: jnp.concatenate([x, x[:0] * 2]) + jnp.sin(x[:0]).sum(),
    "scalar": lambda x: x * jnp.tanh(x.reshape(-1)[0]) + jnp.float32(0.25) * jnp.cos(x.reshape(-1)[-1]),
    "int8": lambda x: (x * 16).astype(jnp.int8).astype(x.dtype) / 16,
    "uint32": lambda x: (
        ((x * 64).astype(jnp.int32).astype(jnp.uint32) * jnp.uint32(40503) >> 20).astype(x.dtype) / 4096
    ),
    "rotate": lambda x: lax.fori_loop(0, 3, lambda n, c: jnp.roll(c, 1, 0) * (n + 1) / 3, x),
}


def scanned(f: Step, count: int) -> Step:
    return lambda x: lax.scan(lambda c, _: (jnp.tanh(f(c)), None), x, None, length=count)[0]


def summed(f: Step) -> Step:
    return lambda x: lax.scan(lambda c, _: (jnp.tanh(f(c)), c.sum()), x, None, length=5)[1].sum() + x


def either(f: Step, g: Step) -> Step:
    # functions of their own, since JAX keeps what it traced of a function, and steps may be shaken the next time
    return lambda x: lax.cond(x[(0,) * x.ndim] > 0.1, lambda y: f(y), lambda y: g(y), x)


def derived(f: Step) -> Step:
    return lambda x: jnp.tanh(jax.grad(lambda y: jnp.sin(f(y)).sum())(x))


def mapped(f: Step) -> Step:
    return lambda x: jax.vmap(f)(x) if x.ndim > 1 else f(x)


def repeated(f: Step) -> Step:
    return lambda x: lax.while_loop(lambda s: s[1] < 7, lambda s: (jnp.tanh(f(s[0])), s[1] + 1), (x, 0))[0]


def staying(f: Step, count: int) -> Step:
    """A loop that stays one, because XLA sorts in it, and stacks a number of each round."""

    def body(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        a, b = carry
        most = jnp.sort(a.reshape(-1)[:6])[-1]
        return (jnp.tanh(f(b) + 0.1 * most), a[::-1] * 0.5 + b), jnp.abs(a).max()

    def run(x: Array) -> Array:
        (a, b), most = lax.scan(lambda c, _: body(c, _), (x, x * 0.3), None, length=count)
        return a + b * most.mean()

    return run


def again(f: Step) -> Step:
    """Computed again for its gradient, and traced anew, as in `either`."""
    return lambda x: jax.checkpoint(lambda y: f(y))(x)


def own_gradient(f: Step) -> Step:
    """The gradient of a function that says itself what its gradient is."""

    def run(x: Array) -> Array:
        @jax.custom_vjp
        def g(y: Array) -> Array:
            return jnp.sin(f(y))

        g.defvjp(lambda y: (g(y), y), lambda y, t: (t * jnp.cos(f(y)),))
        return jax.grad(lambda y: (g(y) * y).sum())(x)

    return run


def until(f: Step) -> Step:
    """Rows of a loop, each with a number of rounds of its own."""

    def row(x: Array, most: Array) -> Array:
        return lax.while_loop(lambda s: s[1] < most, lambda s: (jnp.tanh(f(s[0])), s[1] + 1), (x, 0))[0]

    return lambda x: jax.vmap(row)(x, jnp.arange(x.shape[0]) % 4) if x.ndim > 1 else row(x, jnp.int32(3))


def in_type(f: Step, name: str) -> Step:
    return lambda x: f(x.astype(name)).astype(x.dtype)


def called(f: Step) -> Step:
    """A jitted function in another, with a static argument."""

    def run(x: Array) -> Array:
        inner = jax.jit(lambda y, power: f(y) ** power, static_argnums=1)  # traced anew, as in `either`
        return jnp.tanh(inner(x, 2)) + inner(x, 1)

    return run


WRAPPERS: dict[str, Callable[[Step], Step]] = {
    "stays2": lambda f: staying(f, 2),
    "stays9": lambda f: staying(f, 9),
    "stays40": lambda f: staying(f, 40),
    "checkpoint": lambda f: derived(again(f)),
    "gradient of a scan": lambda f: derived(scanned(again(f), 4)),
    "custom_vjp": own_gradient,
    "vmap of while": until,
    "in bf16": lambda f: in_type(f, "bfloat16"),
    "in f16": lambda f: in_type(f, "float16"),
    "jit": called,
}


_SHAKEN: list[Array] = []
"""While a function is traced whose steps are each a little off: by what differs with this number."""


def chain(generator: np.random.Generator, depth: int, names: list[str]) -> Step:
    """A few steps one after the other; what they are goes to `names`."""
    steps: list[Step] = []
    for _ in range(generator.integers(1, 5)):
        kind = generator.random() if depth else 1.0
        if kind < 0.12:
            count = int(generator.integers(1, 30))
            names.append(f"scan{count}[")
            steps.append(scanned(chain(generator, depth - 1, names), count))
        elif kind < 0.2:
            names.append("sums of a scan[")
            steps.append(summed(chain(generator, 0, names)))
        elif kind < 0.28:
            names.append("cond[")
            steps.append(either(chain(generator, depth - 1, names), chain(generator, depth - 1, names)))
        elif kind < 0.36:
            names.append("grad[")
            steps.append(derived(chain(generator, 0, names)))
        elif kind < 0.4:
            names.append("while[")
            steps.append(repeated(chain(generator, 0, names)))
        elif kind < 0.46:
            names.append("vmap[")
            steps.append(mapped(chain(generator, 0, names)))
        elif kind < 0.64:
            wrapper = str(generator.choice(list(WRAPPERS)))
            names.append(f"{wrapper}[")
            steps.append(WRAPPERS[wrapper](chain(generator, depth - 1 if wrapper.startswith("stays") else 0, names)))
        else:
            names.append(str(generator.choice(list(SIMPLE))))
            steps.append(SIMPLE[names[-1]])
            continue
        names.append("]")

    def run(x: Array) -> Array:
        for number, step in enumerate(steps):
            x = step(x)
            if _SHAKEN and jnp.issubdtype(x.dtype, jnp.floating):
                waves = jnp.sin(_SHAKEN[-1] * (number + 1) + jnp.arange(x.size)).reshape(x.shape)
                x = (x * (1 + ROUNDINGS * float(jnp.finfo(x.dtype).eps) * waves)).astype(x.dtype)
        return x

    return run


RULES = {
    "usual": "agree with XLA compiled as users compile it, not with little optimisation",
    "moves": "move nearly as far in XLA when inputs or steps are a few roundings off",
    "nearer": "are nearer to steps in f64 than XLA's",
}
"""Why results may be apart, in the order in which it is asked, and what is then said of functions."""


@dataclass(frozen=True)
class Judged:
    """A function: how far results are apart (0 where they may be), how many regions were replaced, and by what rule
    results that are apart may be: one of `RULES`."""

    seed: int
    name: str
    far: float
    regions: int
    rule: str = ""

    @property
    def is_wrong(self) -> bool:
        return not self.far <= FAR


def is_rest_of_sum(ours: Array, theirs: Array, every: Sequence[Array]) -> bool:
    """Whether the two are as close as sums of so many terms in any order are: terms are no larger than the largest of
    all results, and each is rounded once."""
    terms = max(np.size(a) for a in every)
    largest = max(float(np.abs(a).max(initial=0)) for a in map(np.asarray, every))
    difference = np.abs(np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)).max(initial=0)
    return bool(difference <= terms * float(np.finfo(np.float32).eps) * largest)


def far_apart(ours: Sequence[Array], theirs: Sequence[Array]) -> float:
    """How far results are apart, those not counted that are the rest of a sum."""
    pairs = zip(ours, theirs, strict=True)
    return max((apart([a], [b]) for a, b in pairs if not is_rest_of_sum(a, b, theirs)), default=0.0)


def is_brittle(function: Callable[..., Any], given: Sequence[Array], expected: Sequence[Array], far: float) -> bool:
    """Whether XLA's own results move nearly as `far` where each step is off by a few roundings: a number that is
    rounded to whole ones, or to bf16, falls to the other side."""

    def shaken(draw: Array, *arrays: Array) -> Any:
        _SHAKEN.append(draw)
        try:
            return function(*arrays)
        finally:
            _SHAKEN.pop()

    compiled = jax.jit(shaken)
    return any(apart(compiled(np.float32(draw), *given), expected) > far / NEARLY for draw in range(1, DRAWS + 1))


def is_nearer(function: Callable[..., Any], given: Sequence[Array], ours: Sequence[Array], theirs: Any) -> bool:
    """Whether no result of ours is further from that of steps in f64 than XLA's."""
    with jax.enable_x64(True):
        exact = jax.jit(function)(*(np.asarray(x, np.float64) for x in given))

    def off(result: Array, by: Array) -> float:
        return float(np.abs(np.asarray(result, np.float64) - np.asarray(by, np.float64)).max(initial=0))

    return all(off(o, e) <= off(t, e) for o, t, e in zip(ours, theirs, exact, strict=True))


def judged(seed: int) -> Judged:
    """The function of a seed."""
    generator = np.random.default_rng(seed)
    names: list[str] = []
    first, second = chain(generator, 2, names), None
    if generator.random() < 0.25:
        second = chain(generator, 2, names)
    shape = SHAPES[generator.integers(len(SHAPES))]
    donated = (0,) if generator.random() < 0.05 else ()
    name = f"{shape} {' '.join(names)}{' donates' if donated else ''}"

    def function(x: Array, y: Array) -> Any:
        a = first(x + y)
        return (a, a.sum()) if second is None else (a, second(a * 0.5 + y), a.sum())

    given = sample_inputs([Leaf(shape, np.dtype(np.float32))] * 2, seed)
    is_quick = seed % WHOLE != 0
    options = {"xla_backend_optimization_level": 0} if is_quick else None
    traced = jax.jit(function, donate_argnums=donated).trace(*given)
    expected = traced.lower().compile(options)(*given)
    with (
        mock.patch.object(library, "flags_of", autospec=True, return_value=("-O1",) if is_quick else ()),
        hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report,
    ):
        found = traced.lower().compile(options)(*given)
    faults = [line for line in report.lines if line.code == "JAX303"]
    if faults:
        return Judged(seed, f"{name}: {faults[0]}", np.inf, 0)
    far, rule = far_apart(found, expected), ""
    if far > FAR:
        plain = jax.jit(function)
        usual = plain(*given)
        if is_quick and far_apart(found, usual) <= FAR:
            rule = "usual"
        elif is_chaotic(plain, given, usual, far / NEARLY) or is_brittle(function, given, usual, far):
            rule = "moves"
        elif is_nearer(function, given, found, expected):
            rule = "nearer"
    return Judged(seed, name, 0.0 if rule else far, len(report.replaced), rule)


def work(seeds: Sequence[int]) -> None:
    """What the process does that judges: a line for each function that it begins, and one for each that it has
    judged. Nothing is timed: ours is said to be quicker."""
    with (
        mock.patch.object(decide, "times", autospec=True, return_value=(1.0, 100.0)),
        mock.patch.object(decide, "compared", autospec=True, return_value=(1.0, 100.0)),
        mock.patch.object(decide, "LEAST_US", 0.0),
    ):
        for seed in seeds:
            print(seed, flush=True)
            print(json.dumps(asdict(judged(seed))), flush=True)
            jax.clear_caches()


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """What a process prints, until it ends or says nothing for too long."""
    assert process.stdout is not None
    while select.select([process.stdout], [], [], HUNG)[0]:
        line = process.stdout.readline()
        if not line:
            return
        yield line


def all_judged(seeds: Sequence[int], cache: str) -> Iterator[Judged]:
    """The functions of seeds, in a few processes one after the other. Where a process ends too early, or hangs, the
    function is infinitely wrong that it was at. `cache` is a folder for the kernels and verdicts of all."""
    todo = list(seeds)
    environment = {**os.environ, "HLO_OPT_CACHE": cache}
    while todo:
        part = todo[:PART]
        command = [sys.executable, "-m", "scripts.random_jax", "--work", ",".join(map(str, part))]
        at = None
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            try:
                for line in lines_of(process):
                    if not line.startswith("{"):
                        at = int(line)
                        continue
                    made = Judged(**json.loads(line))
                    todo.remove(made.seed)
                    at = None
                    yield made
            finally:
                process.kill()
        if at is not None:
            todo.remove(at)
            yield Judged(at, f"the process ended ({process.returncode})", np.inf, 0)
        elif todo[: len(part)] == part:
            raise RuntimeError(f"no function was begun: exit {process.returncode}")


def kept(file: Path | None) -> list[Judged]:
    """What an earlier run found."""
    if file is None or not file.exists():
        return []
    return [Judged(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kept", type=Path, metavar="FILE", help="what was found, and is not judged again")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--work", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work([int(seed) for seed in arguments.work.split(",")])
        return 0
    end = time.monotonic() + arguments.seconds
    wish = range(arguments.seed, arguments.seed + arguments.count)
    found = {each.seed: each for each in kept(arguments.kept) if each.seed in wish}
    with tempfile.TemporaryDirectory() as cache:  # verdicts of this kind are for nobody else
        for each in all_judged([seed for seed in wish if seed not in found], cache):
            found[each.seed] = each
            if arguments.kept is not None:
                with arguments.kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(each)) + "\n")
            if time.monotonic() > end:
                break
    wrong = [each for each in found.values() if each.is_wrong]
    for each in wrong:
        print(f"seed {each.seed}: {each.far:.1e} apart: {each.name}")
    regions = sum(each.regions for each in found.values())
    print(f"{len(found)} functions, {regions} regions replaced, {len(wrong)} differ")
    for rule, what in RULES.items():
        if count := sum(each.rule == rule for each in found.values()):
            print(f"{count} differ and may: results {what}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
