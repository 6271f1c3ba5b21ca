"""The C++ texts of elementwise ops: built by the host's compiler and compared with `evaluate`, and compiled by
NVRTC."""

from __future__ import annotations

import ctypes
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hlo_opt.codegen.device_code import definitions, helpers
from hlo_opt.ir import ELEMENT_TYPES, Attribute, ElementType, Instruction, array
from hlo_opt.ops import OpKind, spec_of, table
from hlo_opt.ops.lowering import Elementwise, compute_type, is_rounded, storage_type, width_text

Array = np.ndarray[Any, Any]

INTEGERS = ("s2", "u2", "s4", "u4", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
FLOATS = ("f32", "f64", "bf16", "f16", "f8e5m2", "f8e4m3fn", "f8e4m3b11fnuz", "f8e8m0fnu", "f6e3m2fn", "f4e2m1fn")
TYPES = ("pred", *INTEGERS, *FLOATS)
COMPILER = shutil.which("g++") or shutil.which("clang++")
HOST = """
#include <math.h>
#include <string.h>
#define __device__
#define __forceinline__ inline
"""


def special_values(element_type: ElementType) -> Array:
    """Limits, zeros, denormal numbers, infinities, NaN and a few plain values of a type."""
    if element_type.kind == "pred":
        return np.array([False, True])
    if element_type.is_integer:
        bits, unsigned = element_type.bits, element_type.kind == "unsigned"
        low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        wanted = {
            low,
            low + 1,
            high,
            high - 1,
            0,
            1,
            2,
            3,
            7,
            -1,
            -2,
            -5,
            bits - 1,
            bits,
            bits + 1,
            63,
            64,
            100,
            high // 3,
        }
        return np.array(sorted(v for v in wanted if low <= v <= high), np.uint64 if unsigned else np.int64).astype(
            element_type.dtype
        )
    import ml_dtypes

    info = ml_dtypes.finfo(element_type.dtype)
    tiny, largest, least = float(info.tiny), float(info.max), float(info.smallest_subnormal)
    positive = [
        0.0,
        1.0,
        0.5,
        1.5,
        2.5,
        3.0,
        0.1,
        0.49999997,
        10.3,
        127.5,
        1e4,
        tiny,
        largest,
        least,
        least * 3,
        math.inf,
    ]
    return np.array([*positive, *(-v for v in positive), math.nan]).astype(element_type.dtype)


def instruction_of(opcode: str, result: str, operands: list[str], **attributes: Any) -> Instruction:
    parameters = [Instruction(f"p{k}", "parameter", array(ELEMENT_TYPES[t], 1)) for k, t in enumerate(operands)]
    made = {k: Attribute.of(v) for k, v in attributes.items()}
    return Instruction("r", opcode, array(ELEMENT_TYPES[result], 1), parameters, made)


def cases() -> list[Instruction]:
    """Every elementwise op on every type that it has a text for."""
    made: list[Instruction] = []
    for spec in table():
        if spec.kind is not OpKind.ELEMENTWISE or not isinstance(spec.cuda, Elementwise):
            continue
        for name in TYPES:
            if spec.opcode == "compare":
                for direction in ("EQ", "NE", "GE", "GT", "LE", "LT"):
                    made.append(instruction_of("compare", "pred", [name, name], direction=direction))
                if name in FLOATS:
                    made.append(instruction_of("compare", "pred", [name, name], direction="LT", type="TOTALORDER"))
            elif spec.opcode == "convert":
                made += [instruction_of("convert", target, [name]) for target in TYPES]
            elif spec.opcode == "select":
                made.append(instruction_of("select", name, ["pred", name, name]))
            elif spec.opcode == "is-finite":
                made.append(instruction_of("is-finite", "pred", [name]))
            elif spec.opcode == "reduce-precision" and name in FLOATS:
                for exponent, mantissa in ((5, 10), (8, 7), (4, 3), (8, 0), (11, 52), (2, 2)):
                    sizes = {"exponent_bits": exponent, "mantissa_bits": mantissa}
                    made.append(instruction_of("reduce-precision", name, [name], **sizes))
            elif spec.opcode == "stochastic-convert" and f"u{ELEMENT_TYPES[name].bits}" in INTEGERS and name in FLOATS:
                random = f"u{ELEMENT_TYPES[name].bits}"
                made += [instruction_of("stochastic-convert", t, [name, random]) for t in ("s8", "s16", "s32", "s64")]
            elif spec.opcode not in ("stochastic-convert", "reduce-precision"):
                made.append(instruction_of(spec.opcode, name, [name] * spec.arity.least))
    return [i for i in made if template(i) is not None]


def template(instruction: Instruction) -> str | None:
    lowering = spec_of(instruction).cuda
    assert isinstance(lowering, Elementwise)
    return lowering.text_for(instruction)


def loaded(element_type: ElementType, text: str) -> str:
    if not is_rounded(element_type):
        return text
    return f"hlo_{'load' if element_type.is_float else 'round'}_{element_type}({text})"


def function_text(name: str, instruction: Instruction, qualifiers: str) -> str:
    text, result = template(instruction), instruction.shape.type
    assert text is not None
    values = {
        "T": compute_type(result),
        "W": width_text(result),
        "F": "f" if compute_type(result) == "float" else "",
        "bits": str(result.bits),
    }
    types = [o.shape.type for o in instruction.operands]
    filled = text.format(*(f"v{k}" for k in range(len(types))), **values)
    pointers = ", ".join(f"const {storage_type(t)}* in{k}" for k, t in enumerate(types))
    loads = " ".join(
        f"const {compute_type(t)} v{k} = ({compute_type(t)})({loaded(t, f'in{k}[i]')});" for k, t in enumerate(types)
    )
    made = f"const {compute_type(result)} r = {filled};"
    stored = "r"
    if is_rounded(result):
        stored = f"hlo_store_{result}(r)" if result.is_float else f"r & {(1 << result.bits) - 1}"
    return (
        f'extern "C" {qualifiers} void {name}({pointers}, {storage_type(result)}* out, int n) {{\n'
        f"  for (int i = 0; i < n; i++) {{ {loads} {made} out[i] = {stored}; }}\n}}\n"
    )


def source_of(instructions: list[Instruction], qualifiers: str) -> str:
    body = "".join(function_text(f"f{k}", i, qualifiers) for k, i in enumerate(instructions))
    return with_helpers(body)


def with_helpers(text: str) -> str:
    """The text behind the helpers that it names."""
    return helpers(re.findall(r"\bhlo_\w+", text)) + text


def build(folder: Path, source: str) -> ctypes.CDLL:
    assert COMPILER is not None
    (folder / "texts.cpp").write_text(HOST + source)
    command = [COMPILER, "-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "texts.cpp", "-o", "texts.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "texts.so"))


