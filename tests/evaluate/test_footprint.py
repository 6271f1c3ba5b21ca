"""The bytes that are said to be alive are those that NumPy really takes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from hlo_opt import parse
from hlo_opt.evaluate import Interpreter, evaluate, module_inputs
from hlo_opt.evaluate.memory import Peak, peak_of
from hlo_opt.ir import Module

ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
N = 1 << 18
MB = 4 * N  # one array of N numbers
V = f"f32[{N}]{{0}}"
STATE = f"(s32[], {V}, {V})"
LOOP = f"""body {{
  s = {STATE} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = {V} get-tuple-element(s), index=1
  w = {V} get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = {V} add(v, w)
  ROOT t = {STATE} tuple(j, x, w)
}}
condition {{
  s = {STATE} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT l = pred[] compare(i, n), direction=LT
}}
"""
FUSED = (
    f"fused {{\n  a = {V} parameter(0)\n  b = {V} negate(a)\n  c = {V} multiply(b, a)\n  ROOT d = {V} add(c, a)\n}}\n"
)
BRANCHES = (
    f"left {{\n  a = {V} parameter(0)\n  b = {V} negate(a)\n  ROOT c = {V} add(b, a)\n}}\n"
    f"right {{\n  ROOT a = {V} parameter(0)\n}}\n"
)
BODIES = {
    "chain": f"a = {V} add(p, p)\n  b = {V} add(a, p)\n  c = {V} add(b, p)\n  ROOT r = f32[1]{{0}} slice(c), "
    f"slice={{[0:1]}}",
    "view keeps": f"a = {V} add(p, p)\n  s = f32[2]{{0}} slice(a), slice={{[0:2]}}\n  b = {V} add(p, p)\n"
    "  t = f32[2]{0} slice(b), slice={[0:2]}\n  ROOT r = f32[2]{0} add(s, t)",
    "copied reshape": f"a = f32[512,512]{{1,0}} reshape(p)\n  t = f32[512,512]{{1,0}} transpose(a), "
    f"dimensions={{1,0}}\n"
    f"  c = {V} reshape(t)\n  ROOT r = f32[2]{{0}} slice(c), slice={{[0:2]}}",
    "iota": f"i = f32[512,512]{{1,0}} iota(), iota_dimension=1\n  c = {V} reshape(i)\n  d = {V} add(c, p)\n"
    "  ROOT r = f32[2]{0} slice(d), slice={[0:2]}",
    "wide function": f"a = {V} tanh(p)\n  ROOT r = f32[1]{{0}} slice(a), slice={{[0:1]}}",
    "narrow": f"a = bf16[{N}]{{0}} convert(p)\n  b = bf16[{N}]{{0}} add(a, a)\n  ROOT r = bf16[1]{{0}} slice(b), "
    f"slice={{[0:1]}}",
    "fusion": f"ROOT f = {V} fusion(p), kind=kLoop, calls=fused",
    "loop": f"z = s32[] constant(0)\n  q = {V} negate(p)\n  t = {STATE} tuple(z, q, p)\n"
    f"  w = {STATE} while(t), condition=condition, body=body\n  ROOT r = {V} get-tuple-element(w), index=1",
    "branches": "one = f32[1]{0} slice(p), slice={[0:1]}\n  s = f32[] reshape(one)\n  z = f32[] constant(0)\n"
    f"  c = pred[] compare(s, s), direction=EQ\n  ROOT r = {V} conditional(c, p, p), "
    f"branch_computations={{left, right}}",
    "dot": "a = f32[512,512]{1,0} reshape(p)\n  ROOT d = f32[512,512]{1,0} dot(a, a), lhs_contracting_dims={0}, "
    "rhs_contracting_dims={1}",
    "gather": f"i = s32[{N},1]{{1,0}} iota(), iota_dimension=0\n  ROOT g = {V} gather(p, i), offset_dims={{}}, "
    "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}",
    "random": "k = u64[2]{0} constant({1,2})\n  ROOT b = (u64[2]{0}, u32[262144]{0}) rng-bit-generator(k), "
    "algorithm=rng_three_fry",
}


def module_of(body: str) -> Module:
    return parse(f"HloModule m\n{ADD}{LOOP}{FUSED}{BRANCHES}\nENTRY e {{\n  p = {V} parameter(0)\n  {body}\n}}\n")


def predicted(module: Module) -> Peak:
    return peak_of(module.entry, Interpreter().program)


def allocated(module: Module) -> int:
    """The most bytes that an evaluation takes besides its inputs, by Python's own count."""
    inputs = module_inputs(module)
    evaluate(module, inputs)  # what is loaded and kept once
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        evaluate(module, inputs)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", BODIES)
def test_the_prediction_is_near_what_is_allocated(name: str) -> None:
    module = module_of(BODIES[name])
    assert 0.8 < predicted(module).bytes / allocated(module) < 2.2, name


