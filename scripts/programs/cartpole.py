"""CartPole, the running example of "Operator Fusion in XLA: Analysis and Evaluation", over many environments at once.

The physics is that of the classic control problem. An environment that leaves its bounds starts again from a random
state. The forms differ in what stood in the way of fusion: how random numbers are drawn (a call to a kernel that
the compiler cannot look into, arithmetic, one instruction, or before the step), whether the state is one concatenated
array, and whether the loop over steps is unrolled.
"""

from __future__ import annotations

from functools import partial
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from scripts.programs.case import Case, Form, f32, s32, words
from scripts.programs.random_bits import Block, arithmetic_block, custom_call_block, random_words, split, uniform

ENVIRONMENTS = 2048
STEPS = 30
UNROLL = 10

GRAVITY = 9.8
CART_MASS = 1.0
POLE_MASS = 0.1
TOTAL_MASS = CART_MASS + POLE_MASS
HALF_POLE_LENGTH = 0.5
POLE_MOMENT = POLE_MASS * HALF_POLE_LENGTH
FORCE = 10.0
SECONDS = 0.02
POSITION_LIMIT = 2.4
ANGLE_LIMIT = 12 * 2 * 3.141592653589793 / 360
RESET_RANGE = 0.05

T = TypeVar("T")


class State(NamedTuple, Generic[T]):
    """The state of all environments as four arrays of one length."""

    position: T
    velocity: T
    angle: T
    angular_velocity: T


Columns: TypeAlias = State[jax.Array]


def force_of(action: jax.Array) -> jax.Array:
    """The push of an action: 1 pushes right and 0 pushes left."""
    return jnp.where(action == 1, FORCE, -FORCE)


def advance(state: Columns, force: jax.Array) -> Columns:
    """One Euler step of the physics."""
    cos, sin = jnp.cos(state.angle), jnp.sin(state.angle)
    push = (force + POLE_MOMENT * jnp.square(state.angular_velocity) * sin) / TOTAL_MASS
    inertia = HALF_POLE_LENGTH * (4.0 / 3.0 - POLE_MASS * jnp.square(cos) / TOTAL_MASS)
    angular_acceleration = (GRAVITY * sin - cos * push) / inertia
    acceleration = push - POLE_MOMENT * angular_acceleration * cos / TOTAL_MASS
    return State(
        state.position + SECONDS * state.velocity,
        state.velocity + SECONDS * acceleration,
        state.angle + SECONDS * state.angular_velocity,
        state.angular_velocity + SECONDS * angular_acceleration,
    )


def is_over(state: Columns) -> jax.Array:
    """Where the cart has left the track or the pole has fallen."""
    outside = (state.position < -POSITION_LIMIT) | (state.position > POSITION_LIMIT)
    fallen = (state.angle < -ANGLE_LIMIT) | (state.angle > ANGLE_LIMIT)
    return outside | fallen


