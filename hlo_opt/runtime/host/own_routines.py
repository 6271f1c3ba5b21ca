"""The host's own routines of library calls, each a shared library of its own: compiling all of them takes seconds, and
most programs have one or none."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from functools import cache
from importlib import resources
from typing import Any

from hlo_opt.runtime.host.compiler import load

RUNTIME_FLAGS = ("-pthread", "-ffp-contract=fast")
"""What the runtime and the routines are built with, besides what all libraries are."""


class Number(IntEnum):
    """What a routine computes with; `host_runtime.cpp` has the same. Integers of 32 bits wrap, so their sign does not
    matter."""

    F32 = 0
    F64 = 1
    S32 = 2
    C64 = 3
    C128 = 4


_TYPES = {Number.F32: "float", Number.F64: "double", Number.S32: "int"}


CONVOLUTION, CONVERSION, SELECTION, SORT = "convolve", "convert_widths", "select_first", "sort_lines"


def _routines() -> dict[str, tuple[tuple[str, ...], str]]:
    convolutions = ("host_convolution.h", "host_convolution_long.h", "host_convolution_groups.h")
    routines = {
        CONVOLUTION: (("host_product.h", *convolutions), "convolve_words"),
        CONVERSION: (("host_widths.h",), "convert_words"),
        SELECTION: (("host_selection.h",), "select_words"),
        SORT: (("host_sort.h",), "sort_words"),
    }
    for number, name in _TYPES.items():
        routines[product_name(number)] = (("host_product.h",), f"multiply_words<{name}>")
    for number, real in {Number.C64: "float", Number.C128: "double"}.items():
        function = f"multiply_words<{real}, ComplexMultiplier<{real}>>"
        routines[product_name(number)] = (("host_product.h", "host_complex_product.h"), function)
    for number in (Number.F32, Number.F64):
        real = _TYPES[number]
        routines[substitution_name(number)] = (("host_substitution.h",), f"substitute_words<{real}>")
        routines[factorization_name(number)] = (("host_factorization.h",), f"factor_words<{real}>")
        headers = ("host_product.h", "host_transform.h")
        routines[transform_name(number)] = (headers, f"Transformer<{real}>::transform_words")
    return routines


def product_name(number: Number) -> str:
    """The routine for products of numbers of a type."""
    return f"product_{number.name.lower()}"


def substitution_name(number: Number) -> str:
    """The routine for triangular systems of a type."""
    return f"substitution_{number.name.lower()}"


def factorization_name(number: Number) -> str:
    """The routine for factorizations of matrices of a type."""
    return f"factorization_{number.name.lower()}"


def transform_name(number: Number) -> str:
    """The routine for Fourier transforms that compute with a type."""
    return f"transform_{number.name.lower()}"


ROUTINES = _routines()
"""For each routine the headers that it needs, and its function in them."""


def symbol_of(name: str) -> str:
    """What a routine is called in its library."""
    return f"hlo_own_{name}"


def routine_text(name: str) -> str:
    """The translation unit of a routine."""
    headers, function = ROUTINES[name]
    text = "".join(_file(header).replace("#pragma once\n", "") for header in headers)
    whole = _file("host_routine.h").replace("HLO_HEADERS\n", text)
    return whole.replace("HLO_NAME", symbol_of(name)).replace("HLO_FUNCTION", function)


@cache
def routine(name: str) -> int:
    """The address of a routine, which is built when it is first asked for. Raises BackendError as `HostLibrary`."""
    function = load([routine_text(name)], RUNTIME_FLAGS)[symbol_of(name)]
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@cache
def runtime_text() -> str:
    """The text of what runs schedules."""
    return _file("host_runtime.cpp").replace("HLO_CRASHES\n", _file("host_crashes.h"))


@cache
def runtime() -> ctypes.CDLL:
    """The library of `host_runtime.cpp`, built when it is first asked for. Raises BackendError as `HostLibrary`."""
    library = load([runtime_text()], RUNTIME_FLAGS)
    pointer, word = ctypes.c_void_p, ctypes.c_longlong
    library.hlo_run.argtypes = [pointer, word, pointer, pointer, pointer, pointer]
    library.hlo_launch.argtypes = [pointer, pointer, word, word]
    library.hlo_guard.argtypes, library.hlo_guard.restype = [ctypes.c_int], None
    library.hlo_crash_address.restype = pointer
    return library


def runner() -> Any:
    """`hlo_run` of `host_runtime.cpp`. Raises BackendError as `runtime`."""
    return runtime().hlo_run


def _file(name: str) -> str:
    return resources.files("hlo_opt.runtime.host").joinpath(name).read_text(encoding="utf-8")
