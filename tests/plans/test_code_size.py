"""What is kept up of a kernel's code while it grows bounds what its region's code has."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_opt
from hlo_opt.analysis.graph.cluster import Cluster, cluster_of, merge_clusters
from hlo_opt.analysis.targets import target
from hlo_opt.diag import Reason
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.legality import Edge, has_plan
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Module
from hlo_opt.plans.code_size import CodeSize, surely_within_limits
from hlo_opt.plans.limits import DEEPEST, LARGEST, nesting, values_computed
from hlo_opt.plans.region import region_of
from hlo_opt.plans.sketch import as_fusion, sketch_of

H100 = target("h100_sxm")
SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"

STEPS = (
    "negate(v{0})",
    "add(v{0}, v{1})",
    "reverse(v{0}), dimensions={{0}}",
    "pad(v{0}, zero), padding=-1_1",
    "clamp(zero, v{0}, v{1})",
    "broadcast(e{0}), dimensions={{}}",
)


def module_of(steps: list[tuple[int, int, int]]) -> Module:
    """Operations on f32[8], each also folded to one element; the last is returned."""
    lines = ["  zero = f32[] constant(0)", "  v0 = f32[8] parameter(0)"]
    for number, (step, one, other) in enumerate([(0, 0, 0), *steps]):
        lines.append(f"  e{number} = f32[] reduce(v{number}, zero), dimensions={{0}}, to_apply=sum")
        lines.append(f"  v{number + 1} = f32[8] {STEPS[step].format(one % (number + 1), other % (number + 1))}")
    return hlo_opt.parse(
        f"HloModule m\n{SUM}ENTRY e {{\n" + "\n".join(lines) + f"\n  ROOT r = f32[8] abs(v{len(steps) + 1})\n}}\n"
    )


def check_bounds(module: Module, cluster: Cluster) -> None:
    size = cluster.following(CodeSize, CodeSize)
    region = region_of(module, as_fusion(cluster))
    assert size.depth >= nesting(region.computation)
    read = sum(size.times(node) for node in cluster.inputs.values())
    assert size.values + read >= values_computed(region)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 30), st.integers(0, 30)), max_size=12),
    st.randoms(use_true_random=False),
)
def test_bounds_of_a_grown_kernel_are_not_below_its_code(steps: list[tuple[int, int, int]], random: object) -> None:
    module = module_of(steps)
    engine = Engine(module, PassContext(FuseOptions(H100)))
    state = engine.state
    module.entry.index_users()
    while True:
        edges = [
            (producer, consumer)
            for consumer in module.entry.instructions
            for producer in dict.fromkeys(consumer.operands)
            if producer.opcode != "parameter"
        ]
        if not edges:
            return
        for producer, consumer in edges:
            above, below = state.cluster(producer), state.cluster(consumer)
            if surely_within_limits(above, below, producer):
                merged = merge_clusters(above, below, producer)
                check_bounds(module, merged)
                assert not isinstance(sketch_of(module, merged, H100), Reason)
        fusion = engine.fuse(*edges[random.randrange(len(edges))])  # type: ignore[attr-defined]
        check_bounds(module, state.cluster(fusion))


@pytest.mark.parametrize("count", [DEEPEST // 2, DEEPEST - 1, DEEPEST, DEEPEST + 1])
def test_a_chain_is_within_the_limits_up_to_the_limit(count: int) -> None:
    """Each pad nests, and the first is taken in last."""
    lines = [f"  v{n + 1} = f32[8] pad(v{n}, zero), padding=-1_1" for n in range(count)]
    module = hlo_opt.parse(
        "HloModule m\nENTRY e {\n  zero = f32[] constant(0)\n  v0 = f32[8] parameter(0)\n" + "\n".join(lines) + "\n}\n"
    )
    engine = Engine(module, PassContext(FuseOptions(H100)))
    module.entry.index_users()
    first, *above, last = [i for i in module.entry.instructions if i.opcode == "pad"]
    for producer in reversed(above):
        last = engine.fuse(producer, last)
    assert surely_within_limits(engine.state.cluster(first), engine.state.cluster(last), first) == (count <= DEEPEST)


def test_values_that_double_are_counted_up_to_the_limit_only() -> None:
    lines = [f"  r{k} = f32[8] reverse(v{k}), dimensions={{0}}\n  v{k + 1} = f32[8] add(v{k}, r{k})" for k in range(40)]
    text = "b {\n  v0 = f32[8] parameter(0)\n" + "\n".join(lines) + "\n  ROOT n = f32[8] negate(v40)\n}\n"
    module = hlo_opt.parse(
        f"HloModule m\n{text}ENTRY e {{\n  x = f32[8] parameter(0)\n  y = f32[8] negate(x)\n"
        "  ROOT f = f32[8] fusion(y), kind=kLoop, calls=b\n}\n"
    )
    _, negate, fusion = module.entry.instructions
    cluster = cluster_of(fusion)
    assert LARGEST < cluster.following(CodeSize, CodeSize).values <= 4 * LARGEST
    assert not surely_within_limits(cluster_of(negate), cluster, negate)


def test_kernels_within_the_limits_are_not_planned_to_see_that() -> None:
    """Pads beside each other: together they are more than may nest, but each nests once."""
    lines = ["  zero = f32[] constant(0)", "  v0 = f32[8] parameter(0)"]
    for n in range(DEEPEST):
        lines.append(f"  p{n} = f32[8] pad(v0, zero), padding={n % 8 - 8}_{8 - n % 8}")
        lines.append(f"  v{n + 1} = f32[8] add(v{n}, p{n})")
    body = "b {\n" + "\n".join(lines) + f"\n  ROOT r = f32[8] negate(v{DEEPEST})\n}}\n"
    module = hlo_opt.parse(
        f"HloModule m\n{body}ENTRY e {{\n  x = f32[8] parameter(0)\n  f = f32[8] fusion(x), kind=kLoop, calls=b\n"
        "  ROOT g = f32[8] fusion(f), kind=kLoop, calls=b\n}\n"
    )
    _, producer, consumer = module.entry.instructions
    edge = Edge(producer, consumer, FusionState(module, H100))
    with patch.object(Edge, "merged", property(lambda _: pytest.fail("planned"))):
        assert has_plan(edge) is None
    assert not isinstance(edge.merged, Reason)