def distance(ours: Array, reference: Array) -> float:
    """The largest distance in ULP; infinite where NaN meets a number."""
    import ml_dtypes

    a, b = ours.astype(np.float64), reference.astype(np.float64)
    if ((a != a) != (b != b)).any():
        return math.inf
    info = ml_dtypes.finfo(reference.dtype)
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.maximum(np.abs(b), float(info.smallest_normal))))
        gap = np.abs(a - b) / (2.0**exponent * float(info.eps))
    return float(np.max(np.where((a == b) | (a != a), 0.0, gap)))


@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
def test_host_texts_agree_with_evaluation(tmp_path: Path) -> None:
    instructions = cases()
    assert len(instructions) > 400
    library = build(tmp_path, source_of(instructions, ""))
    wrong = []
    for number, instruction in enumerate(instructions):
        types = [o.shape.type for o in instruction.operands]
        grids = np.meshgrid(*(np.arange(len(special_values(t))) for t in types), indexing="ij")
        inputs = [special_values(t)[g.ravel()] for t, g in zip(types, grids, strict=True)]
        spec, result = spec_of(instruction), instruction.shape.type
        assert spec.evaluate is not None and spec.tolerance is not None
        expected = spec.evaluate(None, instruction, inputs)  # type: ignore[arg-type]
        out = np.zeros(inputs[0].shape, result.dtype)
        pointers = [x.ctypes.data_as(ctypes.c_void_p) for x in (*inputs, out)]
        getattr(library, f"f{number}")(*pointers, out.size)
        if result.is_float:
            found, allowed = distance(out, expected), spec.tolerance(result)
            signs = not allowed and bool((np.signbit(out) != np.signbit(expected))[out == 0].any())
            if found > allowed or signs:
                wrong.append((instruction.opcode, [t.name for t in types], result.name, found))
        elif (out != expected).any():
            place = int(np.argmax(out != expected))
            given = [x[place] for x in inputs]
            wrong.append((instruction.opcode, [t.name for t in types], result.name, given, out[place], expected[place]))
    assert not wrong


