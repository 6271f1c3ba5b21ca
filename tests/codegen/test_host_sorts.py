"""Networks as merges on the host: which kernels have them, and what they order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt.codegen.host_sorts import MARK, with_merges
from hlo_opt.codegen.host_source import as_loops, lanes_unit
from tests.codegen.test_sort import CHAIN, TOTAL, sort, top

TEXTS = {
    "one": sort("7,4096", along=1),
    "two": sort("7,100", ("f32", "s32"), along=1, compare=TOTAL),
    "short": sort("99,3", along=1),
    "warps": sort("99,64", along=1),
    "across": sort("100,70", ("s8", "s32")),
    "across_alone": sort("256,64", compare=TOTAL[:-17]),
    "narrow": sort("3,50", ("bf16", "f8e5m2", "u4"), along=1, compare=TOTAL),
    "chain": sort("5,70", ("s8", "f32", "s16"), along=1, compare=CHAIN),
    "top": top("9,130", 5, "bf16"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_every_network_becomes_merges(name: str, tool: Any) -> None:
    kernel = tool.kernel(TEXTS[name])
    found = with_merges(kernel.source)
    assert found is not None and found.body.count(MARK) == 1 and " ^ mask" not in found.body
    text = as_loops(kernel)
    assert text is not None and "hlo::merge_sort(" in text and MARK not in text and "position_low <" not in text
    assert "position_high <" not in text  # merges keep equal elements in order: no place is compared


def test_the_header_comes_where_it_is_needed(tool: Any) -> None:
    assert "void merge_runs(" in lanes_unit([tool.kernel(TEXTS["one"])])
    assert "merge_runs" not in lanes_unit([tool.kernel(sort("4096,2", along=1))])  # two elements: no network


def test_other_texts_stay(tool: Any) -> None:
    source = tool.kernel(TEXTS["two"]).source
    assert with_merges(source.replace("size *= 2", "size += 2")) is None
    assert with_merges(source.replace("step /= 2", "step -= 1")) is None
    assert with_merges(source.replace("const bool compare_3 =", "const bool compare_3 = keys_x0[mask] < 0 &&")) is None
    assert with_merges(source.replace(" ^ mask", " + step")) is None


@pytest.mark.parametrize("length", [3, 4, 5, 7, 8, 9, 13, 17, 1023])
def test_merges_of_all_lengths_are_stable(length: int, tool: Any) -> None:
    generator = np.random.default_rng(length)
    for spread in (1, 4, 1 << 20):
        keys = generator.integers(0, spread, (5, length)).astype(np.int32)
        values = np.tile(np.arange(length, dtype=np.int32), (5, 1))
        got = tool.run(sort(f"5,{length}", ("s32", "s32"), along=1), [keys, values])
        order = np.argsort(keys, axis=1, kind="stable")
        np.testing.assert_array_equal(got[0], np.take_along_axis(keys, order, 1))
        np.testing.assert_array_equal(got[1], order)


def test_an_order_that_has_circles_loses_no_element(tool: Any) -> None:
    """Equal elements that are told apart all the same, and an order without an end: merges from both ends meet somewhere else."""
    circle = "d = s32[] subtract(a0, b0)\nt = s32[] constant(3)\nz = s32[] constant(0)\nm = s32[] remainder(d, t)\ncompare(m, z), direction=GT"
    values = np.random.default_rng(1).integers(0, 1000, (20, 501)).astype(np.int32)
    (found,) = tool.run(sort("20,501", along=1, compare=circle), [values])
    np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(values, axis=1))
    nan = values.astype(np.float32)
    nan[:, ::3] = np.nan
    (found,) = tool.run(sort("20,501", ("f32",), along=1, compare="compare(a0, b0), direction=LT"), [nan])
    np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(nan, axis=1))
