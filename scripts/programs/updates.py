"""Updates: of parameters by norms, moments and private gradients, of fields on a grid, of points, and of images."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from scripts.programs.case import Case, f32, s32, words

Arrays = tuple[jax.Array, ...]


def by_trust(weight: jax.Array, mean: jax.Array, square: jax.Array, gradient: jax.Array) -> Arrays:
    """LAMB: a step as long as the norm of the weights."""
    mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
    step = mean / (jnp.sqrt(square) + 1e-6) + 0.01 * weight
    own, along = jnp.linalg.norm(weight), jnp.linalg.norm(step)
    return weight - 1e-3 * jnp.where((own > 0) & (along > 0), own / along, 1.0) * step, mean, square


def posterior(mean: jax.Array, spread: jax.Array, first: jax.Array, second: jax.Array, key: jax.Array) -> Arrays:
    """A step of variational inference: eight draws, the bound, and Adam for the means."""

    def bound(given: Arrays) -> jax.Array:
        noise = jax.random.normal(key, (8, mean.size))
        drawn = given[0] + jax.nn.softplus(given[1]) * noise
        entropy = -0.5 * jnp.sum(noise**2, 1) - jnp.sum(jnp.log(jax.nn.softplus(given[1])))
        return -jnp.mean(-0.5 * jnp.sum(drawn**2, 1) - 0.5 * jnp.sum((drawn - 1.0) ** 2, 1) - entropy)

    loss, (of_mean, of_spread) = jax.value_and_grad(bound)((mean, spread))
    first, second = 0.9 * first + 0.1 * of_mean, 0.999 * second + 0.001 * of_mean**2
    return loss, mean - 0.01 * first / (jnp.sqrt(second) + 1e-8), spread - 0.01 * of_spread, first, second


def private(weight: jax.Array, x: jax.Array, y: jax.Array, key: jax.Array) -> jax.Array:
    """A gradient of which no example has more than its share, with noise."""

    def loss(weight: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean((jnp.tanh(x @ weight) - y) ** 2)

    each = jax.vmap(jax.grad(loss), (None, 0, 0))(weight, x, y)
    share = jnp.minimum(1.0, 1.0 / jnp.sqrt(jnp.sum(each**2, (1, 2))))
    return jnp.einsum("b,bij->ij", share, each) / len(x) + 0.01 * jax.random.normal(key, weight.shape)


def field_step(ex: jax.Array, ey: jax.Array, ez: jax.Array, hx: jax.Array, hy: jax.Array, hz: jax.Array) -> Arrays:
    """Maxwell's equations on a staggered grid, and the energy."""

    def ahead(a: jax.Array, axis: int) -> jax.Array:
        return jnp.roll(a, -1, axis) - a

    def behind(a: jax.Array, axis: int) -> jax.Array:
        return a - jnp.roll(a, 1, axis)

    hx = hx - 0.5 * (ahead(ez, 1) - ahead(ey, 2))
    hy = hy - 0.5 * (ahead(ex, 2) - ahead(ez, 0))
    hz = hz - 0.5 * (ahead(ey, 0) - ahead(ex, 1))
    ex = ex + 0.5 * (behind(hz, 1) - behind(hy, 2))
    ey = ey + 0.5 * (behind(hx, 2) - behind(hz, 0))
    ez = ez + 0.5 * (behind(hy, 0) - behind(hx, 1))
    return ex, ey, ez, hx, hy, hz, (ex**2 + ey**2 + ez**2).sum()


def distilled(student: jax.Array, teacher: jax.Array, labels: jax.Array) -> Arrays:
    """The gradient of a loss that follows a teacher and labels."""

    def loss(student: jax.Array) -> jax.Array:
        soft = jax.nn.softmax(teacher / 4) * (jax.nn.log_softmax(teacher / 4) - jax.nn.log_softmax(student / 4))
        hard = -jnp.take_along_axis(jax.nn.log_softmax(student), labels[:, None], 1)[:, 0]
        return jnp.mean(11.2 * soft.sum(-1) + 0.3 * hard)

    made: Arrays = jax.value_and_grad(loss)(student)
    return made


def embedded(points: jax.Array, near: jax.Array) -> Arrays:
    """The gradient of t-SNE, and its divergence."""
    away = points[:, None] - points
    kernel = 1 / (1 + jnp.sum(away**2, -1)) * (1 - jnp.eye(len(points)))
    shares = kernel / kernel.sum()
    pull = (near - shares) * kernel
    return 4 * jnp.einsum("ij,ijd->id", pull, away), jnp.sum(near * jnp.log((near + 1e-9) / (shares + 1e-9)))


def followed(first: jax.Array, second: jax.Array) -> Arrays:
    """Lucas and Kanade's optical flow."""
    dx = (jnp.roll(first, -1, 1) - jnp.roll(first, 1, 1)) / 2
    dy = (jnp.roll(first, -1, 0) - jnp.roll(first, 1, 0)) / 2
    dt = second - first

    def around(a: jax.Array) -> jax.Array:
        return jax.lax.reduce_window(a, 0.0, jax.lax.add, (5, 5), (1, 1), "SAME")

    xx, yy, xy, xt, yt = (around(a) for a in (dx * dx, dy * dy, dx * dy, dx * dt, dy * dt))
    scale = xx * yy - xy * xy + 1e-6
    return (xy * yt - yy * xt) / scale, (xy * xt - xx * yt) / scale


GRID = f32(32, 32, 32)
MATRIX = f32(256, 512)
VECTOR = f32(20_000)

CASES = (
    Case("lamb_matrix", by_trust, (MATRIX, MATRIX, f32(256, 512, low=0, high=1), MATRIX)),
    Case("variational_step", posterior, (VECTOR, VECTOR, VECTOR, f32(20_000, low=0, high=1), words(2))),
    Case("private_gradient", private, (f32(128, 256), f32(32, 128), f32(32, 256), words(2))),
    Case("maxwell_step", field_step, (GRID,) * 6),
    Case("distillation_gradient", distilled, (f32(256, 1000), f32(256, 1000), s32(256, high=1000))),
    Case("tsne_gradient", embedded, (f32(256, 2), f32(256, 256, low=0, high=1))),
    Case("optical_flow", followed, (f32(128, 128), f32(128, 128))),
)
