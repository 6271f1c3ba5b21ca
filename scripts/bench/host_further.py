"""Further programs for `host_vs_xla_cpu`: odd sizes, tiny arrays, narrow and wide types, indexing, ordering, random
numbers and signals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from scripts.bench.host_programs import Array, bf16, c64, cross_entropy, f16, f64, layer_norm, max_pool
from scripts.programs.case import Arg, Case, f32, of, s32


def s8(*shape: int) -> Arg:
    """An array of s8."""
    return of("int8", *shape, low=-100, high=100)


def u8(*shape: int) -> Arg:
    """An array of u8: an image."""
    return of("uint8", *shape, low=0, high=255)


def drawn(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A function of a key as one of the key's words."""
    return lambda words: function(jax.random.wrap_key_data(words))


KEY = of("uint32", 2, low=0, high=2**31)


def group_norm(x: Array) -> Array:
    """Of 8 groups of channels."""
    batch, height, width, channels = x.shape
    groups = x.reshape(batch, height, width, 8, channels // 8)
    mean, variance = (f(groups, (1, 2, 4), keepdims=True) for f in (jnp.mean, jnp.var))
    return ((groups - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape)


def batch_norm(x: Array, scale: Array, shift: Array) -> Array:
    """While training."""
    mean = x.mean((0, 1, 2))
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean((0, 1, 2)) + 1e-5) * scale + shift


def life(cells: Array) -> Array:
    """10 steps of Conway's game on a torus."""

    def step(_: int, cells: Array) -> Array:
        places = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if (a, b) != (0, 0)]
        around = sum(jnp.roll(cells, place, (0, 1)) for place in places)
        return ((around == 3) | ((cells == 1) & (around == 2))).astype(cells.dtype)

    return lax.fori_loop(0, 10, step, cells)


def distinct(x: Array) -> Array:
    """How many different numbers."""
    ordered = jnp.sort(x)
    return 1 + (ordered[1:] != ordered[:-1]).sum()


def integer_product(a: Array, b: Array) -> Array:
    """Of s8 with sums of s32."""
    return lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32)


def quantize_blocks(x: Array) -> tuple[Array, Array]:
    """To s8, with a scale for each 32 neighbours."""
    blocks = x.reshape(x.shape[0], -1, 32)
    scale = jnp.abs(blocks).max(-1, keepdims=True) / 127
    return jnp.round(blocks / jnp.where(scale == 0, 1, scale)).astype(jnp.int8).reshape(x.shape), scale[..., 0]


def numbers_of_digits(x: Array) -> Array:
    """What eight characters stand for."""
    digits, powers = x.astype(jnp.int32) - 48, 10 ** jnp.arange(7, -1, -1, dtype=jnp.int32)
    return (jnp.where((digits >= 0) & (digits < 10), digits, 0) * powers).sum(-1)


def quantize_rows(x: Array) -> tuple[Array, Array]:
    """To s8, with a scale for each row."""
    scale = jnp.max(jnp.abs(x), -1, keepdims=True) / 127
    return jnp.clip(jnp.round(x / scale), -127, 127).astype(jnp.int8), scale


def transposed_convolution(x: Array, w: Array) -> Array:
    """Every second place, channels last."""
    return lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def gray(image: Array) -> Array:
    """Of three colours."""
    return (image.astype(jnp.float32) @ jnp.array([0.299, 0.587, 0.114], jnp.float32)).astype(jnp.uint8)


def nearest_centre(x: Array, centres: Array) -> Any:
    """A step of k-means."""
    return jnp.argmin(((x[:, None] - centres[None]) ** 2).sum(-1), -1)


def recurrence(x: Array) -> Array:
    """All states of a decaying sum."""
    return lax.scan(lambda state, value: (state * 0.9 + value, state), jnp.zeros(x.shape[1]), x)[1]


def in_order(numbers: str) -> Callable[[Array, Array], Array]:
    """A convolution by every second place whose arrays lie as the letters say."""
    return lambda x, w: lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=(numbers, "OIHW", numbers))


def filtered(x: Array, y: Array) -> Array:
    """A convolution by Fourier transforms."""
    return jnp.fft.irfft(jnp.fft.rfft(x) * jnp.fft.rfft(y))


def scores(q: Array, k: Array) -> Array:
    """Of attention whose heads lie behind the places."""
    return jnp.einsum("bqhd,bkhd->bhqk", q, k)


