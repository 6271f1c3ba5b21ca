"""Which combinations are proved to be associative, and their neutral elements."""

from __future__ import annotations

import math

import pytest

import hlo_opt
from hlo_opt.ops.reduction.associative import is_associative, neutral
from hlo_opt.ops.reduction.scan_tree import ScanTree, scan_tree
from tests.scan_trees import (
    PAIR,
    Combine,
    affine,
    by_segments,
    complex_product,
    difference,
    highest_sum,
    operation,
    scan_module,
)


def tree(text: str) -> ScanTree:
    """The tree of the entry's last result."""
    found = scan_tree(hlo_opt.parse(text).entry.root.operands[-1])
    assert found is not None
    return found


@pytest.mark.parametrize("length", [4, 5, 6, 7, 16, 31])
def test_a_tree_is_read_whole(length: int) -> None:
    found = tree(scan_module((3, length), 1, affine, PAIR))
    assert found.axis == 1 and len(found.elements) == len(found.combinations) == 2
    assert found.elements[found.result].array.parameter_number == 1
    assert len(found.inner) == length.bit_length() - 1, "one on each level"


@pytest.mark.parametrize("change", [("[0:6:2]", "[1:7:2]"), ("padding=1_1_1", "padding=0_2_1"), ("[2:7:2]", "[1:6:2]")])
def test_what_is_no_tree(change: tuple[str, str]) -> None:
    text = scan_module((7,), 0, operation("add"))
    assert change[0] in text
    assert scan_tree(hlo_opt.parse(text.replace(*change)).entry.root.operands[-1]) is None


@pytest.mark.parametrize(
    ("combine", "kinds", "values", "lost"),
    [
        (operation("add"), ("f32",), (0,), set()),
        (operation("maximum"), ("f32",), (-math.inf,), set()),
        (operation("and"), ("u8",), (255,), set()),
        (affine, PAIR, (0, 1), {1}),
        (complex_product, PAIR, (0, 1), {0, 1}),
        (highest_sum, PAIR, (-math.inf, 0), {1}),
        (by_segments, ("f32", "pred"), (0, False), set()),
    ],
)
def test_associative(combine: Combine, kinds: tuple[str, ...], values: tuple[float, ...], lost: set[int]) -> None:
    """The last component comes first. Of a component that is `lost`, another one multiplies a number by zero."""
    found = tree(scan_module((9,), 0, combine, kinds))
    assert is_associative(found.combinations)
    start = neutral(found.combinations)
    if kinds[-1] == "pred":  # it needs no other component
        assert start is not None and start.values == (False,)
        return
    assert start is not None and start.values == values
    assert set().union(*start.lost.values()) == lost


@pytest.mark.parametrize(
    ("combine", "kinds"),
    [(difference, ("f32",)), (operation("divide"), ("f32",)), (highest_sum, ("s32", "s32"))],
)
def test_not_associative(combine: Combine, kinds: tuple[str, ...]) -> None:
    assert not is_associative(tree(scan_module((9,), 0, combine, kinds)).combinations)
