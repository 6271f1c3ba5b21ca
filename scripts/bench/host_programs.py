"""Programs that people would compare on a CPU: each a JAX function with arrays, in sizes from microseconds to hundreds
of milliseconds (`host_vs_xla_cpu`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from scripts.programs.case import Arg, Case, f32, of, s32

Array = Any


def bf16(*shape: int) -> Arg:
    """An array of bf16."""
    return of("bfloat16", *shape)


def layer_norm(x: Array, scale: Array, shift: Array) -> Array:
    """In f32, as JAX libraries write it."""
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = ((wide - mean) ** 2).mean(-1, keepdims=True)
    return ((wide - mean) * lax.rsqrt(variance + 1e-5) * scale + shift).astype(x.dtype)


def gradient_of(function: Callable[..., Array]) -> Callable[..., Any]:
    """The gradients of all arguments but the last, which is the cotangent."""

    def gradient(*args: Array) -> Any:
        return jax.vjp(function, *args[:-1])[1](args[-1])

    return gradient


def softmax(x: Array) -> Array:
    """Along rows, in f32."""
    return jax.nn.softmax(x.astype(jnp.float32), axis=-1).astype(x.dtype)


def gelu_chain(x: Array, y: Array) -> Array:
    """Elementwise operations one after the other."""
    return jax.nn.gelu(x * y + 0.5) * jnp.tanh(y) + x


def adam(p: Array, g: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
    """One step of Adam."""
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - 1e-3 * (m / 0.9) / (jnp.sqrt(v / 0.999) + 1e-8), m, v


def heat(u: Array) -> Array:
    """Steps of the heat equation in two dimensions."""

    def step(_: int, u: Array) -> Array:
        inner = u[1:-1, 1:-1]
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        return u.at[1:-1, 1:-1].set(inner + 0.1 * (around - 4 * inner))

    return lax.fori_loop(0, 20, step, u)


def mandelbrot(x: Array, y: Array) -> Array:
    """How many of 50 steps stay near."""

    def step(_: int, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        a, b, n = state
        near = a * a + b * b < 4
        return jnp.where(near, a * a - b * b + x, a), jnp.where(near, 2 * a * b + y, b), n + near

    return lax.fori_loop(0, 50, step, (x, y, jnp.zeros_like(x)))[2]


def black_scholes(price: Array, strike: Array, time: Array) -> tuple[Array, Array]:
    """Prices of calls and puts."""
    root = 0.2 * jnp.sqrt(time)
    one = (jnp.log(price / strike) + (0.02 + 0.02) * time) / root
    two = one - root

    def below(x: Array) -> Array:
        return 0.5 * (1 + lax.erf(x / np.float32(np.sqrt(2))))

    worth = strike * jnp.exp(-0.02 * time)
    return price * below(one) - worth * below(two), worth * below(-two) - price * below(-one)


def n_body(x: Array, mass: Array) -> Array:
    """Accelerations of bodies that attract each other."""
    apart = x[None] - x[:, None]
    near = (apart**2).sum(-1) + 1e-3
    return (apart * (mass[None] * near**-1.5)[..., None]).sum(1)


def pendulum(angle: Array, speed: Array) -> tuple[Array, Array]:
    """200 steps."""

    def step(_: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        angle, speed = state
        speed = speed - 0.01 * jnp.sin(angle)
        return angle + 0.01 * speed, speed

    return lax.fori_loop(0, 200, step, (angle, speed))


def lotka_volterra(prey: Array, hunters: Array) -> tuple[Array, Array]:
    """500 steps."""

    def step(_: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        a, b = state
        return a + 0.001 * (1.1 * a - 0.4 * a * b), b + 0.001 * (0.1 * a * b - 0.4 * b)

    return lax.fori_loop(0, 500, step, (prey, hunters))


def attention(q: Array, k: Array, v: Array) -> Array:
    """Heads of softmax attention with a causal mask."""
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / np.float32(np.sqrt(q.shape[-1]))
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1), v)


def gru(x: Array, h: Array, w: Array, u: Array) -> Array:
    """A cell over a sequence."""

    def step(h: Array, x: Array) -> tuple[Array, None]:
        a, b = jnp.split(x @ w, 3, -1), jnp.split(h @ u, 3, -1)
        keep, reset = jax.nn.sigmoid(a[0] + b[0]), jax.nn.sigmoid(a[1] + b[1])
        return keep * h + (1 - keep) * jnp.tanh(a[2] + reset * b[2]), None

    return lax.scan(step, h, x)[0]


def cross_entropy(logits: Array, labels: Array) -> Any:
    """The loss and its gradient."""

    def loss(logits: Array) -> Array:
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=-1)
        return -chosen.mean()

    return jax.value_and_grad(loss)(logits)


def normal(key: Array) -> Array:
    """Random numbers by JAX's generator."""
    return jax.random.normal(jax.random.wrap_key_data(key), (1 << 18,))