def test_nvrtc_compiles_every_helper_and_text() -> None:
    pytest.importorskip("cupy")
    from cupy.cuda import nvrtc

    types = {"pred", "s4", "u8", "s16", "s32", "u32", "s64", "u64", "f32", "f64", "bf16", "f16", "f8e4m3fn"}
    chosen = [i for i in cases() if {o.shape.type.name for o in i.operands} <= types]
    # conversions and comparisons differ in their types alone
    chosen = [i for i in chosen if i.opcode not in ("convert", "compare") or i.operands[0].shape.type.name == "f32"]
    source = source_of(chosen, "__global__")
    program = nvrtc.createProgram(source, "texts.cu", (), ())
    try:
        nvrtc.compileProgram(program, ("-arch=sm_90",))
    except nvrtc.NVRTCError:
        pytest.fail(nvrtc.getProgramLog(program)[:2000])


def test_every_text_calls_only_helpers_that_exist() -> None:
    for instruction in cases():
        for name in re.findall(r"\bhlo_\w+", template(instruction) or ""):
            assert name in definitions(), f"{instruction.opcode} calls {name}"


def test_prelude_holds_what_is_mentioned_in_a_fixed_order() -> None:
    assert helpers(["fabsf", "__shfl_sync"]) == ""
    text = helpers(["hlo_round_f16", "hlo_divide"])
    named = [name for name in definitions() if f" {name}(" in text.replace("&", " ")]
    assert {"hlo_bit_cast", "hlo_divide", "hlo_load_f16", "hlo_store_f16", "hlo_round_f16"} <= set(named)
    assert "hlo_power" not in text
    assert text == helpers(["hlo_divide", "hlo_round_f16", "hlo_round_f16"])


@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("name", ["bf16", "f16"])
def test_narrow_floats_are_rounded_to_the_bit(name: str, tmp_path: Path) -> None:
    text = (
        f'extern "C" void stores(const float* in, unsigned short* out, int n) '
        f"{{ for (int i = 0; i < n; i++) out[i] = hlo_store_{name}(in[i]); }}\n"
        f'extern "C" void loads(const unsigned short* in, float* out, int n) '
        f"{{ for (int i = 0; i < n; i++) out[i] = hlo_load_{name}(in[i]); }}\n"
    )
    library = build(tmp_path, with_helpers(text))
    dtype = ELEMENT_TYPES[name].dtype
    every = np.arange(65536, dtype=np.uint16)
    floats = np.zeros(65536, np.float32)
    library.loads(every.ctypes.data_as(ctypes.c_void_p), floats.ctypes.data_as(ctypes.c_void_p), 65536)
    np.testing.assert_array_equal(floats, every.view(dtype).astype(np.float32))
    bits = np.random.default_rng(0).integers(0, 2**32, 200_000, np.uint32)
    # halfway between neighbours, and one bit to each side
    near = np.concatenate([floats.view(np.uint32) + d for d in (0, 0x1000, 0xFFF, 0x1001, 0x8000, 0x7FFF, 0x8001)])
    values = np.concatenate([bits, near.astype(np.uint32)]).view(np.float32)
    stored = np.zeros(values.size, np.uint16)
    library.stores(values.ctypes.data_as(ctypes.c_void_p), stored.ctypes.data_as(ctypes.c_void_p), values.size)
    with np.errstate(all="ignore"):
        expected = values.astype(dtype)
    numbers = values == values
    np.testing.assert_array_equal(stored[numbers], expected.view(np.uint16)[numbers])
    assert np.isnan(stored.view(dtype)[~numbers].astype(np.float32)).all()