def pool_gradient(x: Array, y: Array) -> Array:
    """Of the largest of 3 by 3."""
    return jax.vjp(max_pool, x)[1](y)[0]


def pool_of(size: int, first: str) -> Callable[[Array, Array], Array]:
    """The gradient of the largest of a square, without overlap, channels last or first."""
    sides = (1, size, size, 1) if first == "last" else (1, 1, size, size)
    return lambda x, y: jax.vjp(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, sides, sides, "VALID"), x)[1](y)[0]


def mean_gradient(x: Array, y: Array) -> Array:
    """Of means of 2 by 2."""

    def mean(x: Array) -> Array:
        return lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4

    return jax.vjp(mean, x)[1](y)[0]


def sums_in_order(x: Array, counts: Array) -> Array:
    """Sums of rows that follow each other."""
    return jax.ops.segment_sum(x, jnp.sort(counts), 256, indices_are_sorted=True)


def enlarged(method: str) -> Callable[[Array], Array]:
    """Images twice as wide and high."""
    return lambda x: jax.image.resize(x, (x.shape[0], 2 * x.shape[1], 2 * x.shape[2], x.shape[3]), method)


def blur(image: Array) -> Array:
    """With a binomial of 3 by 3."""
    x = image.astype(jnp.float32)
    rows = (x[:-2] + 2 * x[1:-1] + x[2:]) / 4
    return jnp.round((rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:]) / 4).astype(jnp.uint8)


def weight_gradient(x: Array, w: Array, y: Array) -> tuple[Array, Array]:
    """Gradients of a convolution by both of its operands, channels last."""

    def convolved(x: Array, w: Array) -> Array:
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    return jax.vjp(convolved, x, w)[1](y)


def first_weights(channels: str) -> Callable[[Array, Array], Array]:
    """The gradient of weights by images and what comes back, 3 by 3, channels where the letters say."""

    def gradient(x: Array, y: Array) -> Array:
        at = channels.index("C")
        shape = [y.shape[at], x.shape[at], 3, 3]
        order = (channels, "OIHW", channels)
        convolved = lambda w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=order)  # noqa: E731
        return jax.vjp(convolved, jnp.zeros(shape))[1](y)[0]

    return gradient


def focal_loss(x: Array, labels: Array) -> tuple[Array, Array]:
    """With its gradient."""

    def loss(x: Array) -> Array:
        known = (jax.nn.log_softmax(x) * jax.nn.one_hot(labels, x.shape[1])).sum(1)
        return -((1 - jnp.exp(known)) ** 2 * known).mean()

    return jax.value_and_grad(loss)(x)


def masked_mean(x: Array, m: Array) -> Array:
    """Of the rows that a mask weighs."""
    return (x * m[..., None]).sum(1) / jnp.maximum(m.sum(1), 1)[:, None]


def outer_products(x: Array, y: Array) -> Array:
    """Their mean."""
    return (x[:, :, None] * y[:, None, :]).mean(0)


def augmented(x: Array, flipped: Array, gain: Array, bias: Array) -> Array:
    """Images cut, some turned around, brighter and darker."""
    x = jnp.where(flipped[:, None, None, None], x[:, :, ::-1], x)[:, 8:-8, 8:-8]
    y = x.astype(jnp.float32) * gain[:, None, None, None] + bias[:, None, None, None]
    return jnp.clip(y, 0, 255).astype(jnp.uint8)


def segment_softmax(x: Array, segments: Array) -> Array:
    """Of numbers that belong to a thousand segments."""
    most = jax.ops.segment_max(x, segments, 1000)
    e = jnp.exp(x - most[segments])
    return e / jax.ops.segment_sum(e, segments, 1000)[segments]


def decayed_sums(x: Array) -> Array:
    """All sums of a recurrence, by a scan in parallel."""

    def combine(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        return a[0] * b[0], a[1] * b[0] + b[1]

    return lax.associative_scan(combine, (jnp.full_like(x, 0.9), 0.1 * x), axis=0)[1]


def overlaps(a: Array, b: Array) -> Array:
    """Of all pairs of boxes, as parts of what both cover."""
    low, high = jnp.maximum(a[:, None, :2], b[None, :, :2]), jnp.minimum(a[:, None, 2:], b[None, :, 2:])
    both = jnp.maximum(high - low, 0).prod(-1)
    areas = ((x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1]) for x in (a, b))
    return both / (next(areas)[:, None] + next(areas)[None] - both + 1e-6)


