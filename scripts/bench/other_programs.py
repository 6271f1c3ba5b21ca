"""Programs of many kinds for `jax.jit` with and without the hook: what numerical, statistical and machine learning code
does. None of them was looked at while the hook was written."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.programs.case import Case, f32, of, s32, words

Array = Any

# ---- linear algebra and signals


def ridge(x: Array, y: Array) -> Array:
    """Least squares with a penalty, by Cholesky's decomposition."""
    gram = x.T @ x + 0.1 * jnp.eye(x.shape[1])
    return jnp.tanh(jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(gram), x.T @ y)) * 2


def whitened(x: Array) -> Array:
    """Rows without their mean and their covariance, by eigenvalues."""
    centred = (x - x.mean(0)) / (1 + jnp.abs(x).max(0))
    values, vectors = jnp.linalg.eigh(centred.T @ centred / x.shape[0] + jnp.eye(x.shape[1]))
    return centred @ (vectors / jnp.sqrt(values)) @ vectors.T


def power_iteration(a: Array) -> Array:
    symmetric = a @ a.T / a.shape[0]
    start = jnp.ones(a.shape[0]) / jnp.sqrt(a.shape[0])
    return lax.fori_loop(0, 30, lambda _, v: symmetric @ v / jnp.linalg.norm(symmetric @ v), start)


def low_pass(x: Array) -> Array:
    """A filter in the frequency domain: complex numbers on the way."""
    spectrum = jnp.fft.rfft(x * jnp.hanning(x.shape[-1]), axis=-1)
    mask = jnp.exp(-jnp.arange(spectrum.shape[-1]) / 20.0)
    return jnp.fft.irfft(spectrum * mask * jnp.exp(1j * 0.3), n=x.shape[-1], axis=-1)


def mandelbrot(c: Array) -> Array:
    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        z, count = carry
        inside = jnp.abs(z) < 2
        return (jnp.where(inside, z * z + c, z), count + inside), None

    return lax.scan(step, (jnp.zeros_like(c), jnp.zeros(c.shape, jnp.int32)), None, length=20)[0][1]


# ---- loops and control flow


def recurrence(x: Array, w: Array) -> Array:
    """A scan over inputs that also stacks what it finds."""

    def step(h: Array, row: Array) -> tuple[Array, tuple[Array, Array]]:
        h = 0.9 * h + jnp.tanh(row * w)
        return h, (h * h, jnp.max(h))

    return lax.scan(step, jnp.zeros(x.shape[1]), x)


def newton(x: Array) -> Array:
    """Square roots, until all are good enough."""

    def worse(state: tuple[Array, Array]) -> Array:
        root, count = state
        return (jnp.abs(root * root - target).max() > 1e-3) & (count < 50)

    target = jnp.abs(x) + 0.5
    return lax.while_loop(worse, lambda s: (0.5 * (s[0] + target / s[0]), s[1] + 1), (target, 0))


def associative(x: Array) -> Array:
    """A linear recurrence as a tree."""
    return lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (0.9 + 0.01 * x, x))[1]


def nested_conditions(x: Array) -> Array:
    inner = partial(lax.cond, x.mean() > 0, jnp.sin, lambda v: jnp.exp(-v * v))
    return lax.cond(x[0, 0] > -9, lambda v: inner(v) + 1, jnp.cos, x) * 2


def runge_kutta(y: Array) -> Array:
    """Lorenz's equations for many starts."""

    def slope(y: Array) -> Array:
        a, b, c = y
        return jnp.stack([10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c])

    def step(y: Array, _: None) -> tuple[Array, Array]:
        h = 0.002
        k1 = slope(y)
        k2 = slope(y + h / 2 * k1)
        k3 = slope(y + h / 2 * k2)
        k4 = slope(y + h * k3)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), y[2].mean()

    return lax.scan(step, y, None, length=50)