def step_joined(state: jax.Array, action: jax.Array, fresh: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """A step on a state of shape [environments, 4]; `fresh` are the states to start again from."""
    columns = State(state[:, 0], state[:, 1], state[:, 2], state[:, 3])
    moved = advance(columns, force_of(action))
    done = is_over(moved)
    reward = jnp.where(done, 0.0, 1.0)
    joined = jnp.concatenate(tuple(column[:, None] for column in moved), axis=1)
    return jnp.where(done[:, None], fresh, joined), reward, done


def step_separate(state: Columns, action: jax.Array, fresh: Columns) -> tuple[Columns, jax.Array, jax.Array]:
    """A step on a state of four arrays, with no concatenate anywhere."""
    moved = advance(state, force_of(action))
    done = is_over(moved)
    reward = jnp.where(done, 0.0, 1.0)
    return State(*(jnp.where(done, new, old) for new, old in zip(fresh, moved, strict=True))), reward, done


def step_block(
    state: jax.Array, action: jax.Array, key: jax.Array, *, block: Block
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """A step that draws the fresh states itself, its random words coming from the given ThreeFry block."""
    key, draw = split(key, block)
    fresh = uniform(random_words(draw, state.size, block), -RESET_RANGE, RESET_RANGE).reshape(state.shape)
    return (*step_joined(state, action, fresh), key)


def step_random(
    state: jax.Array, action: jax.Array, key: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """A step that draws the fresh states with `jax.random`, as a JAX program of today does."""
    key, draw = jax.random.split(key)
    fresh = jax.random.uniform(draw, state.shape, minval=-RESET_RANGE, maxval=RESET_RANGE)
    return (*step_joined(state, action, fresh), key)


def step_generator(
    state: jax.Array, action: jax.Array, generator: jax.Array, *, algorithm: lax.RandomAlgorithm
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """A step that draws the fresh states with one `rng-bit-generator`, whose state it carries along."""
    generator, drawn = lax.rng_bit_generator(generator, state.shape, dtype=jnp.uint32, algorithm=algorithm)
    fresh = uniform(drawn, -RESET_RANGE, RESET_RANGE)
    return (*step_joined(state, action, fresh), generator)


def scan_joined(
    state: jax.Array, actions: jax.Array, fresh: jax.Array, *, unroll: int = 1
) -> tuple[jax.Array, jax.Array]:
    """Many steps with everything random drawn before; returns the last state and the reward of every step."""

    def body(state: jax.Array, drawn: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        state, reward, _ = step_joined(state, *drawn)
        return state, reward

    return lax.scan(body, state, (actions, fresh), unroll=unroll)


def scan_separate(state: Columns, actions: jax.Array, fresh: Columns, *, unroll: int = 1) -> tuple[Columns, jax.Array]:
    """Many steps on a state of four arrays."""

    def body(state: Columns, drawn: tuple[jax.Array, Columns]) -> tuple[Columns, jax.Array]:
        state, reward, _ = step_separate(state, *drawn)
        return state, reward

    return lax.scan(body, state, (actions, fresh), unroll=unroll)


def scan_random(
    state: jax.Array, key: jax.Array, *, steps: int = STEPS, unroll: int = 1
) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
    """Many steps that draw their actions and fresh states on the way."""

    def body(carry: tuple[jax.Array, jax.Array], nothing: None) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        state, key = carry
        key, choose, draw = jax.random.split(key, 3)
        action = jax.random.bernoulli(choose, 0.5, (state.shape[0],)).astype(jnp.int32)
        fresh = jax.random.uniform(draw, state.shape, minval=-RESET_RANGE, maxval=RESET_RANGE)
        state, reward, _ = step_joined(state, action, fresh)
        return (state, key), reward

    return lax.scan(body, (state, key), None, length=steps, unroll=unroll)


def scan_block(
    state: jax.Array, actions: jax.Array, key: jax.Array, *, block: Block, unroll: int = 1
) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
    """Many steps that draw their fresh states with the given ThreeFry block."""

    def body(carry: tuple[jax.Array, jax.Array], action: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        state, reward, _, key = step_block(carry[0], action, carry[1], block=block)
        return (state, key), reward

    return lax.scan(body, (state, key), actions, unroll=unroll)


def controlled(state: Columns, *, steps: int) -> Columns:
    """Many steps under a controller that brings cart and pole to rest; nothing is random and nothing starts again."""

    def body(_: jax.Array, state: Columns) -> Columns:
        lean = 20.0 * state.angle + 4.0 * state.angular_velocity
        force = jnp.clip(lean + state.position + 2.0 * state.velocity, -FORCE, FORCE)
        return advance(state, force)

    last: Columns = lax.fori_loop(0, steps, body, state)
    return last


def controlled_joined(state: jax.Array, *, steps: int) -> jax.Array:
    """The same on a state of shape [environments, 4], taken apart and joined again in every step."""

    def body(_: jax.Array, state: jax.Array) -> jax.Array:
        columns = controlled(State(state[:, 0], state[:, 1], state[:, 2], state[:, 3]), steps=1)
        return jnp.stack(columns, axis=1)

    last: jax.Array = lax.fori_loop(0, steps, body, state)
    return last


N = ENVIRONMENTS
JOINED = f32(N, 4, low=-0.3, high=0.3)
FRESH = f32(N, 4, low=-RESET_RANGE, high=RESET_RANGE)
COLUMN = f32(N, low=-0.3, high=0.3)
FRESH_COLUMN = f32(N, low=-RESET_RANGE, high=RESET_RANGE)
FRESH_COLUMNS = f32(STEPS, N, low=-RESET_RANGE, high=RESET_RANGE)
ACTION = s32(N)
NEAR = f32(N, low=-0.1, high=0.1)
SEPARATE = State(COLUMN, COLUMN, COLUMN, COLUMN)
BOTH: tuple[Form, ...] = ("short", "frames")
OLD_KEYS = {"jax_threefry_partitionable": False}
STEP = (JOINED, ACTION, words(2))
SCAN = (JOINED, s32(STEPS, N), f32(STEPS, N, 4, low=-RESET_RANGE, high=RESET_RANGE))
SCAN_SEPARATE = (
    SEPARATE,
    s32(STEPS, N),
    State(FRESH_COLUMNS, FRESH_COLUMNS, FRESH_COLUMNS, FRESH_COLUMNS),
)
SCAN_KEY = (JOINED, s32(STEPS, N), words(2))
GENERATOR = (JOINED, ACTION, words(4))

CASES = [
    # (a) one concatenated state, random numbers drawn inside the step
    Case(
        "cartpole_custom_call",
        partial(step_block, block=custom_call_block),
        STEP,
        ("short", "classic", "frames"),
        twin="cartpole_arithmetic",
    ),
    Case("cartpole_arithmetic", partial(step_block, block=arithmetic_block), STEP, BOTH),
    Case("cartpole_arithmetic_loop", partial(step_block, block=arithmetic_block), STEP, platform="cpu"),
    Case("cartpole_random", step_random, STEP, BOTH),
    Case("cartpole_random_loop", step_random, STEP, platform="cpu"),
    Case("cartpole_random_old_keys", step_random, STEP, settings=OLD_KEYS),
    Case(
        "cartpole_random_ffi",
        step_random,
        STEP,
        ("short", "frames"),
        settings={"jax_threefry_gpu_kernel_lowering": True},
        twin="cartpole_random",
    ),
    Case(
        "cartpole_generator_threefry",
        partial(step_generator, algorithm=lax.RandomAlgorithm.RNG_THREE_FRY),
        GENERATOR,
        BOTH,
    ),
    Case("cartpole_generator_philox", partial(step_generator, algorithm=lax.RandomAlgorithm.RNG_PHILOX), GENERATOR),
    Case("cartpole_generator_default", partial(step_generator, algorithm=lax.RandomAlgorithm.RNG_DEFAULT), GENERATOR),
    # (b) random numbers drawn before
    Case("cartpole_precomputed", step_joined, (JOINED, ACTION, FRESH), ("short", "classic", "frames"), donate=(0,)),
    # (c) no concatenate
    Case(
        "cartpole_separate",
        step_separate,
        (SEPARATE, ACTION, State(FRESH_COLUMN, FRESH_COLUMN, FRESH_COLUMN, FRESH_COLUMN)),
        BOTH,
        donate=(0,),
    ),
    # (d) many steps
    Case("cartpole_scan", scan_joined, SCAN, BOTH),
    Case("cartpole_scan_unrolled", partial(scan_joined, unroll=UNROLL), SCAN, BOTH),
    Case("cartpole_scan_separate", scan_separate, SCAN_SEPARATE, BOTH, donate=(0,)),
    Case("cartpole_scan_separate_unrolled", partial(scan_separate, unroll=UNROLL), SCAN_SEPARATE, donate=(0,)),
    Case("cartpole_scan_random", scan_random, (JOINED, words(2))),
    Case("cartpole_scan_random_unrolled", partial(scan_random, unroll=UNROLL), (JOINED, words(2))),
    Case(
        "cartpole_scan_custom_call",
        partial(scan_block, block=custom_call_block),
        SCAN_KEY,
        BOTH,
        twin="cartpole_scan_arithmetic",
    ),
    Case("cartpole_scan_arithmetic", partial(scan_block, block=arithmetic_block), SCAN_KEY),
    Case(
        "cartpole_scan_custom_call_unrolled",
        partial(scan_block, block=custom_call_block, unroll=UNROLL),
        SCAN_KEY,
        twin="cartpole_scan_arithmetic",
    ),
    # (e) nothing random: a long loop that ends at rest, so its results do not hang on rounding
    Case("cartpole_controlled", partial(controlled, steps=1000), (State(NEAR, NEAR, NEAR, NEAR),), BOTH),
    Case("cartpole_controlled_joined", partial(controlled_joined, steps=100), (f32(N, 4, low=-0.1, high=0.1),)),
]
