"""Folds of narrow floats run in f32 and round once: in the interpreter, in kernels on the host, in the CUDA text, in
emitted drivers; fused or not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ops.reduction.reducers import is_wide, running_types, widened
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.schedule import build_schedule

REDUCERS = """HloModule m

add {
  a = TYPE[] parameter(0)
  b = TYPE[] parameter(1)
  ROOT r = TYPE[] add(a, b)
}

product {
  a = TYPE[] parameter(0)
  b = TYPE[] parameter(1)
  ROOT r = TYPE[] multiply(a, b)
}

step {
  a = TYPE[] parameter(0)
  b = TYPE[] parameter(1)
  h = TYPE[] negate(b)
  ROOT r = TYPE[] subtract(a, h)
}

calls {
  a = TYPE[] parameter(0)
  b = TYPE[] parameter(1)
  h = TYPE[] call(a, b), to_apply=add
  c = f32[] convert(h)
  ROOT r = TYPE[] convert(c)
}

both {
  a = TYPE[] parameter(0)
  n = s32[] parameter(1)
  b = TYPE[] parameter(2)
  m = s32[] parameter(3)
  x = TYPE[] add(a, b)
  y = s32[] add(n, m)
  ROOT r = (TYPE[], s32[]) tuple(x, y)
}

keeps {
  a = TYPE[] parameter(0)
  b = TYPE[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE
}

"""


def entry(shape: str, *lines: str) -> str:
    body = "".join(f"  {line}\n" for line in lines)
    return f"ENTRY e {{\n  p = TYPE[{shape}] parameter(0)\n  z = TYPE[] constant(0)\n{body}}}\n"


def reduce(shape: str, result: str, dimensions: str, reducer: str = "add") -> str:
    return entry(shape, f"ROOT r = TYPE[{result}] reduce(p, z), dimensions={{{dimensions}}}, to_apply={reducer}")


def window(result: str, attributes: str) -> str:
    return entry("3000", f"ROOT r = TYPE[{result}] reduce-window(p, z), window={{{attributes}}}, to_apply=add")


def dot(shape: str, result: str, left: str = "p", *lines: str) -> str:
    attributes = "lhs_contracting_dims={0}, rhs_contracting_dims={0}"
    return entry(shape, *lines, f"ROOT r = TYPE[{result}] dot({left}, p), {attributes}")


# what p is filled with, and what comes out: more than the narrow type can count up to in such steps
CASES: dict[str, tuple[str, float, list[Any]]] = {
    "row": (reduce("3,3000", "3", "1"), 1, [3000]),
    "columns": (reduce("3000,64", "64", "0"), 1, [3000]),
    "few columns": (reduce("3000,3", "3", "0"), 1, [3000]),
    "everything": (reduce("30,100", "", "0,1"), 1, [3000]),
    "a row in parts": (reduce("262144", "", "0"), 0.125, [32768]),
    "columns in parts": (reduce("131072,2", "2", "0"), 0.125, [16384]),
    "several operations": (reduce("3,3000", "3", "1", "step"), 1, [3000]),
    "a call inside": (reduce("3,3000", "3", "1", "calls"), 1, [3000]),
    "a fusion around": (
        entry("3,3000", "h = TYPE[3,3000] add(p, p)", "s = TYPE[3] reduce(h, z), dimensions={1}, "
                                                      "to_apply=add", "ROOT r = TYPE[3] negate(s)"),
        0.5,
        [-3000],
    ),
    "two results": (
        entry(
            "3,3000",
            "q = s32[3,3000] iota(), iota_dimension=1",
            "n = s32[] constant(0)",
            "ROOT r = (TYPE[3], s32[3]) reduce(p, q, z, n), dimensions={1}, to_apply=both",
        ),
        1,
        [3000, 4498500],
    ),
    "window": (window("2", "size=3000 pad=0_1"), 1, [[3000, 2999]]),
    "cumulative": (window("3000", "size=3000 pad=2999_0"), 1, [range(1, 3001)]),
    "gradient of a maximum": (
        entry(
            "599",
            "i = s32[599] iota(), iota_dimension=0",
            "m = s32[] constant(299)",
            "n = s32[599] broadcast(m), dimensions={}",
            "c = pred[599] compare(i, n), direction=EQ",
            "y = TYPE[599] broadcast(z), dimensions={}",
            "v = TYPE[599] select(c, p, y)",
            "k = TYPE[] constant(2048)",
            "s = TYPE[300] slice(p), slice={[0:300]}",
            "w = TYPE[599] select-and-scatter(v, s, k), window={size=300}, select=keeps, scatter=add",
            "ROOT r = TYPE[1] slice(w), slice={[299:300]}",
        ),
        1,
        [2348],
    ),
    "product": (dot("3000", ""), 1, [3000]),
    "matrix and vector": (dot("3000,4", "4", "v", "w = TYPE[3000,1] slice(p), "
                                                  "slice={[0:3000],[0:1]}", "v = TYPE[3000] reshape(w)"), 1, [3000]),
    "matrices": (dot("3000,40", "40,40"), 1, [3000]),
    "convolution": (
        entry("1,3000,1", "k = TYPE[3000,1,1] reshape(p)", "ROOT r = TYPE[1,1,1] convolution(p, k), "
                                                           "window={size=3000}, dim_labels=b0f_0io->b0f"),
        1,
        [3000],
    ),
}  # fmt: skip
TYPES = ("bf16", "f16", "f8e5m2")


def built(name: str, element_type: str) -> tuple[hlo_opt.Module, np.ndarray, list[np.ndarray]]:
    """The module of a case, its input and what it gives."""
    text, fill, wanted = CASES[name]
    module = hlo_opt.parse((REDUCERS + text).replace("TYPE", element_type))
    hlo_opt.verify(module)
    shape = module.entry.parameters[0].shape
    leaves = list(module.entry.root.shape.leaves())
    made = [
        np.broadcast_to(np.asarray(w, np.float32).astype(leaf.type.dtype), leaf.dimensions)
        for w, leaf in zip(wanted, leaves, strict=True)
    ]
    return module, np.full(shape.dimensions, fill, shape.type.dtype), made


@pytest.mark.parametrize("element_type", TYPES)
@pytest.mark.parametrize("name", CASES)
def test_the_interpreter_rounds_once(name: str, element_type: str) -> None:
    module, given, wanted = built(name, element_type)
    for got, want in zip(hlo_opt.evaluate(module, [given]), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.sweep
def test_kernels_round_once(name: str) -> None:
    for element_type in TYPES:
        module, given, wanted = built(name, element_type)
        for form in (module, hlo_opt.fuse(module)[0]):
            executable = hlo_opt.compile(form, "host")
            for got, want in zip(executable(given), wanted, strict=True):
                np.testing.assert_array_equal(got, want)
            assert not executable.report()["fallbacks"]


@pytest.mark.parametrize("name", CASES)
def test_cuda_texts_round_no_step(name: str) -> None:
    """What is rounded has a name; partial results lie in shared memory as f32."""
    module, _, _ = built(name, "bf16")
    for kernel in build_schedule(hlo_opt.fuse(module)[0]).kernels:
        body = kernel.source[kernel.source.index('extern "C"') :]
        steps = re.findall(r"hlo_round_bf16\((\w+ [-+*/] \w+)\)", body)
        assert all(step.startswith("x0") for step in steps)  # an operation on the input, before it is folded
        assert not re.search(r"__shared__ unsigned short partial", body)


BITS = """HloModule m

bits {
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  u = u16[] bitcast-convert(a)
  v = u16[] bitcast-convert(b)
  m = u16[] xor(u, v)
  ROOT r = bf16[] bitcast-convert(m)
}

add {
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT r = bf16[] add(a, b)
}

ENTRY e {
  p = bf16[600] parameter(0)
  z = bf16[] constant(0)
  x = bf16[] reduce(p, z), dimensions={0}, to_apply=bits
  i = s32[600,1] iota(), iota_dimension=1
  t = bf16[2] broadcast(z), dimensions={}
  ROOT s = bf16[2] scatter(t, i, p), to_apply=add, update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1
}
"""


def test_what_looks_at_bits_or_lies_in_memory_keeps_its_type() -> None:
    module = hlo_opt.parse(BITS)
    folds = {i.opcode: i for i in module.entry.instructions if i.opcode in ("reduce", "scatter")}
    for fold in folds.values():
        assert not is_wide(fold) and running_types(fold)[0].name == "bf16"
    ones = np.ones(600, folds["reduce"].shape.type.dtype)
    assert hlo_opt.evaluate(module, [ones])[0].tolist() == [256, 0]
    if has_compiler():
        assert hlo_opt.compile(module, "host")(ones)[0].tolist() == [256, 0]


def test_a_widened_reducer_leaves_the_module_as_it_is() -> None:
    module, _, _ = built("a call inside", "f16")
    before = str(module)
    made = widened(module.entry.root.called_by("to_apply"))
    assert str(module) == before and made.module is None
    assert {leaf.type.name for i in made.instructions for leaf in i.shape.leaves()} == {"f32"}
    inner = next(i for i in made.instructions if i.opcode == "call").called_by("to_apply")
    assert inner.root.shape.type.name == "f32"
