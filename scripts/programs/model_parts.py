"""Parts of models, of their training and of what runs them, whose kernels hand each other more than they need to, or
fold what they could keep."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from scripts.programs.case import Case, f32, of, s32

Arrays = tuple[jax.Array, ...]


def beam_step(logits: jax.Array, scores: jax.Array, tokens: jax.Array, step: jax.Array) -> Arrays:
    """A step of beam search: the best continuations of all beams, and their tokens."""
    beams, words = logits.shape[1:]
    total = jax.nn.log_softmax(logits, -1) + scores[..., None]
    best, place = lax.top_k(total.reshape(len(total), -1), beams)
    tokens = jnp.take_along_axis(tokens, place[..., None] // words, 1).at[:, :, step].set(place % words)
    return best / ((5 + step) / 6.0) ** 0.6, best, tokens


def sparsemax(x: jax.Array, weights: jax.Array) -> Arrays:
    """The sparse softmax of short rows, and its entropy: a sort, running sums, and a place of each row."""
    ordered = -jnp.sort(-x, -1)
    numbers, sums = jnp.arange(1, x.shape[-1] + 1), jnp.cumsum(ordered, -1)
    count = (1 + numbers * ordered > sums).sum(-1, keepdims=True)
    shares = jnp.maximum(x - (jnp.take_along_axis(sums, count - 1, 1) - 1) / count, 0)
    return shares, (weights * jax.scipy.special.entr(shares).sum(-1)).sum()


def selective_scan(x: jax.Array, step: jax.Array, rates: jax.Array, into: jax.Array, out: jax.Array) -> jax.Array:
    """A state space model whose steps depend on its input, by an associative scan."""
    step = jax.nn.softplus(step)
    decay = jnp.exp(step[..., None] * -jnp.exp(rates))
    update = step[..., None] * into[:, :, None] * x[..., None]

    def joined(left: Arrays, right: Arrays) -> Arrays:
        return left[0] * right[0], right[0] * left[1] + right[1]

    states = lax.associative_scan(joined, (decay, update), axis=1)[1]
    return jnp.einsum("btdn,btn->btd", states, out) + x


def grouped_decode(
    query: jax.Array, key: jax.Array, value: jax.Array, keys: jax.Array, values: jax.Array, at: jax.Array
) -> Arrays:
    """A token's attention to a cache that it is added to, where several heads share keys, with rotated positions."""
    rows, groups, size = jnp.arange(len(at)), keys.shape[2], keys.shape[3]
    angles = at[:, None].astype(jnp.float32) * 10_000.0 ** (-jnp.arange(0, size, 2) / size)
    cosine, sine = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]

    def turned(x: jax.Array) -> jax.Array:
        first, second = jnp.split(x.astype(jnp.float32), 2, -1)
        whole = jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)
        return whole.astype(x.dtype)

    keys = keys.at[rows, at].set(turned(key))
    values = values.at[rows, at].set(value)
    heads = turned(query).reshape(len(at), groups, -1, size)
    scores = jnp.einsum("bkgd,bskd->bkgs", heads, keys).astype(jnp.float32) / size**0.5
    scores = jnp.where(jnp.arange(keys.shape[1]) <= at[:, None, None, None], scores, -1e30)
    shares = jax.nn.softmax(scores, -1).astype(keys.dtype)
    return jnp.einsum("bkgs,bskd->bkgd", shares, values), keys, values


def packed_cache(x: jax.Array) -> Arrays:
    """Keys of a cache as integers of 4 bits, two in a byte, with a scale and a least value for each 32."""
    parts = x.astype(jnp.float32).reshape(*x.shape[:-1], -1, 32)
    least, most = parts.min(-1, keepdims=True), parts.max(-1, keepdims=True)
    scale = (most - least) / 15
    numbers = jnp.round((parts - least) / scale).astype(jnp.uint8)
    return numbers[..., ::2] | (numbers[..., 1::2] << 4), scale[..., 0], least[..., 0]


def policy_gradient(logits: jax.Array, actions: jax.Array, before: jax.Array, advantage: jax.Array) -> Arrays:
    """The gradient of a clipped policy loss with an entropy bonus, and what is logged of it."""

    def loss(logits: jax.Array) -> tuple[jax.Array, Arrays]:
        logs = jax.nn.log_softmax(logits)
        ratio = jnp.exp(jnp.take_along_axis(logs, actions[:, None], 1)[:, 0] - before)
        scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = jnp.minimum(ratio * scaled, jnp.clip(ratio, 0.8, 1.2) * scaled).mean()
        entropy = -(jnp.exp(logs) * logs).sum(-1).mean()
        return -gain - 0.01 * entropy, (entropy, (jnp.abs(ratio - 1) > 0.2).mean())

    (value, logged), gradient = jax.value_and_grad(loss, has_aux=True)(logits)
    return value, gradient, *logged


def segment_statistics(x: jax.Array, segment: jax.Array) -> Arrays:
    """Mean, deviation and extremes of the rows of each segment, and the rows normalised by them."""
    total = 256
    count = jax.ops.segment_sum(jnp.ones(len(x)), segment, total)[:, None]
    mean = jax.ops.segment_sum(x, segment, total) / jnp.maximum(count, 1)
    moved = x - mean[segment]
    variance = jax.ops.segment_sum(moved**2, segment, total) / jnp.maximum(count - 1, 1)
    highest, lowest = jax.ops.segment_max(x, segment, total), jax.ops.segment_min(x, segment, total)
    return mean, jnp.sqrt(variance), highest, lowest, moved * lax.rsqrt(variance + 1e-5)[segment]


STEPS, STATES = f32(2, 512, 256), f32(2, 512, 16)
CACHE, POSITIONS = of("bfloat16", 8, 2048, 4, 64), s32(8, low=100, high=2000)

CASES = (
    Case("part_beam_step", beam_step, (f32(8, 4, 4096), f32(8, 4), s32(8, 4, 32, high=4096), s32(high=32))),
    Case("part_sparsemax", sparsemax, (f32(4096, 8), f32(4096))),
    Case("part_selective_scan", selective_scan, (STEPS, STEPS, f32(256, 16), STATES, STATES)),
    Case(
        "part_grouped_decode",
        grouped_decode,
        (of("bfloat16", 8, 16, 64), of("bfloat16", 8, 4, 64), of("bfloat16", 8, 4, 64), CACHE, CACHE, POSITIONS),
    ),
    Case("part_packed_cache", packed_cache, (of("bfloat16", 4, 8, 1024, 64),)),
    Case("part_policy_gradient", policy_gradient, (f32(4096, 6), s32(4096, high=6), f32(4096), f32(4096))),
    Case("part_segment_statistics", segment_statistics, (f32(8192, 16), s32(8192, high=256))),
)
