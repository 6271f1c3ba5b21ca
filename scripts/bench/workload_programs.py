"""The workloads that papers on fusion name as its home, one JAX program each (`workloads`); those that other tables
have too are theirs (`host_programs`)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.host_programs import Array, attention, black_scholes, gradient_of, gru, heat, layer_norm, mandelbrot
from scripts.programs.adam import AdamState, adam
from scripts.programs.case import Arg, Case, f32, s32, words

PARAMETERS = 200
"""Arrays that Adam updates."""
STEPS = {"lotka_volterra_rk4": 500, "n_body": 10, "metropolis": 200, "annealing": 200, "simulation_gradient": 100}
"""Rounds of the loops that are written here."""


def lotka_volterra_rk4(prey: Array, hunters: Array) -> tuple[Array, Array]:
    """Two populations, by the classic Runge-Kutta method."""
    size = 0.01

    def slope(a: Array, b: Array) -> tuple[Array, Array]:
        return 1.1 * a - 0.4 * a * b, 0.1 * a * b - 0.4 * b

    def step(_: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        a, b = state
        k1, l1 = slope(a, b)
        k2, l2 = slope(a + size / 2 * k1, b + size / 2 * l1)
        k3, l3 = slope(a + size / 2 * k2, b + size / 2 * l2)
        k4, l4 = slope(a + size * k3, b + size * l3)
        return a + size / 6 * (k1 + 2 * k2 + 2 * k3 + k4), b + size / 6 * (l1 + 2 * l2 + 2 * l3 + l4)

    return lax.fori_loop(0, STEPS["lotka_volterra_rk4"], step, (prey, hunters))


def n_body(place: Array, speed: Array, mass: Array) -> tuple[Array, Array]:
    """Bodies that attract each other."""

    def step(_: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        place, speed = state
        apart = place[None] - place[:, None]
        near = (apart**2).sum(-1) + 1e-2
        speed = speed + 1e-3 * (apart * (mass[None] * near**-1.5)[..., None]).sum(1)
        return place + 1e-3 * speed, speed

    return lax.fori_loop(0, STEPS["n_body"], step, (place, speed))


def metropolis(x: Array, key: Array) -> Array:
    """Chains that sample a double well; all numbers are drawn on the way."""

    def energy(x: Array) -> Array:
        return (x * x - 1) ** 2

    def step(_: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        x, key = state
        key, move, accept = jax.random.split(key, 3)
        there = x + jax.random.uniform(move, x.shape, minval=-0.5, maxval=0.5)
        chance = jnp.exp(energy(x) - energy(there))
        return jnp.where(jax.random.uniform(accept, x.shape) < chance, there, x), key

    return lax.fori_loop(0, STEPS["metropolis"], step, (x, key))[0]


def annealing(x: Array, y: Array, key: Array) -> tuple[Array, Array]:
    """Searches for the least of Rastrigin's function, cooled from round to round."""
    rounds = STEPS["annealing"]

    def height(x: Array, y: Array) -> Array:
        turn = 2 * jnp.pi
        return x * x + y * y - 10 * (jnp.cos(turn * x) + jnp.cos(turn * y))

    def step(k: Any, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, y, key = state
        key, one, two, accept = jax.random.split(key, 4)
        heat = 5.0 * (1 - k / rounds) + 0.01
        a = x + jax.random.uniform(one, x.shape, minval=-0.5, maxval=0.5)
        b = y + jax.random.uniform(two, y.shape, minval=-0.5, maxval=0.5)
        taken = jax.random.uniform(accept, x.shape) < jnp.exp((height(x, y) - height(a, b)) / heat)
        return jnp.where(taken, a, x), jnp.where(taken, b, y), key

    return lax.fori_loop(0, rounds, step, (x, y, key))[:2]


def second_derivative(x: Array) -> Array:
    """The gradient of a gradient, at many points."""

    def curve(x: Array) -> Array:
        return jnp.sin(x) * jnp.tanh(x * x) + jnp.exp(-x * x)

    return jax.vmap(jax.grad(jax.grad(curve)))(x)


def laplacian(points: Array, first: Array, second: Array, last: Array) -> Array:
    """Of a small network with three layers, at many points: what a physics-informed loss asks for."""

    def network(point: Array) -> Array:
        return jnp.tanh(jnp.tanh(point @ first) @ second) @ last

    return jax.vmap(lambda point: jnp.trace(jax.hessian(network)(point)))(points)


def simulation_gradient(angle: Array, speed: Array, drag: Array) -> tuple[Array, Array, Array]:
    """How the end of a damped pendulum follows from its start and its drag: the gradient of a loop."""

    def end(angle: Array, speed: Array, drag: Array) -> Array:
        def step(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            angle, speed = state
            speed = speed - 0.02 * (jnp.sin(angle) + drag * speed)
            return (angle + 0.02 * speed, speed), None

        (angle, speed), _ = lax.scan(step, (angle, speed), None, length=STEPS["simulation_gradient"])
        return jnp.sum(angle**2 + speed**2)

    return jax.grad(end, argnums=(0, 1, 2))(angle, speed, drag)


def _trees(low: float | None = None, high: float | None = None) -> list[Arg]:
    """Half of the parameters are matrices, half are vectors, as of layers with a bias."""
    return [f32(*shape, low=low, high=high) for _ in range(PARAMETERS // 2) for shape in ((64, 64), (64,))]


NEAR = {"low": -1.0, "high": 1.0}
WORKLOADS = {
    f"Adam over {PARAMETERS} parameters": Case(
        "adam", adam, (_trees(), _trees(), AdamState(s32(), _trees(), _trees(0.0, 1.0)))
    ),
    "Lotka-Volterra, RK4": Case(
        "lotka_volterra_rk4", lotka_volterra_rk4, (f32(1024, low=1, high=2), f32(1024, low=1, high=2))
    ),
    "heat stencil": Case("heat", heat, (f32(512, 512),)),
    "Black-Scholes": Case("black_scholes", black_scholes, tuple(f32(1 << 20, low=1, high=2) for _ in range(3))),
    "layer norm with gradient": Case(
        "layer_norm", gradient_of(layer_norm), (f32(1024, 1024), f32(1024), f32(1024), f32(1024, 1024))
    ),
    "attention softmax": Case("attention", attention, tuple(f32(8, 256, 64) for _ in range(3))),
    "Mandelbrot": Case("mandelbrot", mandelbrot, (f32(256, 256, low=-2, high=0.5), f32(256, 256, low=-1.2, high=1.2))),
    "n-body": Case("n_body", n_body, (f32(512, 3), f32(512, 3), f32(512, low=0, high=1))),
    "GRU": Case("gru", gru, (f32(32, 16, 64), f32(16, 64), f32(64, 192, **NEAR), f32(64, 192, **NEAR))),
    "Metropolis sampling": Case("metropolis", metropolis, (f32(4096, **NEAR), words(2))),
    "simulated annealing": Case("annealing", annealing, (f32(4096), f32(4096), words(2))),
    "grad of grad": Case("second_derivative", second_derivative, (f32(1 << 18),)),
    "Laplacian of a network": Case(
        "laplacian", laplacian, (f32(2048, 2), f32(2, 32, **NEAR), f32(32, 32, **NEAR), f32(32, **NEAR))
    ),
    "gradient of a simulation": Case(
        "simulation_gradient", simulation_gradient, (f32(4096), f32(4096), f32(4096, low=0, high=0.5))
    ),
}
"""By what the table calls them. `torch_programs` has the same by the names of the cases."""