def dates(days: Array) -> tuple[Array, Array, Array]:
    """Year, month and day of days since 1970 (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms")."""
    era = (days + 719468) // 146097
    day = days + 719468 - era * 146097
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    return (
        year + era * 400 + (month >= 10),
        jnp.where(month < 10, month + 3, month - 9),
        day - (153 * month + 2) // 5 + 1,
    )


def distances(a: Array, b: Array) -> Array:
    """Of places on a sphere."""
    half = jnp.sin((b - a) / 2) ** 2
    return 2 * jnp.arcsin(jnp.sqrt(jnp.clip(half[:, 0] + jnp.cos(a[:, 0]) * jnp.cos(b[:, 0]) * half[:, 1], 0, 1)))


def bits_packed(x: Array) -> Array:
    """Eight to a byte."""
    return (x.reshape(-1, 8).astype(jnp.uint8) << jnp.arange(8, dtype=jnp.uint8)).sum(-1, dtype=jnp.uint8)


def bilateral_filter(x: Array) -> Any:
    """Means of 5 x 5 neighbours that count less where they differ."""
    wide = jnp.pad(x, 2, mode="edge")
    total = weights = jnp.zeros_like(x)
    for i in range(5):
        for j in range(5):
            there = wide[i : i + x.shape[0], j : j + x.shape[1]]
            weight = jnp.exp(-((i - 2) ** 2 + (j - 2) ** 2) / 4 - (there - x) ** 2)
            total, weights = total + weight * there, weights + weight
    return total / weights


def similarity(x: Array, y: Array) -> Any:
    """Of the structure of two images, in windows of 7 x 7."""

    def mean(a: Array) -> Any:
        down = sum(a[k : a.shape[0] - 6 + k] for k in range(7)) / 7
        return sum(down[:, k : a.shape[1] - 6 + k] for k in range(7)) / 7

    a, b = mean(x), mean(y)
    own, other, both = mean(x * x) - a * a, mean(y * y) - b * b, mean(x * y) - a * b
    return ((2 * a * b + 1e-4) * (2 * both + 9e-4) / ((a * a + b * b + 1e-4) * (own + other + 9e-4))).mean()


def residual_block(x: Array, first: Array, second: Array, scale: Array, shift: Array) -> Any:
    """Channels first."""
    order = ("NCHW", "OIHW", "NCHW")
    y = lax.conv_general_dilated(x, first, (1, 1), "SAME", dimension_numbers=order)
    y = jax.nn.relu(y * scale[:, None, None] + shift[:, None, None])
    return jax.nn.relu(lax.conv_general_dilated(y, second, (1, 1), "SAME", dimension_numbers=order) + x)


def blurred(x: Array) -> Any:
    """Sums of 3 x 3 neighbours of a function."""
    y = jnp.tanh(x)
    return sum(y[i : i + 480, j : j + 640] for i in range(3) for j in range(3))


