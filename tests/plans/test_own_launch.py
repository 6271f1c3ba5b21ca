"""The launch that the cost model assumes for our reduction and transpose kernels is the one that their plans have."""

from __future__ import annotations

import pytest

from hlo_opt.analysis.graph.cluster import cluster_of
from hlo_opt.analysis.own_launch import fold_dimensions, move_dimensions
from hlo_opt.analysis.targets import target
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.text import parse

H100 = target("h100_sxm")


def launches(body: str, *, moves: bool = False) -> tuple[tuple[int, int] | None, tuple[int, int], str]:
    """(assumed blocks and threads, planned ones, kind of plan) of a fusion with this body."""
    root = body.strip().splitlines()[-1].split(" = ")[1].split(" ")[0]
    parameters = [line.split(" = ")[1].split(" ")[0] for line in body.splitlines() if " parameter(" in line]
    given = "".join(f"  a{n} = {shape} parameter({n})\n" for n, shape in enumerate(parameters))
    module = parse(
        "HloModule m\nadd {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
        f"fused {{\n{body}}}\nENTRY e {{\n{given}"
        f"  ROOT f = {root} fusion({', '.join(f'a{n}' for n in range(len(parameters)))}), kind=kInput, calls=fused\n}}\n"
    )
    found = plan(region_of(module, module.entry.root), H100)
    assert isinstance(found, Plan)
    cluster = cluster_of(module.entry.root)
    assumed = move_dimensions(cluster, H100) if moves else fold_dimensions(cluster, H100)
    return assumed and (assumed.blocks, assumed.threads), (found.launch.grid, found.launch.block), found.kind


@pytest.mark.parametrize(
    "sizes", [(1, 4096, 16384), (1, 1_000_000, 32), (140, 64, 66), (1000, 300, 5), (2, 130, 33), (1, 64, 70)]
)
def test_columns(sizes: tuple[int, int, int]) -> None:
    a, r, c = sizes
    assumed, planned, kind = launches(
        f"""  p = f32[{a},{r},{c}]{{2,1,0}} parameter(0)
  z = f32[] constant(0)
  s = f32[{a},{c}]{{1,0}} reduce(p, z), dimensions={{1}}, to_apply=add
  ROOT n = f32[{a},{c}]{{1,0}} negate(s)
"""
    )
    assert (assumed, kind) == (planned, "column-reduction")


@pytest.mark.parametrize("sizes", [(100, 8), (33, 16), (5, 300), (7, 32), (3, 20_000), (1000, 70), (1, 4)])
def test_rows(sizes: tuple[int, int]) -> None:
    r, c = sizes
    assumed, planned, kind = launches(
        f"""  p = f32[{r},{c}]{{1,0}} parameter(0)
  z = f32[] constant(0)
  ROOT s = f32[{r}]{{0}} reduce(p, z), dimensions={{1}}, to_apply=add
"""
    )
    assert (assumed, kind) == (planned, "row-reduction")


@pytest.mark.parametrize("shapes", [("64,33", "33,64", "1,0"), ("7,40,50", "7,50,40", "0,2,1")])
def test_transposes(shapes: tuple[str, str, str]) -> None:
    given, made, order = shapes
    minor = ",".join(str(d) for d in reversed(range(given.count(",") + 1)))
    assumed, planned, kind = launches(
        f"""  p = f32[{given}]{{{minor}}} parameter(0)
  q = f32[{made}]{{{minor}}} parameter(1)
  t = f32[{made}]{{{minor}}} transpose(p), dimensions={{{order}}}
  ROOT s = f32[{made}]{{{minor}}} add(t, q)
""",
        moves=True,
    )
    assert (assumed, kind) == (planned, "tiled-transpose")


def test_what_follows_at_other_places_is_not_assumed_to_be_tiled() -> None:
    assumed, _, _ = launches(
        """  p = f32[64,33]{1,0} parameter(0)
  t = f32[33,64]{1,0} transpose(p), dimensions={1,0}
  ROOT s = f32[33,64]{1,0} reverse(t), dimensions={0}
""",
        moves=True,
    )
    assert assumed is None
