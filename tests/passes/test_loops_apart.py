"""Kernels that run all rounds of a loop, as loops of kernels where a launch costs next to nothing."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import target_of
from hlo_opt.ir import Module
from hlo_opt.passes.loops_apart import apart
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.schedule import build_schedule
from tests.loops import loop, power

NEAR = ["u = f32[16384] reverse(x1), dimensions={0}", "y = f32[16384] tanh(u)"]


def histogram(elements: int, updates: int) -> str:
    """Rounds that add numbers to elements of the state, which the lowest bits of a counter name."""
    lines = [f"i = s32[{updates}] iota(), iota_dimension=0", f"k = s32[] constant({elements - 1})"]
    lines += [f"m = s32[{updates}] broadcast(k), dimensions={{}}", f"a = s32[{updates}] and(i, m)"]
    lines += [f"p = s32[{updates},1] reshape(a)", "z = f32[] constant(0)", "o = f32[] constant(0.125)"]
    lines += [f"u = f32[{updates}] broadcast(o), dimensions={{}}", f"e = f32[{elements}] tanh(x1)"]
    lines += [
        f"y = f32[{elements}] scatter(e, p, u), update_window_dims={{}}, inserted_window_dims={{0}}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum"
    ]
    return loop([f"f32[{elements}]"], lines, ["y"])


def product(rows: int, columns: int) -> str:
    """Rounds that multiply a matrix from the left by another one."""
    lines = [f"d = f32[{rows},{columns}] dot(x2, x1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"]
    lines += [f"y = f32[{rows},{columns}] tanh(d)"]
    return loop([f"f32[{rows},{columns}]", f"f32[{rows},{rows}]"], lines, ["y", "x2"])


CASES = {
    "all blocks": (loop(["f32[16384]"], NEAR, ["y"]), "grid-loop"),
    "rounds that nobody counts": (loop(["f32[16384]"], NEAR, ["y"],
        test=["s = f32[1] slice(x1), slice={[0:1]}", "v = f32[] reshape(s)", "l = f32[] constant(0.5)",
            "c = pred[] compare(v, l), direction=GT"]), "grid-loop"),
    "a block with a large product": (product(32, 16), "block-loop"),
    "a block with a large scatter": (histogram(64, 300), "block-loop"),
    "a block with a narrow product": (product(64, 2), "block-loop"),
}  # fmt: skip


def fused(text: str) -> Module:
    return hlo_opt.fuse(hlo_opt.parse(text))[0]


def kinds(module: Module) -> set[str]:
    return {kernel.kind for kernel in build_schedule(module).kernels}


@pytest.mark.parametrize("name", CASES)
def test_the_loop_is_one_of_kernels_again(name: str) -> None:
    text, kind = CASES[name]
    module = fused(text)
    assert kinds(module) == {kind}
    made = apart(module, target_of(module))
    hlo_opt.verify(made)
    assert kind not in kinds(made) and kinds(module) == {kind}  # which is left as it was
    inputs = [
        np.random.default_rng(0).uniform(0.5, 1, s.dimensions).astype(np.float32)
        for s in (p.shape for p in module.entry.parameters)
    ]
    for got, want in zip(hlo_opt.evaluate(made, inputs), hlo_opt.evaluate(module, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("text", [power(32), power(128), product(16, 16), histogram(16, 300)])
def test_a_block_with_little_to_do_stays(text: str) -> None:
    module = fused(text)
    assert kinds(module) == {"block-loop"} and apart(module, target_of(module)) is module


def long_rounds(length: int) -> str:
    """A loop that all blocks of a device share because of what its rounds compute, with a state that a block could
    hold."""
    lines = [f"h{n} = f32[4096] tanh({f'h{n - 1}' if n else 'x1'})" for n in range(length)]
    lines += [f"u = f32[4096] reverse(h{length - 1}), dimensions={{0}}", "y = f32[4096] negate(u)"]
    return loop(["f32[4096]"], lines, ["y"])


@pytest.mark.parametrize(("length", "stays"), [(20, True), (200, False)])
def test_one_processor_takes_what_is_little_enough_for_it(length: int, stays: bool) -> None:
    module = fused(long_rounds(length))
    assert kinds(module) == {"grid-loop"}
    assert (apart(module, target_of(module)) is module) == stays


def test_two_loops_and_what_stands_around_them() -> None:
    lines = ["u = f32[16384] reverse(x1), dimensions={0}", "y = f32[16384] tanh(u)"]
    text = loop(["f32[16384]"], lines, ["y"]).replace("ROOT r = (f32[16384]) tuple(r1)", "\n".join([
        "again = (s32[], f32[16384]) tuple(z, r1)", "w2 = (s32[], f32[16384]) while(again), condition=condition, "
                                                    "body=body",
        "q = f32[16384] get-tuple-element(w2), index=1", "ROOT h = f32[16384] sqrt(q)"]))  # fmt: skip
    module = fused(text)
    made = apart(module, target_of(module))
    assert "grid-loop" in kinds(module) and "grid-loop" not in kinds(made)
    x = np.random.default_rng(1).uniform(0, 1, 16384).astype(np.float32)
    np.testing.assert_allclose(hlo_opt.evaluate(made, [x])[0], hlo_opt.evaluate(module, [x])[0], rtol=1e-6)


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
def test_the_plain_form_runs_the_kernel_that_is_printed() -> None:
    text, kind = CASES["all blocks"]
    module = fused(text)
    x = np.random.default_rng(2).uniform(0, 1, 16384).astype(np.float32)
    made = {form: hlo_opt.compile(module, "host", form=form) for form in ("lanes", "plain")}
    results = {form: executable(x) for form, executable in made.items()}
    np.testing.assert_allclose(results["lanes"][0], results["plain"][0], rtol=1e-5)
    assert [k["kind"] for k in made["plain"].report()["kernels"]] == [kind]
    assert made["plain"].report()["launches"] == 1 < made["lanes"].report()["launches"]
