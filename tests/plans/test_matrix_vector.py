"""Which products get strips, and how threads lie on them."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.plans import Plan, matrix_vector, plan, region_of
from hlo_opt.plans.matrix_vector import Strips
from tests.small_modules import H100


def dot(m: int, n: int, k: int, *, a: str = "{1,0}", b: str = "{1,0}", kind: str = "f32") -> Plan:
    module = hlo_opt.parse(
        f"HloModule m\n\nENTRY e {{\n  p = {kind}[{m},{k}]{a} parameter(0)\n  q = {kind}[{k},{n}]{b} parameter(1)\n"
        f"  ROOT d = {kind}[{m},{n}]{{1,0}} dot(p, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n}}\n"
    )
    found = plan(region_of(module, module.entry.root), H100)
    assert isinstance(found, Plan)
    return found


def strips(made: Plan) -> Strips:
    found = made.segments[0].part
    assert isinstance(found, Strips)
    return found


@pytest.mark.parametrize(
    ("size", "kind"),
    [
        ((1, 4096, 4096), "matrix-vector"),
        ((4096, 8, 128), "matrix-vector"),
        ((4096, 9, 128), "matrix-vector"),
        ((4096, 17, 128), "matmul"),
        ((1, 4096, 63), "loop"),
        ((1, 8, 64), "loop"),
        ((1, 1, 1 << 20), "matrix-vector"),
        ((2, 7, 1023), "loop"),
    ],
)
def test_few_rows_and_long_sums(size: tuple[int, int, int], kind: str) -> None:
    assert dot(*size).kind == kind


@pytest.mark.parametrize(
    ("size", "kind"),
    [((4, 4096, 4096), "matrix-vector"), ((8, 4096, 4096), "tensor-matmul"), ((16, 4096, 4096), "tensor-matmul")],
)
def test_prices_decide_between_strips_and_tiles(size: tuple[int, int, int], kind: str) -> None:
    assert dot(*size, kind="bf16").kind == kind


def test_threads_lie_along_the_memory_of_the_large_operand() -> None:
    for made, along in ((dot(1, 4096, 512), False), (dot(1, 4096, 512, b="{0,1}"), True), (dot(4096, 1, 512), True)):
        found = strips(made)
        assert found.along == along
        assert found.ways * found.lanes == made.launch.block
        assert made.launch.grid == -(-4096 // found.columns) * found.parts
        assert made.launch.shared_bytes == found.cells * 4 + 4 * (found.parts > 1)
        assert found.cells == found.columns * found.space.sizes[1] * (found.ways + 1)


@pytest.mark.parametrize(
    ("m", "n", "kind", "width"),
    [(1, 11008, "s8", 16), (8, 11008, "s8", 4), (1, 11008, "f32", 4), (1, 11007, "f32", 1), (1, 128, "s8", 1)],
)
def test_a_thread_has_as_many_columns_as_registers_hold_sums(m: int, n: int, kind: str, width: int) -> None:
    found = strips(dot(m, n, 4096, kind=kind))
    assert not found.along
    assert found.width == width
    assert m * found.width <= 32


def test_blocks_share_columns_until_the_device_is_full() -> None:
    assert strips(dot(1, 4096, 8192)).parts > 1
    assert strips(dot(1, 1 << 20, 64)).parts == 1
    for n in (256, 4096, 65536):
        assert dot(1, n, 8192).launch.grid >= H100.core_count


def test_blocks_that_share_columns_leave_no_thread_with_a_round_less() -> None:
    for columns, depth, blocks in ((5632, 2048, 352), (2048, 5632, 352), (4096, 4096, 512)):
        made = dot(1, columns, depth, kind="s8")
        found = strips(made)
        assert made.launch.grid == blocks
        assert depth % (found.ways * found.parts) == 0
        assert depth // (found.ways * found.parts) >= 4


def test_registers_hold_what_is_in_flight() -> None:
    for rows, kind, resident in ((1, "s8", 4), (1, "f32", 4), (4, "f32", 2)):
        found = strips(dot(rows, 4096, 4096, kind=kind))
        assert found.segment(256).resident == resident
        assert 1 <= found.together <= 4


@pytest.mark.parametrize(
    ("kind", "k", "vector"), [("f32", 512, 4), ("bf16", 512, 8), ("bf16", 130, 2), ("f32", 1025, 1)]
)
def test_vectors_divide_a_column_and_leave_all_threads_work(kind: str, k: int, vector: int) -> None:
    assert strips(dot(4096, 1, k, kind=kind)).vector == vector


def test_rows_are_the_smaller_side() -> None:
    assert strips(dot(4096, 4, 512)).space.turned
    assert not strips(dot(4, 4096, 512)).space.turned
    assert strips(dot(4096, 4, 512)).space.sizes[1] <= matrix_vector.MOST_ROWS


@pytest.mark.parametrize(
    ("kind", "b", "is_strips"), [("f64", "{1,0}", True), ("f64", "{0,1}", True), ("c128", "{1,0}", False)]
)
def test_sums_of_wide_types_fit_into_shared_memory(kind: str, b: str, is_strips: bool) -> None:
    made = dot(16, 4096, 4096, b=b, kind=kind)
    assert (made.kind == "matrix-vector") == is_strips
    assert made.launch.shared_bytes <= 48 * 1024
