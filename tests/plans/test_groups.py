"""Kernels by groups of outputs: the same plan and the same price as of the whole, each group planned once."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from hlo_opt.analysis.graph.cluster import Cluster, cluster_of, merge_clusters, side_by_side
from hlo_opt.ir import Module
from hlo_opt.plans import groups as groups_of
from hlo_opt.plans.groups import Placed, clusters_of_groups, group_of, sketch_of_groups
from hlo_opt.plans.sketch import Sketch, sketch_of
from tests.small_modules import H100, module_of, named, state_of

INPUTS = (
    "p = f32[4096,256]{1,0} parameter(0)",
    "q = f32[4096,256]{1,0} parameter(1)",
    "small = f32[1000]{0} parameter(2)",
    "rate = f32[] parameter(3)",
    "at = s32[100,1]{1,0} parameter(4)",
    "rows = f32[100,256]{1,0} parameter(5)",
    "z = f32[] constant(0)",
)
KERNELS = {
    "loop": "k{n} = f32[4096,256]{{1,0}} negate({x})",
    "row": "k{n} = f32[4096]{{0}} reduce({x}, z), dimensions={{1}}, to_apply=sum",
    "column": "k{n} = f32[256]{{0}} reduce({x}, z), dimensions={{0}}, to_apply=sum",
    "transpose": "k{n} = f32[256,4096]{{1,0}} transpose({x}), dimensions={{1,0}}",
    "fill": "k{n} = f32[64,8]{{1,0}} broadcast(rate), dimensions={{}}",
    "little": "k{n} = f32[1000]{{0}} sine(small)",
    "scatter": "k{n} = f32[4096,256]{{1,0}} scatter({x}, at, rows), update_window_dims={{1}}, inserted_window_dims={{0}}, "
    "scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=sum",
}


def side(*kernels: str, shared: bool = False) -> tuple[Module, Cluster]:
    """Kernels side by side, the first of `p`, all others of `q`, or all of the same."""
    lines = [KERNELS[kind].format(n=n, x="p" if shared or not n else "q") for n, kind in enumerate(kernels)]
    module = module_of(*INPUTS, *lines, "r = f32[] negate(rate)")
    return module, side_by_side(*(cluster_of(named(module, f"k{n}")) for n in range(len(kernels))))


def placed(module: Module, cluster: Cluster) -> list[Placed]:
    clusters = clusters_of_groups(cluster)
    assert clusters is not None
    operands, found = list(cluster.inputs), list[Placed]()
    for part in clusters:
        group = group_of(module, part, H100)
        assert group is not None
        found.append(Placed(group, tuple(operands.index(i) for i in part.inputs)))
    return found


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kinds", list(itertools.product(KERNELS, KERNELS)))
def test_the_plan_and_the_price_of_the_whole(kinds: tuple[str, str], shared: bool) -> None:
    module, cluster = side(*kinds, shared=shared)
    whole = sketch_of(module, cluster, H100)
    by_groups = sketch_of_groups(placed(module, cluster), list(cluster.inputs), H100)
    assert isinstance(whole, Sketch) and by_groups.summary == whole.summary
    assert by_groups.price == whole.price


def test_three_of_several_kinds() -> None:
    module, cluster = side("transpose", "row", "column")
    found, whole = placed(module, cluster), sketch_of(module, cluster, H100)
    by_groups = sketch_of_groups(found, list(cluster.inputs), H100)
    assert isinstance(whole, Sketch) and by_groups.summary == whole.summary and by_groups.price == whole.price
    assert len(found) == 2 and by_groups.launch.grid == whole.launch.grid


def test_groups_share_no_work() -> None:
    counts = {}
    for kinds, shared in ((("loop", "row"), False), (("loop", "row"), True), (("fill", "fill"), True)):
        clusters = clusters_of_groups(side(*kinds, shared=shared)[1])
        counts[kinds, shared] = clusters and len(clusters)
    assert counts == {(("loop", "row"), False): 2, (("loop", "row"), True): 1, (("fill", "fill"), True): 2}


def test_a_product_is_planned_as_a_whole() -> None:
    product = "k0 = f32[256,256]{1,0} dot(p, q), lhs_contracting_dims={0}, rhs_contracting_dims={0}"
    module = module_of(*INPUTS, product, "r = f32[] negate(rate)")
    cluster = cluster_of(named(module, "k0"))
    assert clusters_of_groups(cluster) is None and group_of(module, cluster, H100) is None


class Asked:
    """Counts the calls of a function of the module."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._call: Callable[..., object] = getattr(groups_of, name)
        monkeypatch.setattr(groups_of, name, self)

    def __call__(self, *rest: object) -> object:
        self.count += 1
        return self._call(*rest)


def test_a_group_is_arranged_and_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module, cluster = side("row", "loop")
    found = placed(module, cluster)
    arranged, measured = (Asked(name, monkeypatch) for name in ("arranged_group", "measure"))
    prices = []
    for order in (found, found[::-1], found):
        sketch = sketch_of_groups(order, list(cluster.inputs), H100)
        assert sketch is not None
        prices.append(sketch.price.us)
    assert prices[0] == prices[2] and arranged.count == measured.count == 2


def test_a_kernel_that_takes_one_more_is_not_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = (("row", "p"), ("row", "q"), ("little", ""))
    lines = [KERNELS[kind].format(n=n, x=x) for n, (kind, x) in enumerate(kernels)]
    module = module_of(*INPUTS, *lines, "r = f32[] negate(rate)")
    state = state_of(module)
    one, same, other = (named(module, f"k{n}") for n in range(3))
    arranged = Asked("arranged_group", monkeypatch)
    counts = []
    for first, second in ((one, same), (one, other), (same, other)):  # the first two are of one structure
        found = state.sketch_beside(first, second)
        assert isinstance(found, Sketch)
        assert found.kind  # arranged when it is asked
        counts.append(arranged.count)
    assert counts == [1, 2, 2]


def test_what_takes_an_element_of_a_tuple_is_no_group() -> None:
    """An element merged into its reader leaves the reader with a tuple as an operand, which has no price by groups."""
    pair = "(f32[4096,256]{1,0}, f32[4096]{0})"
    module = module_of(
        *INPUTS,
        f'pair = {pair} custom-call(p), custom_call_target="x"',
        "element = f32[4096,256]{1,0} get-tuple-element(pair), index=0",
        "row = f32[4096]{0} reduce(element, z), dimensions={1}, to_apply=sum",
    )
    element, row = named(module, "element"), named(module, "row")
    whole = merge_clusters(cluster_of(element), cluster_of(row), element)
    assert [i.shape.is_tuple for i in whole.inputs].count(True) == 1
    assert group_of(module, cluster_of(row), H100) is not None
    assert group_of(module, whole, H100) is None
