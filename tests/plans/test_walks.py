"""Walks go where the threads of kernels go: every element is written once, and every element of what is folded is read
once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from hlo_opt.ir import Shape
from hlo_opt.ops.lowering import Index
from hlo_opt.plans import Plan
from hlo_opt.plans.kinds import KINDS, kind_of
from hlo_opt.plans.reads import address_of, traced
from hlo_opt.plans.samples import value_of
from hlo_opt.plans.walks import ITEM, ROUND, THREAD, Walk
from tests.plans.price_modules import NAMES, planned


def walks(made: Plan) -> list[Walk]:
    return [w for s in made.segments for w in kind_of(s.part).walks(made.region, s, made.launch)]


def places(walk: Walk, shape: Shape, index: Index) -> Counter[int]:
    """How often a walk comes to each element of an array."""
    env = {
        THREAD: np.arange(walk.threads).reshape(-1, 1, 1),
        ROUND: np.arange(walk.rounds).reshape(-1, 1),
        ITEM: np.arange(walk.items),
    }
    env.update({name: value_of(place, env) for name, place in walk.places.items()})
    at = np.broadcast_to(value_of(address_of(shape, index), env), (walk.threads, walk.rounds, walk.items))
    inside = np.ones(at.shape, bool)
    for expression, size in zip(index, shape.dimensions, strict=True):
        here = np.asarray(value_of(expression, env))
        inside &= (here >= 0) & (here < size)
    numbers, counts = np.unique(at[inside], return_counts=True)
    return Counter(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))


def test_there_is_a_module_of_every_kind() -> None:
    there = {kind for name in NAMES for kind in planned(name).kind.split("+")}
    assert there == {kind.name for kind in KINDS}, "each kind has a module in _ENTRIES of tests/plans/price_modules.py"


SIZES = {
    "attention": (40, 300),
    "tensor-attention": (200, 160),
    "block-scatter": (1024, 512),
    "register-transpose": (256, 512),
    "row-and-column-reduction": (4256, 160),
    "pairwise": (960, 1600),
    "sort": (3, 64),
    "sort across": (3, 40),
    "long-sort": (2, 64),
    "matmul": (96, 64),
    "tensor-matmul": (96, 64),
    "matrix-vector": (80, 512),
}


@pytest.mark.parametrize("name", NAMES)
def test_every_element_of_the_result_is_written_once(name: str) -> None:
    made = planned(name, *SIZES.get(name, (96, 160)))
    found: dict[Shape, Counter[int]] = {}
    for walk in walks(made):
        for shape, index, *_ in (*walk.written, *walk.changed):
            found.setdefault(shape, Counter()).update(places(walk, shape, index))
    for shape, counts in found.items():
        copies = len([out for out in made.region.outputs if out == shape])
        size = 160 if name == "dynamic-update-slice" else shape.element_count
        copies *= made.launch.grid if name == "block-scatter" else 1  # each block changes all elements
        assert counts == Counter(dict.fromkeys(range(size), copies))
    assert found or name == "scan"


@pytest.mark.parametrize(
    ("name", "rows", "columns"),
    [
        ("row-reduction", 37, 256),
        ("row-reduction", 300, 1024),
        ("row-reduction", 5, 40000),
        ("row-reduction in parts", 1024, 1024),
        ("row-and-column-reduction", 4256, 160),
        ("column-reduction", 1000, 96),
        ("column-reduction", 70000, 8),
        ("column-reduction", 300, 1001),
        ("matrix-vector", 1000, 256),
        ("matrix-vector across", 512, 1000),
        ("tiled-transpose", 100, 70),
        ("tiled-transpose of pairs", 64, 96),
    ],
)
def test_every_element_of_the_largest_operand_is_read_once(name: str, rows: int, columns: int) -> None:
    made = planned(name, rows, columns)
    walk = walks(made)[0]
    largest = max(made.region.parameters, key=lambda p: p.shape.element_count)
    (index,) = {r.index for r in traced(walk, set()).reads if r.operand is largest}
    assert places(walk, largest.shape, index) == Counter(range(largest.shape.element_count))


def test_pieces_of_a_concatenate_read_their_own_operand() -> None:
    made = planned("concatenate", 64, 128)
    read = [{r.operand for r in traced(walk, set()).reads} for walk in walks(made)]
    assert read == [{p} for p in made.region.parameters]


def test_a_kind_without_walks_of_its_own_shares_elements_out() -> None:
    assert {kind.name for kind in KINDS if kind.walks.__name__ == "by_element"} == {"gather"}
