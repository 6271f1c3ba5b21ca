"""Random JAX functions with and without the hook: python -m scripts.random_jax [--count N] [--seed S]

Each is a few `jax.numpy` operations on arrays of a few shapes, with scans, conditions, gradients and products of matrices among them. Every region that can be is replaced, however quick it
is, and the results are compared with what XLA gives: to a thousandth of the largest magnitude, where XLA itself agrees so well with the same function in double precision. Prints the functions
that differ, and exits with 1 where there are any.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any
from unittest import mock

from scripts.xla_cpu import Leaf, sample_inputs  # isort: skip  # sets up JAX for the CPU, so it comes first

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import hlo_opt.jax
from hlo_opt.jax import decide
from scripts.bench.jax_hook import apart

Array = Any
Step = Callable[[Array], Array]

FAR = 1e-3
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
}


def scanned(f: Step, count: int) -> Step:
    return lambda x: lax.scan(lambda c, _: (jnp.tanh(f(c)), None), x, None, length=count)[0]


def summed(f: Step) -> Step:
    return lambda x: lax.scan(lambda c, _: (jnp.tanh(f(c)), c.sum()), x, None, length=5)[1].sum() + x


def either(f: Step, g: Step) -> Step:
    return lambda x: lax.cond(x[(0,) * x.ndim] > 0.1, f, g, x)


def derived(f: Step) -> Step:
    return lambda x: jnp.tanh(jax.grad(lambda y: jnp.sin(f(y)).sum())(x))


def repeated(f: Step) -> Step:
    return lambda x: lax.while_loop(lambda s: s[1] < 7, lambda s: (jnp.tanh(f(s[0])), s[1] + 1), (x, 0))[0]


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
        else:
            names.append(str(generator.choice(list(SIMPLE))))
            steps.append(SIMPLE[names[-1]])
            continue
        names.append("]")

    def run(x: Array) -> Array:
        for step in steps:
            x = step(x)
        return x

    return run


def judged(seed: int) -> tuple[str, float, int]:
    """The function of a seed, how far results are apart (0 where XLA does not agree with double precision), and how many regions were replaced."""
    generator = np.random.default_rng(seed)
    names: list[str] = []
    first, second = chain(generator, 2, names), chain(generator, 2, names)
    shape = SHAPES[generator.integers(len(SHAPES))]

    def function(x: Array, y: Array) -> Any:
        a = first(x + y)
        return a, second(a * 0.5 + y), a.sum()

    given = sample_inputs([Leaf(shape, np.dtype(np.float32))] * 2, seed)
    expected = jax.jit(function)(*given)
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        found = jax.jit(lambda *a: function(*a))(*given)
    faults = [line for line in report.lines if line.code == "JAX303"]
    if faults:
        return f"{' '.join(names)}: {faults[0]}", np.inf, 0
    far = apart(found, expected)
    if far > FAR:
        with jax.enable_x64(True):
            exact = jax.jit(function)(*(a.astype(np.float64) for a in given))
        if apart(expected, exact) > FAR / 10:
            far = 0.0
    return f"{shape} {' '.join(names)}", far, len(report.replaced)


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    wrong = replaced = 0
    os.environ["HLO_OPT_CACHE"] = tempfile.mkdtemp()  # verdicts of this kind are for nobody else

    def quick(*_: Array) -> tuple[float, float]:
        return 1.0, 100.0

    with mock.patch.multiple(decide, times=quick, compared=quick):
        for seed in range(arguments.seed, arguments.seed + arguments.count):
            name, far, regions = judged(seed)
            replaced += regions
            if far > FAR:
                wrong += 1
                print(f"seed {seed}: {far:.1e} apart: {name}", flush=True)
    print(f"{arguments.count} functions, {replaced} regions replaced, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