def convolution(x: Array, w: Array) -> Array:
    """3 by 3, channels last."""
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def max_pool(x: Array) -> Array:
    """3 by 3, every second."""
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def max_pool_first(x: Array) -> Array:
    """3 by 3, every second, channels first."""
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), "SAME")


def rms_norm(x: Array, scale: Array) -> Array:
    """As in Llama."""
    wide = x.astype(jnp.float32)
    return (wide * lax.rsqrt((wide**2).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype) * scale


def rope(x: Array, angle: Array) -> Array:
    """Rotary embedding of halves."""
    one, two = jnp.split(x, 2, axis=-1)
    return jnp.concatenate(
        [one * jnp.cos(angle) - two * jnp.sin(angle), two * jnp.cos(angle) + one * jnp.sin(angle)], -1
    )


def quantize(x: Array) -> Array:
    """To 8 bits."""
    return jnp.clip(jnp.round(x * 10), -128, 127).astype(jnp.int8)


def f16(*shape: int) -> Arg:
    """An array of f16."""
    return of("float16", *shape)


def f64(*shape: int) -> Arg:
    """An array of f64."""
    return of("float64", *shape)


def c64(*shape: int) -> Arg:
    """An array of complex numbers."""
    return of("complex64", *shape)


PROGRAMS = [
    Case("softmax_f32", softmax, (f32(2048, 1024),)),
    Case("softmax_bf16", softmax, (bf16(2048, 1024),)),
    Case("softmax_small", softmax, (f32(64, 128),)),
    Case("softmax_gradient", gradient_of(softmax), (f32(1024, 1024), f32(1024, 1024))),
    Case("layer_norm_f32", layer_norm, (f32(4096, 1024), f32(1024), f32(1024))),
    Case("layer_norm_bf16", layer_norm, (bf16(4096, 1024), f32(1024), f32(1024))),
    Case("layer_norm_small", layer_norm, (f32(64, 256), f32(256), f32(256))),
    Case("layer_norm_gradient", gradient_of(layer_norm), (f32(1024, 1024), f32(1024), f32(1024), f32(1024, 1024))),
    Case("gelu_chain", gelu_chain, (f32(1 << 20), f32(1 << 20))),
    Case("gelu_chain_small", gelu_chain, (f32(1 << 12), f32(1 << 12))),
    Case("gelu_chain_bf16", gelu_chain, (bf16(1 << 20), bf16(1 << 20))),
    Case("adam", adam, (f32(1 << 20), f32(1 << 20), f32(1 << 20), f32(1 << 20, low=0, high=1))),
    Case("heat", heat, (f32(512, 512),)),
    Case("mandelbrot", mandelbrot, (f32(256, 256), f32(256, 256))),
    Case("black_scholes", black_scholes, tuple(f32(1 << 20, low=1, high=2) for _ in range(3))),
    Case("n_body", n_body, (f32(1024, 3), f32(1024, low=0, high=1))),
    Case("pendulum", pendulum, (f32(4096), f32(4096))),
    Case("lotka_volterra", lotka_volterra, (f32(1024, low=1, high=2), f32(1024, low=1, high=2))),
    Case("attention", attention, tuple(f32(8, 256, 64) for _ in range(3))),
    Case("attention_small", attention, tuple(f32(2, 32, 16) for _ in range(3))),
    Case("gru", gru, (f32(32, 16, 64), f32(16, 64), f32(64, 192), f32(64, 192))),
    Case("cumsum_rows", lambda x: jnp.cumsum(x, axis=1), (f32(256, 4096),)),
    Case("cumsum_long", jnp.cumsum, (f32(262_144),)),
    Case("histogram", lambda x: jnp.zeros(256, jnp.int32).at[x].add(1), (s32(1 << 18, high=256),)),
    Case("embedding", lambda table, x: table[x], (f32(32_000, 256), s32(4096, high=32_000))),
    Case("transpose_add", lambda x, y: x.T + y, (f32(2048, 2048), f32(2048, 2048))),
    Case("bias_gradient_bf16", lambda x: x.sum(0), (bf16(8192, 1024),)),
    Case("row_sum", lambda x: x.sum(1), (f32(8192, 1024),)),
    Case("argmax", lambda x: jnp.argmax(x, -1), (f32(2048, 4096),)),
    Case("convolution", convolution, (f32(4, 56, 56, 32), f32(3, 3, 32, 32))),
    Case("max_pool", max_pool, (f32(8, 112, 112, 32),)),
    Case("sort", lambda x: jnp.sort(x), (f32(1 << 17),)),
    Case("normal", normal, (of("uint32", 2, low=0, high=2**31),)),
    Case("cross_entropy", cross_entropy, (f32(512, 8192), s32(512, high=8192))),
    Case("rms_norm_bf16", rms_norm, (bf16(2048, 2048), bf16(2048))),
    Case("rope", rope, (f32(16, 512, 128), f32(512, 64))),
    Case("matrix_product", lambda x, w, b: jax.nn.relu(x @ w + b), (f32(256, 512), f32(512, 512), f32(512))),
    Case("matrix_product_small", lambda x, w, b: jax.nn.relu(x @ w + b), (f32(16, 64), f32(64, 64), f32(64))),
    Case("axpy_f16", lambda x, y: 2 * x + y, (f16(1 << 20), f16(1 << 20))),
    Case("gelu_f16", jax.nn.gelu, (f16(1 << 20),)),
    Case("layer_norm_f16", layer_norm, (f16(2048, 1024), f32(1024), f32(1024))),
    Case("softmax_f64", lambda x: jax.nn.softmax(x, -1), (f64(1024, 1024),), x64=True),
    Case("exp_f64_small", jnp.exp, (f64(1 << 12),), x64=True),
    Case("softmax_columns", lambda x: jax.nn.softmax(x, 0), (f32(1024, 1024),)),
    Case("softmax_long", softmax, (f32(64, 50_000),)),
    Case("row_max", lambda x: x.max(1), (f32(4096, 2048),)),
    Case("row_max_bf16_small", lambda x: x.max(1), (bf16(64, 256),)),
    Case("column_max", lambda x: x.max(0), (f32(4096, 1024),)),
    Case("column_sum_s8", lambda x: x.sum(0, dtype=jnp.int8), (of("int8", 4096, 2048, low=-100, high=100),)),
    Case("channel_means", lambda x: x.mean((0, 2, 3)), (f32(16, 64, 32, 32),)),
    Case("quantize", quantize, (f32(1 << 20),)),
    Case("remainder", lambda x, y: jnp.remainder(x, y + 2), (f32(1 << 18), f32(1 << 18))),
    Case("complex_quotient", lambda x, y: x / y, (c64(1 << 18), c64(1 << 18))),
    Case("complex_product_small", lambda x, y: x * y + x, (c64(1 << 12), c64(1 << 12))),
    Case("integer_quotient", lambda x, y: x // (y * y + 1), (s32(1 << 18, high=1000), s32(1 << 18, high=50))),
    Case("associative_scan", lambda x: lax.associative_scan(jnp.add, x, axis=1), (f32(64, 1024),)),
    Case("top_k", lambda x: lax.top_k(x, 8), (f32(256, 1024),)),
    Case("segment_sum", lambda x, i: jax.ops.segment_sum(x, i, 64), (f32(1 << 15, 32), s32(1 << 15, high=64))),
    Case("zeros_between", lambda x: lax.pad(x, 0.0, ((0, 0, 0), (0, 0, 1))), (f32(1024, 1024),)),
    Case("channels_last", lambda x: x.transpose(0, 2, 3, 1), (f32(8, 64, 32, 32),)),
    Case("channels_last_small", lambda x: x.transpose(0, 2, 3, 1), (f32(1, 16, 16, 16),)),
    Case("max_pool_channels_first", max_pool_first, (f32(4, 32, 112, 112),)),
]
