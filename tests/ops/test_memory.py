"""Where elements lie in memory."""

from __future__ import annotations

import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hlo_opt.ir import ELEMENT_TYPES, Layout, Shape
from hlo_opt.ir.index_map import constant
from hlo_opt.ops.movement.memory import physical_index, position_in_memory


@settings(suppress_health_check=[HealthCheck.too_slow])  # a machine may be busy
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4).flatmap(
        lambda d: st.tuples(st.just(d), st.permutations(range(len(d))))
    )
)
def test_indices_and_positions_in_memory(case: tuple[list[int], list[int]]) -> None:
    dims, order = case
    shape = Shape(ELEMENT_TYPES["f32"], tuple(dims), Layout(tuple(order)))
    for position in range(math.prod(dims)):
        index = [e.low for e in physical_index(shape, constant(position))]
        assert sum(i * s for i, s in zip(index, shape.strides, strict=True)) == position
        assert position_in_memory(shape, tuple(map(constant, index))).low == position
