"""The forms of the CartPole rollout that the case study goes through, in any size, and what the paper says of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from scripts.programs import cartpole
from scripts.programs.case import Case, f32, s32, words
from scripts.programs.random_bits import arithmetic_block, custom_call_block

Make = Callable[[int, int], Case]


def _joined(n: int, steps: int, unroll: int = 1) -> Case:
    fresh = f32(steps, n, 4, low=-cartpole.RESET_RANGE, high=cartpole.RESET_RANGE)
    state = f32(n, 4, low=-0.3, high=0.3)
    return Case("joined", partial(cartpole.scan_joined, unroll=unroll), (state, s32(steps, n), fresh))


def _separate(n: int, steps: int, unroll: int = 1) -> Case:
    column = f32(n, low=-0.3, high=0.3)
    fresh = f32(steps, n, low=-cartpole.RESET_RANGE, high=cartpole.RESET_RANGE)
    state = cartpole.State(column, column, column, column)
    return Case(
        "separate",
        partial(cartpole.scan_separate, unroll=unroll),
        (state, s32(steps, n), cartpole.State(fresh, fresh, fresh, fresh)),
    )


def _random(n: int, steps: int) -> Case:
    return Case("random", partial(cartpole.scan_random, steps=steps), (f32(n, 4, low=-0.3, high=0.3), words(2)))


def _call(n: int, steps: int) -> Case:
    state = f32(n, 4, low=-0.3, high=0.3)
    return Case("call", partial(cartpole.scan_block, block=custom_call_block), (state, s32(steps, n), words(2)))


def _arithmetic(n: int, steps: int) -> Case:
    state = f32(n, 4, low=-0.3, high=0.3)
    return Case("arithmetic", partial(cartpole.scan_block, block=arithmetic_block), (state, s32(steps, n), words(2)))


def _controlled(n: int, steps: int) -> Case:
    near = f32(n, low=-0.1, high=0.1)
    return Case("controlled", partial(cartpole.controlled, steps=steps), (cartpole.State(near, near, near, near),))


def _with_policy(state: jax.Array, first: jax.Array, second: jax.Array, *, steps: int) -> jax.Array:
    """Many steps in which a small network sees the state and chooses the push."""

    def body(_: int, state: jax.Array) -> jax.Array:
        votes = jnp.tanh(state @ first) @ second
        columns = cartpole.State(state[:, 0], state[:, 1], state[:, 2], state[:, 3])
        moved = cartpole.advance(columns, cartpole.force_of(jnp.where(votes[:, 1] > votes[:, 0], 1, 0)))
        return jnp.stack(moved, axis=1)

    last: jax.Array = lax.fori_loop(0, steps, body, state)
    return last


def _policy(n: int, steps: int) -> Case:
    arguments = f32(n, 4, low=-0.1, high=0.1), f32(4, 16), f32(16, 2)
    return Case("policy", partial(_with_policy, steps=steps), arguments)


@dataclass(frozen=True)
class Form:
    """A way to write the rollout: what is fused, and what is timed, which is the same program but where XLA:CPU cannot
    run it."""

    name: str
    title: str
    about: str
    fused: Make
    timed: Make


FORMS = {
    form.name: form
    for form in (
        Form("call", "random numbers by a custom call", "the naive form: one array of four columns, random numbers "
                                                        "from a call that no compiler looks into", _call, _arithmetic),
        Form("random", "random numbers by jax.random", "the same as a JAX program of today writes "
                                                       "it", _random, _random),
        Form("joined", "random numbers drawn before", "actions and fresh states come as arrays", _joined, _joined),
        Form("separate", "four arrays", "the state as four arrays, so that nothing is "
                                        "concatenated", _separate, _separate),
        Form("unrolled", "four arrays, unrolled by 10", "ten steps in each round of the loop",
            partial(_separate, unroll=10), partial(_separate, unroll=10)),
        Form("controlled", "under a controller", "nothing is random, and only the last state leaves the "
                                                 "kernel", _controlled, _controlled),
        Form("policy", "a network of 16 units chooses", "simulation and policy in one program", _policy, _policy),
    )
}  # fmt: skip
CROSSOVER = ("random", "separate")
"""Forms that are timed from one environment on: the naive one that XLA:CPU can run, and the best of those that the
authors wrote."""


@dataclass(frozen=True)
class Experiment:
    """A change that the paper makes, the gain that it measured on its GPU, and the form that has it here."""

    change: str
    paper: str
    form: str


EXPERIMENTS = (
    Experiment("the program as it stands", "1x", "call"),
    Experiment("random numbers drawn before the loop", "1.87x", "joined"),
    Experiment("XLA's rule on concatenates with several users relaxed", "about 1.1x more", "relaxed"),
    Experiment("the state as four arrays, no concatenate", "3.41x", "separate"),
    Experiment("the loop unrolled by 10", "3.5x; 10.56x in all", "unrolled"),
    Experiment("written by hand in CUDA", "2.7x the best XLA", "by hand"),
)


@dataclass(frozen=True)
class Published:
    """Steps a second that others give for simulators."""

    who: str
    what: str
    steps: float
    device: str


PUBLISHED = (
    Published("rlox (Rust)", "CartPole, a core, no learning", 27e6, "Apple M4"),
    Published("PufferLib Ocean (C)", "small environments, a core", 1e6, "a desktop processor"),
    Published("EnvPool", "MuJoCo", 3e6, "DGX A100, 256 cores"),
    Published("WarpDrive (arXiv 2108.13976)", "Tag with 1,000 agents", 2.9e6, "V100"),
    Published("CuLE (arXiv 1907.08467)", "Atari frames", 187e3, "4 GPUs"),
    Published("PokeJAX (arXiv 2603.12145)", "a battle game, random play", 500e6, "one GPU"),
)
