"""Which products get tiles, which tiles, and along which dimension each operand is read."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.plans import Plan, matmul, plan, products, region_of
from hlo_opt.plans.matmul import Tile
from hlo_opt.plans.products import ProductSpace
from tests.small_modules import H100


def planned(lines: str) -> Plan:
    module = hlo_opt.parse(f"HloModule m\n\nf {{\n{lines}\n}}\n\n{ENTRY.format(*shapes(lines))}")
    found = plan(region_of(module, module.entry.root), H100)
    assert isinstance(found, Plan)
    return found


ENTRY = (
    "ENTRY e {{\n  p = {0} parameter(0)\n  q = {1} parameter(1)\n  ROOT f = {2} fusion(p, q), kind=kCustom, "
    "calls=f\n}}\n"
)


def shapes(lines: str) -> list[str]:
    found = [line.split(" = ", 1)[1] for line in lines.splitlines()]
    kept = [text for text in found if "parameter(" in text]
    root = next(line.split(" = ", 1)[1] for line in lines.splitlines() if "ROOT" in line)
    return [*(text.split(" parameter")[0] for text in kept), root[: root.index("}") + 1]]


def dot(m: int, n: int, k: int, *, a: str = "{1,0}", b: str = "{1,0}", out: str = "{1,0}", kind: str = "f32") -> Plan:
    return planned(
        f"  p = {kind}[{m},{k}]{a} parameter(0)\n  q = {kind}[{k},{n}]{b} parameter(1)\n"
        f"  ROOT d = {kind}[{m},{n}]{out} dot(p, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    )


def tile(made: Plan) -> Tile:
    return made.segments[0].part.tile


def space(made: Plan) -> ProductSpace:
    return made.segments[0].part.space


@pytest.mark.parametrize("size", [(16, 16, 16), (4096, 4096, 4), (4096, 3, 3), (0, 64, 4096)])
def test_small_products_stay_loops(size: tuple[int, int, int]) -> None:
    assert dot(*size).kind == "loop"


def test_launches() -> None:
    made = dot(4096, 4096, 4096)
    assert made.kind == "matmul"
    assert made.launch.block == products.BLOCK
    assert made.launch.grid == -(-4096 // tile(made).height) * -(-4096 // tile(made).width)
    assert made.launch.shared_bytes == sum(tile(made).lines) * tile(made).depth * 4
    assert made.segments[0].part.space.sizes == (1, 4096, 4096, 4096)


def test_few_elements_get_small_tiles_so_that_all_cores_work() -> None:
    large, small = tile(dot(4096, 4096, 512)), tile(dot(256, 256, 512))
    assert small.height * small.width < large.height * large.width


def test_sums_of_two_registers_get_fewer_elements() -> None:
    assert tile(dot(4096, 4096, 512, kind="f64")).rows < tile(dot(4096, 4096, 512)).rows or (
        tile(dot(4096, 4096, 512, kind="f64")).columns < tile(dot(4096, 4096, 512)).columns
    )


def test_columns_are_what_is_written_side_by_side() -> None:
    assert not space(dot(256, 512, 64)).turned
    assert space(dot(256, 512, 64, out="{0,1}")).turned


def test_the_side_that_fills_a_warp_is_columns() -> None:
    assert space(dot(4096, 10, 512)).turned
    assert not space(dot(10, 4096, 512, out="{0,1}")).turned


@pytest.mark.parametrize(("a", "b"), [("{1,0}", "{0,1}"), ("{0,1}", "{1,0}")])
def test_operands_are_read_along_their_memory(a: str, b: str) -> None:
    found = space(dot(256, 256, 256, a=a, b=b))
    assert [found.goes_along(side) for side in (0, 1)] == [a == "{1,0}", b == "{0,1}"]


def test_a_transposed_parameter_is_read_along_its_own_memory() -> None:
    made = planned(
        "  p = f32[256,128]{1,0} parameter(0)\n  q = f32[256,64]{1,0} parameter(1)\n"
        "  t = f32[128,256]{1,0} transpose(p), dimensions={1,0}\n  c = f32[128,256]{1,0} negate(t)\n"
        "  ROOT d = f32[128,64]{1,0} dot(c, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    assert made.kind == "matmul"
    assert not space(made).goes_along(0)


@pytest.mark.parametrize("depth", [1, 5, 16, 40, 77, 97, 150, 4096])
def test_depths_leave_no_rest_where_they_can(depth: int) -> None:
    found = matmul.depth_of(depth)
    assert 1 <= found <= 32
    assert depth % found == 0 or depth == 97


@pytest.mark.parametrize(
    ("rows", "depth", "vector"), [(8, 16, 4), (4, 16, 2), (2, 16, 1), (1, 8, 1), (16, 6, 2), (16, 9, 1)]
)
def test_threads_read_together_what_is_theirs_to_read(rows: int, depth: int, vector: int) -> None:
    """Eight lines of threads fill a tile of `rows` rows; the elements of an operand's row are neighbours."""
    found = space(dot(256, 256, 288))
    assert matmul.vector_of(found, Tile(32, rows, 1, depth), 0) == vector


def test_what_reads_the_product_elsewhere_gets_no_tiles() -> None:
    head = (
        "  p = f32[64,64]{1,0} parameter(0)\n  q = f32[64,64]{1,0} parameter(1)\n"
        "  d = f32[64,64]{1,0} dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    )
    turned = "  t = f32[64,64]{1,0} transpose(d), dimensions={1,0}\n  ROOT a = f32[64,64]{1,0} add(d, t)"
    cut = "  ROOT s = f32[32,64]{1,0} slice(d), slice={[0:32], [0:64]}"
    wide = "  ROOT b = f32[64,64,2]{2,1,0} broadcast(d), dimensions={0,1}"
    twice = "  ROOT e = f32[64,64]{1,0} dot(d, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    for rest in (turned, cut, wide, twice):
        assert planned(head + rest).kind != "matmul"
    assert planned(head + "  ROOT a = f32[64,64]{1,0} add(d, d)").kind == "matmul"


def test_an_operand_that_reads_nothing_is_made_where_it_is_used() -> None:
    made = planned(
        "  p = f32[256,256]{1,0} parameter(0)\n  q = f32[256,256]{1,0} parameter(1)\n  i = f32[256,256]{1,0} iota(), "
        "iota_dimension=1\n"
        "  ROOT d = f32[256,256]{1,0} dot(p, i), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    assert made.kind == "matmul" and [space(made).goes_along(side) for side in (0, 1)] == [True, False]
