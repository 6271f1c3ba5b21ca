"""JAX programs that a rule of lint speaks of, and their twins that it does not: a positive and a negative one for each
rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

DATA = np.arange(600_000, dtype=np.float32).reshape(600, 1000)
KEY = jax.ShapeDtypeStruct((2,), jnp.uint32)


def f32(*sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def bf16(*sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, jnp.bfloat16)


def s32(*sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, jnp.int32)


def text_of(function: Callable[..., Any], arguments: Sequence[Any], **options: Any) -> str:
    """What JAX hands to XLA, with the Python lines."""
    return str(jax.jit(function, **options).lower(*arguments).as_text("hlo", debug_info=True))


def trained(weight: jax.Array, moment: jax.Array, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    gradient = jax.grad(lambda w: jnp.sum(jnp.tanh(rows @ w) ** 2))(weight)
    moment = 0.9 * moment + gradient
    return weight - 0.01 * moment, moment


def residual(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
    return x + jnp.tanh(x @ up) @ down


def gated_gradient(g: jax.Array, gate: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
    return g * value, g * jnp.tanh(gate)


def weighted_in_f32(scores: jax.Array, values: jax.Array) -> jax.Array:
    weights = jnp.exp(scores.astype(jnp.float32))
    return weights @ values.astype(jnp.float32)


def weighted_in_bf16(scores: jax.Array, values: jax.Array) -> jax.Array:
    weights = jnp.exp(scores.astype(jnp.float32)).astype(jnp.bfloat16)
    return jnp.matmul(weights, values, preferred_element_type=jnp.float32)


def weighted_by_state(scores: jax.Array, values: jax.Array) -> jax.Array:
    return jnp.exp(scores.astype(jnp.float32)) @ values


def joined(a: jax.Array, b: jax.Array, w: jax.Array) -> jax.Array:
    whole = jnp.concatenate([a, b], axis=0)
    return jax.nn.relu(whole @ w)


def by_parts(a: jax.Array, b: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.concatenate([jax.nn.relu(part @ w) for part in (a, b)], axis=0)


def joined_features(a: jax.Array, b: jax.Array, w: jax.Array) -> jax.Array:
    return jax.nn.gelu(jnp.concatenate([a, b], axis=1) @ w)


def added_products(a: jax.Array, b: jax.Array, w: jax.Array) -> jax.Array:
    return jax.nn.gelu(a @ w[:1024] + b @ w[1024:])


def joined_and_sorted(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    whole = jnp.concatenate([jnp.tanh(a), jnp.exp(b)], axis=0)
    return jnp.cumsum(whole, axis=1), jnp.sort(whole, axis=1)


def rotated(q: jax.Array, k: jax.Array, angle: jax.Array) -> jax.Array:
    def rotate(x: jax.Array) -> jax.Array:
        first, second = jnp.split(x, 2, axis=-1)
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        return jnp.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1)

    return jnp.einsum("qd,kd->qk", rotate(q), rotate(k))


def turned(x: jax.Array) -> jax.Array:
    return jnp.swapaxes(x, 0, 1)


def turned_while_computing(x: jax.Array) -> jax.Array:
    return jnp.tanh(jnp.swapaxes(x, 0, 1))


def largest_of_columns(x: jax.Array) -> jax.Array:
    return jnp.max(x, axis=0)


def largest_of_rows(x: jax.Array) -> jax.Array:
    return jnp.max(x, axis=1)


def wide(x: jax.Array) -> jax.Array:
    return jnp.sin(x * jnp.asarray(0.1, jnp.float64)).astype(jnp.float32)


def not_wide(x: jax.Array) -> jax.Array:
    return jnp.sin(x * 0.1)


def powers(x: jax.Array) -> jax.Array:
    return lax.fori_loop(0, 100, lambda _, y: y @ y, x)


def powers_by_fours(x: jax.Array) -> jax.Array:
    return lax.fori_loop(0, 100, lambda _, y: y @ y, x, unroll=4)


def lanes(x: jax.Array) -> jax.Array:
    return lax.fori_loop(0, 100, lambda _, y: jnp.sin(y) + 1, x)


def products_at(x: jax.Array, i: jax.Array, u: jax.Array) -> jax.Array:
    return x.at[i].multiply(u)


def sums_at(x: jax.Array, i: jax.Array, u: jax.Array) -> jax.Array:
    return x.at[i].add(u)


def closes_over(x: jax.Array) -> jax.Array:
    return x + DATA


def is_given(x: jax.Array, data: jax.Array) -> jax.Array:
    return x + data


def written(cache: jax.Array, row: jax.Array, at: jax.Array) -> jax.Array:
    return lax.dynamic_update_slice(cache, row, (at, 0))


def noise_in_loop(key: jax.Array, x: jax.Array) -> jax.Array:
    def step(n: jax.Array, y: jax.Array) -> jax.Array:
        return y @ y + jax.random.uniform(jax.random.fold_in(key, n), y.shape)

    return lax.fori_loop(0, 20, step, x)


def noise_of_split_keys(key: jax.Array, x: jax.Array) -> jax.Array:
    def step(_: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        key, y = carry
        key, draw = jax.random.split(key)
        return key, y @ y + jax.random.uniform(draw, y.shape)

    return lax.fori_loop(0, 20, step, (key, x))[1]


def layers(x: jax.Array) -> jax.Array:
    return lax.fori_loop(0, 10, lambda _, y: jnp.tanh(y @ y), x)


def norms_of_few_rows(x: jax.Array) -> jax.Array:
    return jnp.sum(x * x, axis=1)


def sorted_rows(x: jax.Array) -> jax.Array:
    return jnp.sort(x, axis=1)


def turned_over(state: jax.Array) -> jax.Array:
    return state[::-1] + state


def doubled(state: jax.Array) -> jax.Array:
    return state[::-1].sum() + state


def tiny(x: jax.Array) -> jax.Array:
    return jnp.tanh(x)


def sums_over(dimensions: Sequence[int], *x: jax.Array) -> Any:
    return lax.reduce(x, (0.0, 0.0), lambda a, b: (a[0] + b[0], a[1] + b[1]), dimensions)


def sums_around(x: jax.Array, y: jax.Array) -> Any:
    return sums_over((0, 2), x, y)


def sums_of_last_then_first(x: jax.Array, y: jax.Array) -> Any:
    return sums_over((0,), *sums_over((2,), x, y))


def products_at_unique(x: jax.Array, i: jax.Array, u: jax.Array) -> jax.Array:
    return x.at[i].multiply(u, unique_indices=True)


def narrow_sums_at(x: jax.Array, i: jax.Array, u: jax.Array) -> jax.Array:
    return x.at[i].add(u)


def sums_at_in_f32(x: jax.Array, i: jax.Array, u: jax.Array) -> jax.Array:
    return x.astype(jnp.float32).at[i].add(u.astype(jnp.float32)).astype(x.dtype)


def wide_by_numpy(x: jax.Array) -> jax.Array:
    return x * np.float64(0.1)


def wide_by_array(x: jax.Array) -> jax.Array:
    return x * jnp.linspace(0, 1, x.size)


def of_f32(x: jax.Array) -> jax.Array:
    return x * jnp.linspace(0, 1, x.size, dtype=jnp.float32) * jnp.float32(0.1)


def noise_for_several(key: jax.Array, x: jax.Array) -> jax.Array:
    def step(n: jax.Array, y: jax.Array) -> jax.Array:
        noise = jax.random.uniform(jax.random.fold_in(key, n), y.shape)
        for _ in range(4):
            y = y @ y + noise
        return y

    return lax.fori_loop(0, 5, step, x)


Program = tuple[Callable[..., Any], Sequence[Any], dict[str, Any]]

_WIDE = f32(4096, 4096), f32(4096, 4096), f32(4096, 1024)
_STATE = f32(1024, 1024), f32(1024, 1024)
PROGRAMS: dict[str, tuple[Program, Program]] = {
    "LNT101": ((joined, _WIDE, {}), (by_parts, _WIDE, {})),
    "LNT102": ((turned, (f32(2048, 1024),), {}), (turned_while_computing, (f32(2048, 1024),), {})),
    "LNT103": ((largest_of_columns, (bf16(1_000_000, 5),), {}), (largest_of_rows, (bf16(5, 1_000_000),), {})),
    "LNT104": ((wide, (f32(1_000_000),), {}), (not_wide, (f32(1_000_000),), {})),
    "LNT105": ((powers, (f32(256, 256),), {}), (lanes, (f32(4096),), {})),
    "LNT106": (
        (products_at, (f32(4096), s32(1_000_000), f32(1_000_000)), {}),
        (sums_at, (f32(4096), s32(1_000_000), f32(1_000_000)), {}),
    ),
    "LNT107": ((closes_over, (f32(600, 1000),), {}), (is_given, (f32(600, 1000), f32(600, 1000)), {})),
    "LNT108": (
        (written, (f32(1024, 1024), f32(1, 1024), s32()), {}),
        (written, (f32(1024, 1024), f32(1, 1024), s32()), {"donate_argnums": (0,)}),
    ),
    "LNT109": ((noise_in_loop, (KEY, f32(512, 512)), {}), (powers, (f32(512, 512),), {})),
    "LNT112": (
        (turned_over, (f32(1024, 1024),), {"donate_argnums": (0,)}),
        (doubled, (f32(1024, 1024),), {"donate_argnums": (0,)}),
    ),
    "LNT111": ((tiny, (f32(64),), {}), (tiny, (f32(4096, 4096),), {})),
    "LNT113": (
        (trained, (*_STATE, f32(64, 1024)), {}),
        (trained, (*_STATE, f32(64, 1024)), {"donate_argnums": (0, 1)}),
    ),
    "LNT114": (
        (weighted_in_f32, (bf16(2048, 2048), bf16(2048, 2048)), {}),
        (weighted_in_bf16, (bf16(2048, 2048), bf16(2048, 2048)), {}),
    ),
}
"""For each rule the program that it speaks of, and the twin that it does not: function, arguments, options of
`jax.jit`."""

SILENT: dict[str, tuple[str, Program]] = {
    "rows that lie side by side": ("LNT103", (norms_of_few_rows, (f32(64, 4096),), {})),
    "parts that are sorted one by one": ("LNT101", (joined_and_sorted, (f32(4096, 256), f32(4096, 256)), {})),
    "a concatenate inside a kernel": ("LNT101", (rotated, (f32(33, 16), f32(33, 16), f32(33, 8)), {})),
    "a sort is no reduction": ("LNT103", (sorted_rows, (f32(64, 4096),), {})),
    "a block that adds to its input": ("LNT113", (residual, (f32(4096, 1024), *_STATE), {})),
    "pairs of products": ("LNT113", (gated_gradient, (f32(1024, 1024), *_STATE), {})),
    "a product with an f32 input": ("LNT114", (weighted_by_state, (bf16(2048, 2048), f32(2048, 2048)), {})),
    "a loop of long kernels": ("LNT105", (layers, (f32(4096, 4096),), {})),
}
"""Programs that look like a rule's case, and that nothing can be done about: the rule, and the program."""

