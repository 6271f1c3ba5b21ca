"""Kernels of which a thread computes all of a small array: each value once, and every element where it belongs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.plans.test_batch import chain


@pytest.mark.parametrize("layout", ["", "{1,2,0}", "{0,1,2}"])
@pytest.mark.parametrize("shape", ["1000,4,4", "129,3,3"])
def test_they_agree(tool: Any, shape: str, layout: str) -> None:
    text = chain(shape, layout=layout)
    assert tool.plan(text).kind == "batch"
    tool.agrees(text)


def test_what_several_elements_need_is_computed_once(planner: Any) -> None:
    source = planner.kernel(chain("1000,3,3", steps=2)).source
    assert len(re.findall(r"= \w+ - \w+;", source)) == 9 * 2
