"""Fourier transforms that the host computes by itself: every direction, lengths of every small factor, long lines, few
and many lines, several dimensions."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hlo_opt
from hlo_opt.runtime.host.library import has_compiler

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")

OWN, NUMPY = "a transform of the host's own (host_transform.h)", "numpy.fft (pocketfft)"
SHAPES = [
    ((1,), 1),
    ((2,), 1),
    ((3, 8), 1),
    ((5, 9), 1),
    ((7, 31), 1),
    ((33, 7, 5), 1),
    ((17, 30), 1),
    ((20, 1024), 1),
    ((3, 6000), 1),
    ((1, 65536), 1),
    ((1798,), 1),
    ((3, 8, 6), 2),
    ((2, 130, 66), 2),
    ((5, 16, 9), 2),
    ((2, 4, 6, 10), 3),
]
"""Sizes of arrays, and over how many of their last dimensions they are transformed."""


def transform(direction: str, real: str, sizes: tuple[int, ...], count: int) -> str:
    """A module; `sizes` are those of the real array, or of both."""
    wide = {"f32": "c64", "f64": "c128"}[real]
    whole, half = (f"[{','.join(map(str, s))}]" for s in (sizes, (*sizes[:-1], sizes[-1] // 2 + 1)))
    given, made = {
        "FFT": (wide + whole, wide + whole),
        "IFFT": (wide + whole, wide + whole),
        "RFFT": (real + whole, wide + half),
        "IRFFT": (wide + half, real + whole),
    }[direction]
    lengths = ",".join(map(str, sizes[len(sizes) - count :]))
    return (
        f"HloModule m\nENTRY e {{\n  p = {given} parameter(0)\n"
        f"  ROOT r = {made} fft(p), fft_type={direction}, fft_length={{{lengths}}}\n}}\n"
    )


def sample(shape: hlo_opt.Shape) -> np.ndarray:
    generator = np.random.default_rng(5)
    value = generator.standard_normal(shape.dimensions)
    if shape.type.is_complex:
        value = value + 1j * generator.standard_normal(shape.dimensions)
    return value.astype(shape.type.dtype)


@pytest.mark.parametrize("real", ["f32", "f64"])
@pytest.mark.parametrize("direction", ["FFT", "IFFT", "RFFT", "IRFFT"])
def test_directions(direction: str, real: str) -> None:
    """Within 12 roundings of the root mean square, whatever the length."""
    for sizes, count in SHAPES:
        module = hlo_opt.parse(transform(direction, real, sizes, count))
        value = sample(module.entry.parameters[0].shape)
        executable = hlo_opt.compile(module, "host")
        assert executable.report()["routines"] == {"fft": [OWN]}
        (got,), (want,) = executable(value), hlo_opt.evaluate(module, [value])
        near = 12 * np.finfo(real.replace("f", "float")).eps * np.sqrt((np.abs(want) ** 2).mean())
        np.testing.assert_allclose(got, want, rtol=0, atol=near, err_msg=str(sizes))


def test_a_line_is_not_mixed_with_others() -> None:
    """One with numbers that are none, and one of huge numbers, leave their neighbours as they are."""
    module = hlo_opt.parse(transform("RFFT", "f32", (4, 64), 1))
    value = sample(module.entry.parameters[0].shape)
    value[1, 3], value[2] = np.nan, value[2] * 1e30
    (got,), (want,) = hlo_opt.compile(module, "host")(value), hlo_opt.evaluate(module, [value])
    assert np.isnan(got[1]).all()
    np.testing.assert_allclose(got[[0, 3]], want[[0, 3]], rtol=1e-5, atol=1e-5)


def test_what_is_not_real_of_the_ends_is_not_read() -> None:
    for size in (8, 9):
        module = hlo_opt.parse(transform("IRFFT", "f32", (size,), 1))
        value = sample(module.entry.parameters[0].shape)
        got = hlo_opt.compile(module, "host")(value)[0]
        value[0] = value[0].real
        np.testing.assert_allclose(got, np.fft.irfft(value, size), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("length", [37, 2 * 41, 1009])
def test_lengths_with_large_prime_factors_are_numpys(length: int) -> None:
    module = hlo_opt.parse(transform("FFT", "f32", (3, length), 1))
    value = sample(module.entry.parameters[0].shape)
    executable = hlo_opt.compile(module, "host")
    assert executable.report()["routines"] == {"fft": [NUMPY]}
    np.testing.assert_allclose(executable(value)[0], np.fft.fft(value), rtol=1e-4, atol=1e-4 * math.sqrt(length))
