"""Cases of dot, ragged-dot, scaled-dot, convolution, the factorizations, fft, batch normalisation and random bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hlo_opt.ir import ELEMENT_TYPES
from xla_cases.case import Case, makes, operation
from xla_cases.values import Array, cast, plain

PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
BATCH = "lhs_batch_dims={0}, rhs_batch_dims={2}, lhs_contracting_dims={2}, rhs_contracting_dims={0}"
PREFERRED = {
    "s8": ("s32",), "u8": ("u32", "s32"), "s16": ("s32",), "u16": ("u32",), "bf16": ("f32",), "f16": ("f32",),
    "f32": ("f64",), "f8e5m2": ("f32", "bf16", "f16"), "f8e4m3fn": ("f32", "bf16", "f16"), "f8e4m3": ("f32",),
    "f8e3m4": ("f32",),
    "f8e4m3fnuz": ("f32",), "f8e5m2fnuz": ("f32",), "f8e4m3b11fnuz": ("f32",), "c64": ("c128",), "s32": ("s64",),
}  # fmt: skip


@makes("dot")
def dot(opcode: str, name: str) -> Iterator[Case]:
    a, b = plain(name, 4, 6), plain(name, 6, 5, seed=6)
    for result in (name, *PREFERRED.get(name, ())):
        yield operation(opcode, name, [a, b], f"{result}[4,5]", PLAIN, label=f"to {result}")
    a, b = plain(name, 2, 4, 6), plain(name, 6, 5, 2, seed=6)
    yield operation(opcode, name, [a, b], f"{name}[2,4,5]", BATCH, label="batch")
    if (ELEMENT_TYPES[name].is_float and ELEMENT_TYPES[name].bits >= 16) or ELEMENT_TYPES[name].is_complex:
        x = cast([[np.inf, 1, 0, 0], [np.nan, 0, 0, 0], [0, -0.0, 2, 3], [-np.inf, 0, 0, 1]], name)
        yield operation(opcode, name, [x, x], f"{name}[4,4]", PLAIN, label="special values")


@makes("scaled-dot")
def scaled_dot(opcode: str, name: str) -> Iterator[Case]:
    a, b = plain(name, 4, 64), plain(name, 64, 5, seed=6)
    for scale in ("bf16", "f8e8m0fnu"):
        left, right = cast(np.full((4, 2), 0.5), scale), cast(np.full((2, 5), 2.0), scale)
        yield operation(opcode, name, [a, b, left, right], "f32[4,5]", PLAIN, label=f"scales of {scale}")


@makes("ragged-dot")
def ragged_dot(opcode: str, name: str) -> Iterator[Case]:
    a, b, sizes = plain(name, 7, 4), plain(name, 3, 4, 5, seed=6), np.array([2, 0, 5], np.int32)
    attributes = "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}"
    yield operation(opcode, name, [a, b, sizes], f"{name}[7,5]", attributes)


@makes("convolution")
def convolution(opcode: str, name: str) -> Iterator[Case]:
    x, kernel = plain(name, 2, 6, 5, 4), plain(name, 3, 2, 4, 2, seed=6)
    for window, sizes in (
        ("size=3x2", "4,4"),
        ("size=3x2 stride=2x1 pad=1_1x0_1", "3,5"),
        ("size=3x2 lhs_dilate=2x1 rhs_dilate=1x2 rhs_reversal=1x0", "9,3"),
    ):
        yield operation(
            opcode, name, [x, kernel], f"{name}[2,{sizes},2]", f"window={{{window}}}, dim_labels=b01f_01io->b01f",
            label=window
        )  # fmt: skip
    grouped = plain(name, 3, 2, 2, 4, seed=7)
    attributes = "window={size=3x2}, dim_labels=b01f_01io->b01f, feature_group_count=2"
    yield operation(opcode, name, [x, grouped], f"{name}[2,4,4,4]", attributes, label="feature groups")
    attributes = "window={size=3x2}, dim_labels=b01f_01io->b01f, batch_group_count=2"
    yield operation(opcode, name, [x, kernel], f"{name}[1,4,4,2]", attributes, label="batch groups")


def positive(name: str) -> Array:
    """Two positive definite matrices, and one that is not."""
    generator = np.random.default_rng(3)
    half = generator.normal(size=(3, 5, 5))
    if ELEMENT_TYPES[name].is_complex:
        half = half + 1j * generator.normal(size=(3, 5, 5))
    full = half @ np.conj(np.swapaxes(half, -1, -2)) + 3 * np.eye(5)
    full[2, 3, 3] = -1
    return cast(full, name)


@makes("cholesky")
def cholesky(opcode: str, name: str) -> Iterator[Case]:
    x = positive(name)
    for lower in ("true", "false"):
        yield operation(opcode, name, [x], f"{name}[3,5,5]", f"lower={lower}")


@makes("triangular-solve")
def triangular_solve(opcode: str, name: str) -> Iterator[Case]:
    a = cast(positive(name)[:2] + cast(2 * np.eye(5), name), name)
    b, c = plain(name, 2, 5, 3), plain(name, 2, 3, 5)
    thorough = name in ("f32", "c64")
    for left in ("true", "false"):
        for lower in ("true", "false"):
            for transpose in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT") if thorough else ("ADJOINT",):
                for unit in ("false", "true") if thorough else ("false",):
                    side = b if left == "true" else c
                    attributes = f"left_side={left}, lower={lower}, unit_diagonal={unit}, transpose_a={transpose}"
                    yield operation(
                        opcode,
                        name,
                        [a / a.dtype.type(8), side],
                        f"{name}[2,{side.shape[1]},{side.shape[2]}]",
                        attributes,
                    )


@makes("fft")
def fft(opcode: str, name: str) -> Iterator[Case]:
    """Complex to complex, and between real and complex."""
    pairs = {"f32": "c64", "f64": "c128", "c64": "f32", "c128": "f64"}
    other = pairs[name]
    if ELEMENT_TYPES[name].is_complex:
        x = plain(name, 3, 8)
        for kind in ("FFT", "IFFT"):
            yield operation(opcode, name, [x], f"{name}[3,8]", f"fft_type={kind}, fft_length={{8}}")
            y = plain(name, 2, 3, 5)
            yield operation(opcode, name, [y], f"{name}[2,3,5]", f"fft_type={kind}, fft_length={{3,5}}")
        for length, count in ((8, 5), (7, 4)):
            yield operation(
                opcode,
                name,
                [plain(name, 3, count)],
                f"{other}[3,{length}]",
                f"fft_type=IRFFT, fft_length={{{length}}}",
            )
    else:
        for length, count in ((8, 5), (7, 4)):
            yield operation(
                opcode, name, [plain(name, 3, length)], f"{other}[3,{count}]", f"fft_type=RFFT, fft_length={{{length}}}"
            )


@makes("batch-norm-training", "batch-norm-inference", "batch-norm-grad")
def batch_norm(opcode: str, name: str) -> Iterator[Case]:
    x = plain(name, 3, 4, 5)
    scale, offset = plain(name, 4, seed=6), plain(name, 4, seed=7)
    mean, variance = plain(name, 4, seed=8), np.abs(plain(name, 4, seed=9)) + cast(0.5, name)
    inputs = {
        "batch-norm-training": [x, scale, offset],
        "batch-norm-inference": [x, scale, offset, mean, variance],
        "batch-norm-grad": [x, scale, mean, variance, plain(name, 3, 4, 5, seed=10)],
    }[opcode]
    whole = f"{name}[3,4,5]"
    result = whole if opcode == "batch-norm-inference" else (whole, f"{name}[4]", f"{name}[4]")
    yield operation(opcode, name, inputs, result, "epsilon=0.001, feature_index=1")


@makes("rng-bit-generator")
def bits(opcode: str, name: str) -> Iterator[Case]:
    for algorithm, words in (("rng_three_fry", 2), ("rng_philox", 2), ("rng_philox", 3), ("rng_default", 3)):
        state = np.array([0x0123456789ABCDEF, 2**64 - 2, 5][:words], np.uint64)
        for sizes in ((), (7,), (3, 4)) if name == "u32" else ((7,),):
            shape = f"{name}[{','.join(map(str, sizes))}]"
            yield operation(
                opcode, name, [state], (f"u64[{words}]", shape), f"algorithm={algorithm}",
                label=f"{algorithm} {words} {shape}"
            )  # fmt: skip
