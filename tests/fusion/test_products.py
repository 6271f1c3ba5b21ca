"""Kernels that hold a product and something else: what is sure to take longer is told before it is priced."""

from __future__ import annotations

import pytest
from small_modules import H100, module_of, named

from hlo_opt.diag import Reason
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.joining import Union, union_of
from hlo_opt.fusion.products import LONG, breaks_product, has_long_product, is_product_kernel
from hlo_opt.ir import Module
from hlo_opt.passes import kernel_joining
from hlo_opt.passes.kernel_joining import KernelJoining
from hlo_opt.passes.product_fusion import ProductFusion
from hlo_opt.plans.sketch import Sketch


def followed(terms: int, *lines: str, rows: int = 1024) -> Module:
    """A product `d` of that many terms, and further lines."""
    return module_of(
        f"x = f32[{rows},{terms}]{{1,0}} parameter(0)",
        f"w = f32[{terms},256]{{1,0}} parameter(1)",
        f"y = f32[{rows},256]{{1,0}} parameter(2)",
        "zero = f32[] constant(0)",
        f"d = f32[{rows},256]{{1,0}} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
        *lines,
    )


SUMS = "r = f32[1024]{0} reduce(d, zero), dimensions={1}, to_apply=sum"
AGAIN = "r = f32[1024,1024]{1,0} dot(d, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
RESIDUAL = "r = f32[1024,256]{1,0} add(d, y)"


def engine_of(module: Module) -> Engine:
    for computation in module.computations:
        computation.index_users()
    return Engine(module, PassContext(FuseOptions(H100)), "test")


@pytest.mark.parametrize("after", [SUMS, AGAIN], ids=["sums", "product"])
@pytest.mark.parametrize("terms", [LONG, 4 * LONG])
def test_a_long_product_and_a_fold_in_one_kernel_take_longer(after: str, terms: int):
    module = followed(terms, after)
    engine = engine_of(module)
    producer, consumer = named(module, "d"), named(module, "r")
    assert breaks_product(engine.edge(producer, consumer))
    union = union_of(engine, producer, consumer)
    assert isinstance(union, Reason) or union.cost.us_fused > 2 * union.cost.us_unfused


def test_a_short_product_and_an_epilogue_are_not_told_apart_without_a_price():
    assert not _breaks(followed(LONG - 1, SUMS))
    assert not _breaks(followed(LONG, RESIDUAL))
    assert not has_long_product(engine_of(followed(LONG, RESIDUAL)).state, named(followed(LONG, RESIDUAL), "y"))


def _breaks(module: Module) -> bool:
    return breaks_product(engine_of(module).edge(named(module, "d"), named(module, "r")))


def test_a_kernel_of_a_product_is_one_whose_threads_share_its_terms():
    for terms, after, expected in ((LONG, RESIDUAL, True), (16, SUMS, False)):
        module = followed(terms, after)
        engine = engine_of(module)
        sketch = engine.state.prices.sketch_joined(named(module, "d"), named(module, "r"))
        assert isinstance(sketch, Sketch)
        assert is_product_kernel(sketch) is expected, sketch.kind


def test_joining_plans_no_kernel_of_a_long_product_and_a_fold(monkeypatch: pytest.MonkeyPatch):
    def planned(*_: object, **__: object) -> Union | Reason:
        raise AssertionError("was planned")

    module = followed(LONG, SUMS)
    monkeypatch.setattr(kernel_joining, "union_of", planned)
    assert not KernelJoining().run(module, PassContext(FuseOptions(H100)))
    with pytest.raises(AssertionError, match="was planned"):
        KernelJoining().run(followed(LONG, RESIDUAL), PassContext(FuseOptions(H100)))


@pytest.mark.parametrize("rows", [64, 256, 1024, 8192])
@pytest.mark.parametrize("terms", [64, 256, 2048])
def test_what_a_product_alone_rules_out_its_price_refuses_too(rows: int, terms: int):
    module = followed(terms, f"r = f32[{rows},256]{{1,0}} add(d, y)", rows=rows)
    engine = engine_of(module)
    edge = engine.edge(named(module, "d"), named(module, "r"))
    policy = ProductFusion().policy(engine, module.entry)
    if policy.rules_out(edge):
        assert [reason.code for reason in policy.against(edge)] == ["FUS408"]
    assert not policy.rules_out(edge, frozenset({"FUS408"}))


def test_a_product_that_is_dearer_alone_is_ruled_out():
    module = followed(2048, "r = f32[8192,256]{1,0} add(d, y)", rows=8192)
    engine = engine_of(module)
    policy = ProductFusion().policy(engine, module.entry)
    assert policy.rules_out(engine.edge(named(module, "d"), named(module, "r")))
