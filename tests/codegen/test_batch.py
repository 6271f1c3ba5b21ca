"""Kernels of which a thread computes all of a small array: each value once, and every element where it belongs."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.plans.test_batch import SMALL, chain, normed


@pytest.mark.parametrize("layout", ["", "{1,2,0}", "{0,1,2}"])
@pytest.mark.parametrize("shape", ["1000,4,4", "129,3,3"])
def test_they_agree(tool: Any, shape: str, layout: str) -> None:
    text = chain(shape, layout=layout)
    assert tool.plan(text).kind == "batch"
    tool.agrees(text)


def test_what_several_elements_need_is_computed_once(planner: Any) -> None:
    source = planner.kernel(chain("1000,3,3", steps=2)).source
    assert len(re.findall(r"= \w+ - \w+;", source)) == 9 * 2


@pytest.mark.parametrize(("shape", "dtype"), [("1000,4,4", "bf16"), ("129,3,3", "bf16"), ("129,3,3", "f16")])
def test_narrow_matrices_agree(tool: Any, shape: str, dtype: str) -> None:
    text = chain(shape).replace("f32", dtype)
    assert tool.plan(text).kind == "batch"
    tool.agrees(text, relative=0.05)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("shape", ["16,64,64", "16,8,64", "16,24,255", "16,33,255"])
def test_neighbouring_lanes_agree(tool: Any, shape: str, dtype: str) -> None:
    small, text = replace(tool, target=SMALL), normed(shape, dtype)
    assert small.plan(text).kind == "batch"
    small.agrees(text, relative=0.0 if dtype == "f32" else 0.01)


def test_narrow_neighbours_are_read_before_they_are_converted(planner: Any) -> None:
    source = replace(planner, target=SMALL).kernel(normed("16,64,64", "bf16")).source
    assert len(re.findall(r"unsigned short read\d+\[8\]", source)) == 16