@pytest.mark.parametrize(
    ("name", "arrays", "at"),
    [
        ("chain", 2, "b"),  # the operand and the result
        ("view keeps", 2, "r"),  # a slice keeps all of what it is a slice of
        ("fusion", 2, "c"),  # a result counts once, and again as the copy that the caller gets
        ("loop", 3, "x"),  # the state before the loop, in it and the next one; what the loop hands on is nobody's copy
        ("branches", 2, "c"),
    ],
)
def test_lifetimes(name: str, arrays: int, at: str) -> None:
    found = predicted(module_of(BODIES[name]))
    assert found.bytes // MB == arrays and found.at is not None and found.at.name == at


@pytest.mark.parametrize(
    "body",
    [
        "s = f32[] constant(1)\n  b = f32[512,512]{1,0} broadcast(s), dimensions={}\n"
        f"  c = {V} reshape(b)\n  ROOT r = f32[2]{{0}} slice(c), slice={{[0:2]}}",
        "a = f32[512,512]{1,0} reshape(p)\n  z = f32[] constant(0)\n"
        "  ROOT r = f32[512]{0} reduce(a, z), dimensions={0}, to_apply=add",
    ],
)
def test_what_takes_nothing(body: str) -> None:
    module = module_of(body)
    assert predicted(module).bytes < MB // 50 and allocated(module) < MB // 10


def test_what_a_call_holds_counts_where_it_is_called() -> None:
    call = f"inner {{\n  a = {V} parameter(0)\n  b = {V} negate(a)\n  ROOT c = {V} add(b, a)\n}}\n"
    body = f"a = {V} add(p, p)\n  b = {V} call(p), to_apply=inner\n  ROOT r = {V} add(a, b)\n"
    module = parse(f"HloModule m\n{call}\nENTRY e {{\n  p = {V} parameter(0)\n  {body}}}\n")
    found = predicted(module)
    assert found.bytes == 3 * MB and found.at is not None and found.at.name == "c"


@pytest.mark.parametrize(
    "dump", ["softmax", "adam", "layer_norm_gradient", "attention", "mlp_train_step", "option_price"]
)
def test_real_programs(dump: str) -> None:
    path = Path(__file__).parents[2] / "testdata" / "dumps" / f"{dump}.hlo"
    module = parse(path.read_text(encoding="utf-8"), filename=path.name)
    assert 0.7 < predicted(module).bytes / allocated(module) < 1.6


def test_a_computation_that_is_called_from_two_depths() -> None:
    functions = (
        f"leaf {{\n  a = {V} parameter(0)\n  ROOT b = {V} negate(a)\n}}\n"
        f"middle {{\n  a = {V} parameter(0)\n  ROOT b = {V} call(a), to_apply=leaf\n}}\n"
    )
    body = f"a = {V} call(p), to_apply=leaf\n  ROOT b = {V} call(a), to_apply=middle\n"
    module = parse(f"HloModule m\n{functions}\nENTRY e {{\n  p = {V} parameter(0)\n  {body}}}\n")
    assert predicted(module).bytes == 2 * MB


def test_an_iota_without_elements_takes_nothing() -> None:
    module = parse("HloModule m\n\nENTRY e {\n  ROOT i = s32[1000000000000,0]{1,0} iota(), iota_dimension=0\n}\n")
    assert predicted(module).bytes == 0 and evaluate(module)[0].shape == (10**12, 0)
