"""The evaluator against XLA:CPU's compiled module, in one run: python -m scripts.bench.evaluate_speed [--runs N] [--most X]

Programs: a 1024x1024 softmax, a train step of a 2,048-wide MLP, a 64-channel convolution, and a gather, a scatter and a sort of a million elements. Prints
the fastest of N runs of both in milliseconds and how often the evaluator's time is XLA's; exits with 1 when one is more than X (10).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import hlo_opt
from scripts.xla_cpu import Program

MILLION = 1_000_000
Function = Callable[..., Any]


def softmax(x: Any) -> Any:
    return jax.nn.softmax(x)


def train_step(first: Any, second: Any, x: Any, y: Any) -> Any:
    def loss(weights: Any) -> Any:
        return jnp.mean((jax.nn.relu(x @ weights[0]) @ weights[1] - y) ** 2)

    slopes = jax.grad(loss)((first, second))
    return first - 0.1 * slopes[0], second - 0.1 * slopes[1]


def convolution(x: Any, kernel: Any) -> Any:
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME")


def gather(x: Any, indices: Any) -> Any:
    return x[indices]


def scatter(x: Any, indices: Any, updates: Any) -> Any:
    return x.at[indices].add(updates)


def sort(x: Any) -> Any:
    return jnp.sort(x)


def cases() -> list[tuple[Function, list[np.ndarray[Any, np.dtype[Any]]]]]:
    """The programs with their inputs."""
    generator = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray[Any, np.dtype[Any]]:
        return generator.standard_normal(shape).astype(np.float32)

    indices = generator.integers(0, MILLION, MILLION).astype(np.int32)
    return [
        (softmax, [normal(1024, 1024)]),
        (train_step, [normal(2048, 2048), normal(2048, 2048), normal(128, 2048), normal(128, 2048)]),
        (convolution, [normal(8, 64, 32, 32), normal(64, 64, 3, 3)]),
        (gather, [normal(MILLION), indices]),
        (scatter, [normal(MILLION), indices, normal(MILLION)]),
        (sort, [normal(MILLION)]),
    ]


def fastest(run: Callable[[], object], runs: int) -> float:
    """Seconds of the fastest of so many runs, after one that does not count."""
    run()
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--most", type=float, default=10.0)
    options = parser.parse_args()
    worst = 0.0
    for function, inputs in cases():
        lowered = jax.jit(function).lower(*inputs).compiler_ir("hlo")
        assert lowered is not None
        text = lowered.as_hlo_text()
        theirs = fastest(partial(Program(text), inputs), options.runs)
        ours = fastest(partial(hlo_opt.evaluate, hlo_opt.parse(text), inputs), options.runs)
        worst = max(worst, ours / theirs)
        print(
            f"{function.__name__:12} XLA:CPU {theirs * 1e3:9.2f} ms   evaluate {ours * 1e3:9.2f} ms   x{ours / theirs:.1f}"
        )
    return int(worst > options.most)


if __name__ == "__main__":
    sys.exit(main())
