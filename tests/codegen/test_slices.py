"""Loops in slices on the host, against the NumPy meaning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hlo_opt.plans.loop import Elements
from tests.slice_modules import shared_by_slices
from tests.small_modules import H100


@pytest.fixture
def tool(tool: Any) -> Any:
    """For a small device, which small arrays fill."""
    return replace(tool, target=replace(H100, core_count=1, threads_per_core_limit=256))


def test_slices_of_several_types_layouts_and_outputs(tool: Any) -> None:
    texts = [
        shared_by_slices("8,64,96"),
        shared_by_slices("6,61,97"),  # a slice is no whole number of vectors
        shared_by_slices("72,32,48", t="bf16"),
        shared_by_slices("6,61,97", t="f16", outputs=2),
        shared_by_slices("1,8,64,96"),
        shared_by_slices("64,96,8", along=(0, 1), layout="{1,0,2}"),  # slices along the last dimension
    ]
    for text in texts:
        part = tool.plan(text).segments[0].part
        assert isinstance(part, Elements) and part.slices > 1, text
    tool.all_agree(texts, relative=1e-2)


def test_what_is_shared_is_computed_once(planner: Any) -> None:
    small = replace(planner, target=replace(H100, core_count=1, threads_per_core_limit=256))
    source = small.kernel(shared_by_slices("8,64,96")).source
    assert source.count(" = sinf(") == 4
    assert source.count("out0[") == 4