def box_blur(image: Array) -> Array:
    """Means of 5 x 5 neighbours, rounded."""
    sums = lax.reduce_window(image.astype(jnp.int32), 0, lax.add, (5, 5), (1, 1), "SAME")
    return ((sums + 12) // 25).astype(jnp.uint8)


def asian_option(noise: Array) -> tuple[Array, Array]:
    """What paths of prices are worth by their mean, and their highest price."""
    paths = 100 * jnp.exp(jnp.cumsum(0.01 * noise - 0.00005, axis=1))
    return jnp.maximum(paths.mean(1) - 100, 0).mean(), paths.max(1)


def voxels(places: Array) -> Array:
    """How many points lie in each cell of a grid."""
    cell = jnp.clip(jnp.floor(places * 8 + 32), 0, 63).astype(jnp.int32)
    return jnp.zeros((64, 64, 64), jnp.int32).at[cell[:, 0], cell[:, 1], cell[:, 2]].add(1)


def colours_of_table(x: Array, table: Array) -> Array:
    """An image by a table of colours."""
    return table[jnp.clip(x * 255, 0, 255).astype(jnp.int32)]


def drawdown(x: Array) -> Array:
    """How far sums fall below their highest value so far."""
    sums = jnp.cumsum(x, 0)
    return (lax.cummax(sums, 0) - sums).max(0)


FURTHER = [
    Case("add_tiny", lambda x, y: x + y, (f32(3, 5), f32(5))),
    Case("softmax_tiny", lambda x: jax.nn.softmax(x, -1), (f32(4, 10),)),
    Case("layer_norm_tiny", layer_norm, (f32(3, 48), f32(48), f32(48))),
    Case("matrix_product_tiny", lambda a, b: a @ b, (f32(10, 10), f32(10, 10))),
    Case("cumsum_tiny", jnp.cumsum, (f32(100),)),
    Case("logsumexp_columns_odd", lambda x: jax.nn.logsumexp(x, 0), (f32(1000, 777),)),
    Case("logsumexp_rows_odd", lambda x: jax.nn.logsumexp(x, -1), (f32(3000, 333),)),
    Case(
        "masked_softmax_odd",
        lambda x, m: jax.nn.softmax(jnp.where(m, x, -1e30), -1),
        (f32(256, 777), of("bool", 256, 777)),
    ),
    Case("group_norm", group_norm, (f32(4, 32, 32, 64),)),
    Case("batch_norm", batch_norm, (f32(8, 28, 28, 96), f32(96), f32(96))),
    Case("matrix_product_bf16", lambda a, b: a @ b, (bf16(256, 256), bf16(256, 256))),
    Case("matrix_product_f64", lambda a, b: a @ b, (f64(200, 200), f64(200, 200)), x64=True),
    Case("matrix_product_s8", integer_product, (s8(128, 256), s8(256, 128))),
    Case("perceptron_bf16", lambda x, w, v: jax.nn.gelu(x @ w) @ v, (bf16(64, 128), bf16(128, 512), bf16(512, 128))),
    Case("small_products", lambda a, b: a @ b, (f32(5000, 4, 4), f32(5000, 4, 4))),
    Case("matrix_vector", lambda a, x: a @ x, (f32(2000, 1500), f32(1500))),
    Case("convolution_transposed", transposed_convolution, (f32(2, 28, 28, 32), f32(4, 4, 32, 16))),
    Case("take_rows_odd", lambda table, i: table[i], (f32(1000, 33), s32(777, high=1000))),
    Case("scatter_max", lambda x, i, v: x.at[i].max(v), (f32(4096), s32(100_000, high=4096), f32(100_000))),
    Case("sort_rows_odd", lambda x: jnp.sort(x, -1), (f32(512, 333),)),
    Case("sort_equal", jnp.sort, (s32(1 << 18, high=3),)),
    Case("distinct", distinct, (s32(30_000, high=5000),)),
    Case("flip_s8", lambda x: x[:, ::-1], (s8(2000, 1001),)),
    Case("roll_odd", lambda x: jnp.roll(x, (3, 5), (0, 1)), (f32(1111, 1111),)),
    Case("cummax", lambda x: lax.cummax(x, 1), (f32(300, 1000),)),
    Case("quantize_rows", quantize_rows, (f32(1000, 768),)),
    Case("gray_u8", gray, (u8(480, 640, 3),)),
    Case("popcount", lambda x: lax.population_count(x ^ (x >> 1)).sum(), (of("uint32", 100_000, low=0, high=2**31),)),
    Case("life", life, (s32(200, 200),)),
    Case("nearest_centre", nearest_centre, (f32(2000, 8), f32(32, 8))),
    Case("recurrence", recurrence, (f32(500, 64),)),
    Case("softmax_f16_odd", lambda x: jax.nn.softmax(x, -1), (f16(500, 333),)),
    Case("complex_exponential", lambda x: jnp.exp(x) * x, (c64(10_000),)),
    Case("uniform", drawn(lambda key: jax.random.uniform(key, (100_000,))), (KEY,)),
    Case("permutation", drawn(lambda key: jax.random.permutation(key, 10_000)), (KEY,)),
    Case("fft_rows", jnp.fft.fft, (c64(64, 1024),)),
    Case("fft2", jnp.fft.fft2, (c64(256, 256),)),
    Case("rfft_rows_odd", jnp.fft.rfft, (f32(64, 1000),)),
    Case("filtered", filtered, (f32(16, 4096), f32(16, 4096))),
    Case("matrix_product_complex", lambda x, y: x @ y, (c64(128, 128), c64(128, 128))),
    Case("scores_heads_inside", scores, (f32(4, 64, 8, 32), f32(4, 64, 8, 32))),
    Case("resize_bilinear", enlarged("bilinear"), (f32(8, 64, 64, 3),)),
    Case("resize_nearest", enlarged("nearest"), (f32(8, 64, 64, 3),)),
    Case("repeat", lambda x: jnp.repeat(x, 4, axis=1), (f32(512, 256),)),
    Case("norm_outer_axes", lambda x: jnp.sqrt((x * x).sum((0, 2))), (f32(64, 128, 96),)),
    Case("bernoulli", drawn(lambda key: jax.random.bernoulli(key, 0.3, (200, 1000))), (KEY,)),
    Case("convolution_channels_first", in_order("NCHW"), (f32(4, 3, 128, 128), f32(32, 3, 7, 7))),
    Case("pool_gradient", pool_gradient, (f32(4, 56, 56, 16), f32(4, 28, 28, 16))),
    Case("argsort_rows", lambda x: jnp.argsort(x, -1), (f32(512, 256),)),
    Case("repeat_three", lambda x: jnp.repeat(x, 3, axis=1), (f32(512, 333),)),
    Case("repeat_bytes", lambda x: jnp.repeat(x, 2, axis=1), (u8(1024, 1024),)),
    Case("interleaved", lambda x, y: jnp.stack([x, y], -1).reshape(-1), (f32(1 << 18), f32(1 << 18))),
    Case("zeros_all_around", lambda x: lax.pad(x, 0.0, ((0, 0, 1), (0, 0, 2))), (f32(300, 501),)),
    Case("pairs_swapped", lambda x: x.reshape(-1, 2)[:, ::-1].reshape(x.shape), (f32(512, 1024),)),
    Case("segment_sum_in_order", sums_in_order, (f32(1 << 13, 64), s32(1 << 13, high=256))),
    Case("segment_sum_wide", lambda x, i: jax.ops.segment_sum(x, i, 512), (f32(4096, 300), s32(4096, high=512))),
    Case("segment_max", lambda x, i: jax.ops.segment_max(x, i, 64), (f32(1 << 14, 32), s32(1 << 14, high=64))),
    Case("scatter_integers", lambda x, i: x.at[i].add(1), (s32(1 << 10, 16), s32(1 << 14, high=1 << 10))),
    Case("embedding_gradient", lambda g, i: jnp.zeros((2000, 64)).at[i].add(g), (f32(2048, 64), s32(2048, high=2000))),
    Case("pool_gradient_apart", pool_of(2, "last"), (f32(4, 56, 56, 16), f32(4, 28, 28, 16))),
    Case("pool_gradient_first", pool_of(2, "first"), (f32(4, 16, 56, 56), f32(4, 16, 28, 28))),
    Case("pool_gradient_odd", pool_of(3, "last"), (f32(2, 57, 57, 20), f32(2, 19, 19, 20))),
    Case("mean_gradient", mean_gradient, (f32(4, 56, 56, 16), f32(4, 28, 28, 16))),
    Case("softmax_middle", lambda x: jax.nn.softmax(x, 1), (f32(8, 32, 40, 40),)),
    Case("small_matrix_vectors", lambda a, x: jnp.einsum("nij,nj->ni", a, x), (f32(2000, 16, 16), f32(2000, 16))),
    Case("bilinear", lambda x, a, y: jnp.einsum("nd,de,ne->n", x, a, y), (f32(500, 64), f32(64, 64), f32(500, 64))),
    Case("edges_reflected", lambda x: jnp.pad(x, ((0, 0), (3, 3), (3, 3)), mode="reflect"), (f32(16, 224, 224),)),
    Case("perceptron_f16", lambda x, w: jnp.tanh(x @ w), (f16(64, 256), f16(256, 256))),
    Case("blur_u8", blur, (u8(720, 1280),)),
    Case("weight_gradient", weight_gradient, (f32(2, 28, 28, 16), f32(3, 3, 16, 32), f32(2, 28, 28, 32))),
    Case("focal_loss", focal_loss, (f32(2000, 20), s32(2000, high=20))),
    Case("masked_mean", masked_mean, (f32(64, 100, 48), f32(64, 100, low=0, high=1))),
    Case("outer_products", outer_products, (f32(200, 48), f32(200, 64))),
    Case("augmented_u8", augmented, (u8(16, 96, 96, 3), of("bool", 16), f32(16), f32(16))),
    Case("turned_u8", lambda x: x[:, :, ::-1], (u8(16, 96, 96, 3),)),
    Case("quarter_turn_u8", lambda x: jnp.rot90(x, 1, (1, 2)), (u8(4, 128, 128, 3),)),
    Case("decayed_sums", decayed_sums, (f32(1024, 64),)),
    Case("overlaps", overlaps, (f32(400, 4), f32(300, 4))),
    Case("dates", dates, (s32(200_000, low=-100_000, high=100_000),)),
    Case("distances_f64", distances, (f64(20_000, 2), f64(20_000, 2)), x64=True),
    Case("bits_packed", bits_packed, (of("bool", 1 << 19),)),
    Case("segment_softmax", segment_softmax, (f32(30_000), s32(30_000, high=1000))),
    Case("quantize_blocks", quantize_blocks, (f32(512, 1024),)),
    Case("numbers_of_digits", numbers_of_digits, (of("uint8", 16_384, 8, low=48, high=58),)),
    Case("largest_of_eight", lambda x: x.reshape(512, 128, 8).max(-1), (f32(512, 1024),)),
    Case("distances_of_pairs", lambda x, y: ((x - y) ** 2).sum(-1), (f32(65_536, 4), f32(65_536, 4))),
    Case("large_sum", jnp.sum, (f32(1 << 24),)),
    Case("large_sort", jnp.sort, (s32(1 << 20, high=1 << 30),)),
    Case("large_product", lambda a, b: a @ b, (f32(1024, 1024), f32(1024, 1024))),
    Case("bilateral_filter", bilateral_filter, (f32(128, 160),)),
    Case("similarity", similarity, (f32(256, 256), f32(256, 256))),
    Case(
        "residual_block",
        residual_block,
        (f32(2, 32, 32, 32), f32(32, 32, 3, 3), f32(32, 32, 3, 3), f32(32), f32(32)),
    ),
    Case("blurred", blurred, (f32(482, 642),)),
    Case("box_blur_u8", box_blur, (u8(1080, 1920),)),
    Case("asian_option", asian_option, (f32(10_000, 252),)),
    Case("drawdown", drawdown, (f32(1000, 100),)),
    Case("voxels", voxels, (f32(100_000, 3),)),
    Case("weights_channels_first", first_weights("NCHW"), (f32(2, 32, 28, 28), f32(2, 32, 28, 28))),
    Case("weights_of_colours", first_weights("NCHW"), (f32(8, 3, 32, 32), f32(8, 16, 32, 32))),
    Case("weights_one_channel", first_weights("NHWC"), (f32(32, 28, 28, 1), f32(32, 28, 28, 32))),
    Case("argmax_of_ten", lambda x: jnp.argmax(x, -1), (f32(10_000, 10),)),
    Case("norms_of_twelve", lambda x: jnp.sqrt((x * x).sum(-1)), (f32(30_000, 12),)),
    Case("log_softmax_of_ten", jax.nn.log_softmax, (f32(10_000, 10),)),
    Case("softmax_middle_narrow", lambda x: jax.nn.softmax(x, 1), (f32(40, 50, 60),)),
    Case("sum_outer_axes", lambda x: x.sum((0, 2)), (f32(60, 80, 100),)),
    Case("powers_of_eight", lambda x: jnp.vander(x, 8), (f32(5000),)),
    Case("one_hot_product", lambda i, x: jax.nn.one_hot(i, 1000) @ x, (s32(512, high=1000), f32(1000, 64))),
    Case("product_s8_large", integer_product, (s8(512, 512), s8(512, 512))),
    Case("colours_of_table", colours_of_table, (f32(480, 640, low=0, high=1), u8(256, 3))),
    Case("argmax_u8_16", lambda x: jnp.argmax(x, -1), (u8(65536, 16),)),
    Case("max_bf16_20", lambda x: x.max(-1), (bf16(52428, 20),)),
    Case("softmax_bf16_3", lambda x: jax.nn.softmax(x, -1), (bf16(174762, 3),)),
    Case("softmax_f16_10", lambda x: jax.nn.softmax(x, -1), (f16(50000, 10),)),
    Case("cross_entropy_10", cross_entropy, (f32(8192, 10), s32(8192, low=0, high=10))),
]
"""Sorted by kind: tiny, rows and columns, products, movement, ordering, types, loops, random numbers, transforms and
what NumPy or gathers were slow at, runs, sums by index, gradients of pools, further shapes, large, images, paths,
gradients of weights, short rows and tables."""