def life(board: Array) -> Array:
    """Conway's game on small integers."""

    def step(_: int, b: Array) -> Array:
        near = [jnp.roll(b, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]
        count = sum(near[1:], near[0])
        return ((count == 3) | ((b == 1) & (count == 2))).astype(jnp.int8)

    return lax.fori_loop(0, 6, step, board.astype(jnp.int8))


# ---- derivatives


@jax.custom_vjp
def clipped(x: Array) -> Array:
    return jnp.sin(x) * x


def _clipped_forward(x: Array) -> tuple[Array, Array]:
    return clipped(x), x


def _clipped_backward(x: Array, g: Array) -> tuple[Array]:
    return (jnp.clip(g * (jnp.cos(x) * x + jnp.sin(x)), -0.5, 0.5),)


clipped.defvjp(_clipped_forward, _clipped_backward)


@jax.custom_jvp
def soft(x: Array) -> Array:
    return jnp.log1p(jnp.exp(x))


@soft.defjvp
def _soft_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return soft(primals[0]), jax.nn.sigmoid(primals[0]) * tangents[0]


def layers(w: list[Array], x: Array) -> Array:
    for each in w:
        x = jax.checkpoint(lambda v, each=each: jax.nn.gelu(v @ each))(x)
    return jnp.square(x).mean()


def per_example(w: Array, x: Array, y: Array) -> Array:
    """Norms of each example's gradient."""
    one = jax.grad(lambda w, x, y: jnp.square(jnp.tanh(x @ w) - y).sum())
    return jnp.sqrt(jnp.square(jax.vmap(one, (None, 0, 0))(w, x, y)).sum((1, 2)))


# ---- learning


def bf16_step(w: Array, x: Array, y: Array) -> Array:
    """A step of momentum in mixed precision."""

    def loss(w: Array) -> Array:
        hidden = jax.nn.relu(x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(jnp.float32)
        return jnp.square(hidden.sum(-1) - y).mean() * 1e-2

    value, slope = jax.value_and_grad(loss)(w)
    norm = jnp.sqrt(jnp.square(slope).sum())
    return w - 0.01 * slope * jnp.minimum(1.0, 1.0 / (norm + 1e-6)), value


def lion(tree: dict[str, Array], momentum: dict[str, Array]) -> Any:
    """An optimizer over a tree of parameters."""
    rate = jax.tree.map(lambda p, m: p - 1e-3 * (jnp.sign(0.9 * m + 0.1 * p) + 0.01 * p), tree, momentum)
    return rate, jax.tree.map(lambda m, p: 0.99 * m + 0.01 * p, momentum, tree)


def quantized(x: Array, w: Array) -> Array:
    """A product in 8 bits, with a scale for each row."""
    scale_x, scale_w = jnp.abs(x).max(1, keepdims=True) / 127, jnp.abs(w).max(0, keepdims=True) / 127
    a, b = jnp.round(x / scale_x).astype(jnp.int8), jnp.round(w / scale_w).astype(jnp.int8)
    return lax.dot(a, b, preferred_element_type=jnp.int32).astype(jnp.float32) * scale_x * scale_w


def attention(x: Array) -> Array:
    """Two heads with rotated positions, by einsum."""
    q, k, v = (x.reshape(x.shape[0], 2, -1) * c for c in (1.0, 0.7, 1.3))
    half = q.shape[-1] // 2
    angle = jnp.arange(x.shape[0])[:, None, None] / 100.0 ** (jnp.arange(half) / half)
    turned = [
        jnp.concatenate([t[..., :half] * jnp.cos(angle) - t[..., half:] * jnp.sin(angle), t[..., half:]], -1)
        for t in (q, k)
    ]
    scores = jnp.einsum("qhd,khd->hqk", *turned) / jnp.sqrt(q.shape[-1])
    return jnp.einsum(
        "hqk,khd->qhd", jax.nn.softmax(jnp.where(jnp.tril(jnp.ones(scores.shape[1:], bool)), scores, -1e9)), v
    )


def group_norm(x: Array) -> Array:
    grouped = x.reshape(x.shape[0], 4, -1)
    mean, spread = grouped.mean(-1, keepdims=True), grouped.var(-1, keepdims=True)
    return ((grouped - mean) * lax.rsqrt(spread + 1e-5)).reshape(x.shape) * 1.1 + 0.1


def cross(x: Array, labels: Array) -> Array:
    return jax.grad(lambda x: -jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], 1).mean())(x)


# ---- random numbers, orders, places


def dropped(key: Array, x: Array) -> Array:
    first, second = jax.random.split(jax.random.wrap_key_data(key))
    kept = jax.random.bernoulli(first, 0.8, x.shape)
    return jnp.where(kept, x / 0.8, 0) + 0.1 * jax.random.uniform(second, x.shape)


def other_generator(key: Array) -> Array:
    wide = jnp.concatenate([key, key + 1])
    return jax.random.uniform(jax.random.wrap_key_data(wide, impl="rbg"), (64, 64)) * 2 - 1


def drawn_kinds(key: Array) -> Any:
    keys = jax.random.split(jax.random.wrap_key_data(key), 3)
    return (
        jax.random.gumbel(keys[0], (500,)),
        jax.random.randint(keys[1], (500,), 0, 9),
        jax.random.permutation(keys[2], 64),
    )


def best(x: Array) -> Any:
    values, places = lax.top_k(x, 5)
    return values.sum(1), places, jnp.argsort(x, axis=1)[:, ::7], jnp.quantile(x, 0.3, axis=1)


def segments(x: Array, ids: Array) -> Any:
    total = jax.ops.segment_sum(jnp.exp(x * 0.1), ids, 16)
    return total, (x / total[ids]), jax.ops.segment_max(x, ids, 16)


def scattered(x: Array, at: Array) -> Array:
    y = jnp.tanh(x).at[at].add(0.5).at[at[:9]].multiply(2.0)
    return y.at[3:7].set(y[4:8] + 1).at[::5].max(0.25)


def histogram(x: Array) -> Any:
    bins = jnp.clip(jnp.floor((x + 3) * 5), 0, 29).astype(jnp.int32)
    return jnp.zeros(30, jnp.int32).at[bins].add(1), jnp.searchsorted(jnp.sort(x), jnp.linspace(-2, 2, 40))