_POINTS, _UPDATES = f32(4096), (s32(1_000_000), f32(1_000_000))
_HALVES = bf16(4096), s32(1_000_000), bf16(1_000_000)
_PAIR = f32(1000, 1000, 3), f32(1000, 1000, 3)
_FEATURES = f32(8192, 1024), f32(8192, 1024), f32(2048, 512)
ADVICE: dict[str, tuple[str, Program, Program]] = {
    "the last dimensions first": ("LNT103", (sums_around, _PAIR, {}), (sums_of_last_then_first, _PAIR, {})),
    "the parts": ("LNT101", *PROGRAMS["LNT101"]),
    "products of the parts": ("LNT101", (joined_features, _FEATURES, {}), (added_products, _FEATURES, {})),
    "unroll": ("LNT105", (powers, (f32(256, 256),), {}), (powers_by_fours, (f32(256, 256),), {})),
    "no NumPy scalar": ("LNT104", (wide_by_numpy, (f32(1_000_000),), {}), (of_f32, (f32(1_000_000),), {})),
    "dtype=": ("LNT104", (wide_by_array, (f32(1_000_000),), {}), (of_f32, (f32(1_000_000),), {})),
    "preferred_element_type": ("LNT114", *PROGRAMS["LNT114"]),
    "unique_indices": (
        "LNT106",
        (products_at, (_POINTS, *_UPDATES), {}),
        (products_at_unique, (_POINTS, *_UPDATES), {}),
    ),
    "sums in f32": ("LNT106", (narrow_sums_at, _HALVES, {}), (sums_at_in_f32, _HALVES, {})),
    "numbers of one iteration in several": (
        "LNT109",
        (noise_in_loop, (KEY, f32(512, 512)), {}),
        (noise_for_several, (KEY, f32(512, 512)), {}),
    ),
}
"""What hints tell to write: the rule, a program that it speaks of, and the program as the hint would have it."""
