"""TopK in its spellings, approximate top-k as JAX writes it for a TPU, and radix sorts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt import EvaluationError, evaluate, parse

VALUES = np.array([[3, 1, 3, np.nan, -np.inf], [0, -0.0, 5, 5, 2]], np.float32)
GREATER = (
    "g {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  i = s32[] parameter(2)\n  j = s32[] parameter(3)\n  "
    "ROOT c = pred[] compare(a, b), direction=GT\n}\n"
)


def call(target: str, results: str, rest: str, *inputs: Any) -> list[np.ndarray]:
    kinds = {"float32": "f32", "int32": "s32", "uint8": "u8"}
    arrays = [np.asarray(value) for value in inputs]
    lines = [
        f"  p{k} = {kinds[a.dtype.name]}[{','.join(map(str, a.shape))}] parameter({k})" for k, a in enumerate(arrays)
    ]
    names = ", ".join(f"p{k}" for k in range(len(arrays)))
    lines.append(f'  ROOT r = {results} custom-call({names}), custom_call_target="{target}"{rest}')
    return evaluate(parse("HloModule m\n" + GREATER + "\nENTRY e {\n" + "\n".join(lines) + "\n}\n"), arrays)


@pytest.mark.parametrize("target", ["TopK", "__gpu$TopK", "mhlo.topk"])
def test_top_k_in_its_spellings(target: str) -> None:
    called = "" if target.startswith("mhlo") else ", called_computations={g}"
    found, positions = call(target, "(f32[2,3], s32[2,3])", called, VALUES)
    assert positions.tolist() == [[3, 0, 2], [2, 3, 4]]
    np.testing.assert_array_equal(found, np.take_along_axis(VALUES, positions, 1))
    if target.startswith("mhlo"):
        least = ", backend_config={k = 3 : i64, largest = false}"
        assert call(target, "(f32[2,3], s32[2,3])", least, VALUES)[1].tolist() == [[4, 1, 0], [1, 0, 4]]


def test_approximate_top_k_as_jax_writes_it() -> None:
    jax = pytest.importorskip("jax")
    operand = np.random.default_rng(0).normal(size=(3, 1000)).astype(np.float32)
    function = jax.jit(lambda x: jax.lax.approx_max_k(x, 4))
    text = function.trace(operand).lower(lowering_platforms=("tpu",)).compiler_ir(dialect="hlo").as_hlo_text()
    assert 'custom_call_target="PartialReduce"' in text
    values, positions = evaluate(parse(text), [operand])
    expected, places = jax.lax.top_k(operand, 4)
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(positions, places)


BEST = ', called_computations={g}, backend_config={"top_k": 2, "reduction_dim": 1}'


def test_room_that_is_left_has_initial_values() -> None:
    names = np.arange(5, dtype=np.int32)[None]
    inputs = VALUES[1:], names, np.float32(-9), np.int32(-1)
    values, positions = call("ApproxTopK", "(f32[1,6], s32[1,6])", BEST, *inputs)
    assert values.tolist() == [[5, 5, 2, 0, 0, -9]] and positions.tolist() == [[2, 3, 4, 0, 1, -1]]
    values, positions = call("ApproxTopK", "(f32[1,2], s32[1,2])", BEST, *inputs)
    assert values.tolist() == [[5, 5]] and positions.tolist() == [[2, 3]]


def test_operands_without_initial_values_are_refused() -> None:
    with pytest.raises(EvaluationError, match="do not fit together"):
        call("ApproxTopK", "(f32[2,4], s32[2,4])", BEST, VALUES, np.zeros((2, 5), np.int32), np.float32(0))


@pytest.mark.parametrize("descending", [False, True])
def test_radix_sort(descending: bool) -> None:
    keys = np.array([2, -0.0, np.nan, 0.0, -np.inf, 2], np.float32)
    config = f', backend_config={{"descending":{str(descending).lower()}}}'
    values = np.arange(6, dtype=np.int32)
    ordered, places, scratch = call("xla.gpu.ext.cub_sort_pairs", "(f32[6], s32[6], u8[32])", config, keys, values)
    assert places.tolist() == ([2, 0, 5, 1, 3, 4] if descending else [4, 1, 3, 0, 5, 2]), "zeros are equal, order stays"
    np.testing.assert_array_equal(ordered, keys[places])
    assert scratch.shape == (32,)
    target = "xla.gpu.ext.cub_sort_unassigned_scratch_size"
    assert call(target, "(u8[2,3], u8[1])", config, np.array([[3, 255, 0], [1, 1, 9]], np.uint8))[0].tolist() == (
        [[255, 3, 0], [9, 1, 1]] if descending else [[0, 3, 255], [1, 1, 9]]
    )