def images(x: Array) -> Array:
    """Bilinear resizing, padding with reflections, largest values of windows."""
    larger = jax.image.resize(x, (x.shape[0], 20, 20), "bilinear")
    padded = jnp.pad(larger, ((0, 0), (1, 1), (1, 1)), mode="reflect")
    return lax.reduce_window(padded, -jnp.inf, lax.max, (1, 3, 3), (1, 2, 2), "VALID")


def bits(x: Array) -> Any:
    raw = lax.bitcast_convert_type(x, jnp.uint32)
    mixed = (raw ^ (raw >> 16)) * jnp.uint32(0x7FEB352D)
    return lax.population_count(mixed ^ (mixed >> 15)), lax.clz(raw), (raw.astype(jnp.uint8) + jnp.uint8(200)) // 3


def special(x: Array) -> Any:
    a = jnp.abs(x) + 0.5
    return (
        jax.scipy.special.gammaln(a),
        jax.scipy.special.erf(x),
        jax.scipy.special.logsumexp(x, 1),
        jnp.arctan2(x, a),
        jnp.cbrt(x),
    )


OTHERS = (
    Case("ridge", ridge, (f32(64, 16), f32(64, 4))),
    Case("whitened", whitened, (f32(96, 8),)),
    Case("power_iteration", power_iteration, (f32(48, 48, low=0, high=1),)),
    Case("low_pass", low_pass, (f32(16, 256),)),
    Case("mandelbrot", mandelbrot, (of("complex64", 64, 64),)),
    Case("recurrence", recurrence, (f32(30, 128), f32(128))),
    Case("recurrence_gradient", jax.grad(lambda x, w: recurrence(x, w)[1][0].sum(), (0, 1)), (f32(30, 128), f32(128))),
    Case("newton", newton, (f32(700),)),
    Case("associative", associative, (f32(200, 12),)),
    Case("nested_conditions", nested_conditions, (f32(64, 96),)),
    Case("runge_kutta", runge_kutta, (f32(3, 512),)),
    Case("life", life, (s32(48, 48, high=2),)),
    Case("custom_vjp", jax.grad(lambda x: clipped(x).sum() + clipped(2 * x).mean()), (f32(64, 96),)),
    Case("custom_jvp", lambda x: jax.jvp(lambda v: soft(soft(v)), (x,), (jnp.ones_like(x),)), (f32(64, 96),)),
    Case("remat", jax.grad(layers), ([f32(32, 32, low=-0.5, high=0.5) for _ in range(3)], f32(64, 32))),
    Case("per_example", per_example, (f32(16, 8), f32(32, 16), f32(32, 8))),
    Case("jacobian", jax.jacfwd(lambda x: jnp.cumsum(jnp.sin(x) * x)), (f32(48),)),
    Case("jacobian_reverse", jax.jacrev(lambda x: jnp.stack([jnp.tanh(x).sum(), (x**3).mean()])), (f32(640),)),
    Case("hessian", jax.hessian(lambda x: jnp.log(jnp.cosh(x[:-1] - x[1:])).sum()), (f32(32),)),
    Case("bf16_step", bf16_step, (f32(32, 48, low=-0.3, high=0.3), f32(64, 32), f32(64))),
    Case("lion", lion, ({"w": f32(64, 64), "b": f32(64)}, {"w": f32(64, 64), "b": f32(64)})),
    Case("quantized", quantized, (f32(64, 48), f32(48, 32))),
    Case("attention", attention, (f32(48, 32),)),
    Case("attention_gradient", jax.grad(lambda x: jnp.square(attention(x)).sum()), (f32(48, 32),)),
    Case("group_norm", group_norm, (f32(64, 128),)),
    Case("group_norm_gradient", jax.grad(lambda x: jnp.sin(group_norm(x)).sum()), (f32(64, 128),)),
    Case("cross_entropy_gradient", cross, (f32(64, 100), s32(64, high=100))),
    Case("dropped", dropped, (words(2), f32(64, 96))),
    Case("other_generator", other_generator, (words(2),)),
    Case("drawn_kinds", drawn_kinds, (words(2),)),
    Case("best", best, (f32(32, 64),)),
    Case("segments", segments, (f32(1000), s32(1000, high=16))),
    Case("scattered", scattered, (f32(500), s32(60, high=500))),
    Case("histogram", histogram, (f32(1500),)),
    Case("images", images, (f32(8, 12, 12),)),
    Case("bits", bits, (f32(64, 96),)),
    Case("special", special, (f32(32, 96),)),
    Case("static_argument", partial(lambda n, x: sum(jnp.sin(x * k) / k for k in range(1, n)), 6), (f32(64, 96),)),
    Case("jit_in_jit", lambda x: jax.jit(lambda v: jnp.sin(v) * 2)(jax.jit(jnp.cos)(x) + 1) ** 2, (f32(64, 96),)),
    Case("vmap_of_while", jax.vmap(lambda x: newton(x)[0]), (f32(8, 64),)),
)
