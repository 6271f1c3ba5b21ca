"""The C++ of floats of 8, 6 and 4 bits: every code is read, and numbers around every boundary are rounded, as NumPy's
types do it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hlo_opt.codegen.device_code import helpers
from hlo_opt.ir import ELEMENT_TYPES
from hlo_opt.ops.lowering import SMALL_FLOATS as NAMES
from hlo_opt.ops.numeric import narrow

COMPILER = shutil.which("g++") or shutil.which("clang++")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    if COMPILER is None:
        pytest.skip("no C++ compiler")
    body = "".join(
        f'extern "C" void load_{n}(const unsigned char* in, float* out, int n) '
        f"{{ for (int i = 0; i < n; i++) out[i] = hlo_load_{n}(in[i]); }}\n"
        f'extern "C" void store_{n}(const float* in, unsigned char* out, int n) '
        f"{{ for (int i = 0; i < n; i++) out[i] = hlo_store_{n}(in[i]); }}\n"
        for n in NAMES
    )
    folder: Path = tmp_path_factory.mktemp("floats")
    head = "#include <math.h>\n#include <string.h>\n#define __device__\n#define __forceinline__ inline\n"
    (folder / "floats.cpp").write_text(
        head + helpers(f"hlo_{way}_{n}" for way in ("load", "store") for n in NAMES) + body
    )
    command = [COMPILER, "-std=c++17", "-O1", "-shared", "-fPIC", "floats.cpp", "-o", "floats.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "floats.so"))


def converted(function: Any, given: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    made = np.zeros(given.size, dtype)
    function(given.ctypes.data_as(ctypes.c_void_p), made.ctypes.data_as(ctypes.c_void_p), given.size)
    return made


@pytest.mark.parametrize("name", NAMES)
def test_every_code_is_read(name: str, library: Any) -> None:
    element_type = ELEMENT_TYPES[name]
    codes = np.arange(2**element_type.bits, dtype=np.uint8)
    found = converted(getattr(library, f"load_{name}"), codes, np.float32)
    expected = codes.view(element_type.dtype).astype(np.float32)
    numbers = expected == expected
    assert np.array_equal(found[numbers].view(np.uint32), expected[numbers].view(np.uint32))
    assert np.isnan(found[~numbers]).all()


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_rounded_to_the_bit(name: str, library: Any) -> None:
    """The upper half of every f32, with lower halves at, next to and between the ties."""
    upper = np.arange(65536, dtype=np.uint32) << 16
    values = np.concatenate([upper | low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]).view(np.float32)
    found = converted(getattr(library, f"store_{name}"), values, np.uint8)
    with np.errstate(all="ignore"):
        expected = narrow(values, ELEMENT_TYPES[name]).view(np.uint8)
    wrong = np.flatnonzero(found != expected)
    assert not wrong.size, (values[wrong[:5]], found[wrong[:5]], expected[wrong[:5]])
