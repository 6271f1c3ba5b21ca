"""Library calls of the GPU, with NumPy standing in for CuPy, against the interpreter."""

from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate import module_inputs
from hlo_opt.library.arrays import raw_dtype
from hlo_opt.library.functions import texts_of
from hlo_opt.ops.calls.call import call_of
from hlo_opt.runtime.numpy import logical, physical


def gpu_result(text: str, seed: int = 0) -> tuple[Any, Any, str]:
    """What the root's library call gives and what the interpreter gives; and the function that does it."""
    module = hlo_opt.parse(text)
    inputs = module_inputs(module, seed)
    root = module.entry.root
    call = call_of(root)
    assert call is not None
    shapes = [o.shape for o in root.operands]
    buffers = [physical(a, s).view(raw_dtype(a.dtype)) for a, s in zip(inputs, shapes, strict=True)]
    with np.errstate(all="ignore"):
        (made,) = call.run(np, buffers)
    (expected,) = hlo_opt.evaluate(module, inputs)
    return logical(made.view(root.shape.type.dtype), root.shape), expected, call.does


SCATTER = """HloModule m

{name} {{
  x = {t}[] parameter(0)
  y = {t}[] parameter(1)
  ROOT z = {t}[] {root}
}}

ENTRY e {{
  a = {t}[6,5,4]{{0,2,1}} parameter(0)
  i = s32[3,2]{{0,1}} parameter(1)
  u = {t}{update} parameter(2)
  ROOT s = {t}[6,5,4]{{1,2,0}} scatter(a, i, u), to_apply={name}, {dims}, index_vector_dim=1
}}
"""
ROWS = ("[3,4]{1,0}", "update_window_dims={1}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={1,0}")
BLOCKS = (
    "[2,3,4,3]{0,1,2,3}",
    "update_window_dims={0,2,3}, inserted_window_dims={}, scatter_dims_to_operand_dims={0,2}",
)


@pytest.mark.parametrize("windows", [ROWS, BLOCKS])
@pytest.mark.parametrize(
    ("element_type", "root", "does"),
    [
        ("f32", "add(x, y)", "cupy.add.at"),
        ("s32", "add(x, y)", "cupy.add.at"),
        ("s8", "add(x, y)", "cupy.add.at"),
        ("f64", "maximum(x, y)", "cupy.maximum.at"),
        ("bf16", "minimum(x, y)", "cupy.minimum.at"),
    ],
)
def test_scatters_are_the_interpreters(windows: tuple[str, str], element_type: str, root: str, does: str) -> None:
    update, dims = windows
    text = SCATTER.format(name="f", t=element_type, root=root, update=update, dims=dims)
    for seed in range(3):  # indices from -4 to 7: some windows are not inside
        got, expected, did = gpu_result(text, seed)
        assert did == does and got.dtype == expected.dtype
        assert np.allclose(got.astype(np.float64), expected.astype(np.float64), rtol=1e-6)


def test_a_batched_scatter_that_assigns() -> None:
    got, expected, does = gpu_result(
        """HloModule m

last {
  x = f32[] parameter(0)
  ROOT y = f32[] parameter(1)
}

ENTRY e {
  a = f32[3,9]{1,0} parameter(0)
  i = u32[3]{0} parameter(1)
  u = f32[3]{0} parameter(2)
  ROOT s = f32[3,9]{1,0} scatter(a, i, u), to_apply=last, update_window_dims={}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1},
    input_batching_dims={0}, scatter_indices_batching_dims={0}, index_vector_dim=1
}
"""
    )
    assert does == "assignment by index" and np.array_equal(got, expected) and (got != 0).any()


@pytest.mark.parametrize("opcode", ["abs", "exponential", "imag", "negate", "real", "sine", "sqrt", "tanh"])
def test_complex_functions_are_the_interpreters(opcode: str) -> None:
    result = "f32" if opcode in ("abs", "imag", "real") else "c64"
    got, expected, _ = gpu_result(
        f"HloModule m\nENTRY e {{\n  a = c64[5,3]{{0,1}} parameter(0)\n  ROOT r = {result}[5,3]{{1,0}} {opcode}(a)\n}}\n"
    )
    assert got.dtype == expected.dtype and np.allclose(got, expected, rtol=1e-5)


def test_complex_numbers_are_made_of_parts() -> None:
    got, expected, _ = gpu_result(
        "HloModule m\nENTRY e {\n  a = f64[7]{0} parameter(0)\n  b = f64[7]{0} parameter(1)\n  ROOT r = c128[7]{0} "
        "complex(a, b)\n}\n"
    )
    assert got.dtype == np.complex128 and np.array_equal(got, expected)


def test_what_cupy_lacks_has_no_call() -> None:
    wild = SCATTER.format(name="f", t="f32", root="multiply(x, y)", update=ROWS[0], dims=ROWS[1])
    assert call_of(hlo_opt.parse(wild).entry.root) is None
    eight = "HloModule m\nENTRY e {\n  a = f8e5m2[2]{0} parameter(0)\n  ROOT b = f8e5m2[2]{0} add(a, a)\n}\n"
    assert call_of(hlo_opt.parse(eight).entry.root) is None


def test_texts_come_with_what_they_call() -> None:
    names = [t.split("(")[0] for t in texts_of(["complex_call", "dot_call"])]
    assert names.index("def flat") < names.index("def complex_call") and "def widened" in names
    assert len(names) == len(set(names)) and "def scatter_call" not in names
