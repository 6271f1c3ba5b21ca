"""Scatters into zeros that are added to an array: which become scatters into that array, and that the values stay."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.fusion.summary import kernels_of

PASSES = "scatter-accumulation,dce"
NUMBERS = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"


def text(*lines: str, kind: str = "f32", start: str = "0", reducer: str = "add") -> str:
    """A scatter `g` into an array of `start`, and further lines; `r` is the result."""
    body = "\n  ".join(lines) or f"ROOT r = {kind}[9,4] add(m, g)"
    return f"""HloModule m
fold {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT c = {kind}[] {reducer}(a, b)
}}
ENTRY e {{
  m = {kind}[9,4] parameter(0)
  rows = s32[7,1] parameter(1)
  updates = {kind}[7,4] parameter(2)
  start = {kind}[] constant({start})
  starts = {kind}[9,4] broadcast(start), dimensions={{}}
  g = {kind}[9,4] scatter(starts, rows, updates), {NUMBERS}, to_apply=fold
  {body}
}}"""


def opcodes(source: str) -> list[str]:
    made, _ = hlo_opt.fuse(hlo_opt.parse(source), passes=PASSES, simplify="never")
    hlo_opt.verify(made)
    return [i.opcode for i in made.entry.instructions if i.parameter_number is None]


CHAIN = f"""rows2 = s32[5,1] parameter(3)
  updates2 = f32[5,4] parameter(4)
  h = f32[9,4] scatter(g, rows2, updates2), {NUMBERS}, to_apply=fold
  ROOT r = f32[9,4] add(m, h)"""


@pytest.mark.parametrize("kind", ["f32", "s32", "u8", "f64"])
@pytest.mark.parametrize("last", ["add(m, g)", "add(g, m)"])
def test_the_updates_are_added_to_the_array(kind: str, last: str) -> None:
    source = text(f"ROOT r = {kind}[9,4] {last}", kind=kind)
    assert opcodes(source) == ["scatter"]
    module = hlo_opt.parse(source)
    inputs = module_inputs(module, 3)
    made, _ = hlo_opt.fuse(module, passes=PASSES, simplify="never")
    (want,), (got,) = hlo_opt.evaluate(module, inputs), hlo_opt.evaluate(made, inputs)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "source",
    [
        text(start="1"),
        text(reducer="maximum"),
        text(kind="bf16"),  # small updates would be lost beside large elements
        text("ROOT r = f32[9,4] subtract(m, g)"),
        text("ROOT r = f32[9,4] add(g, g)"),
        text("s = f32[9,4] add(m, g)", "ROOT r = (f32[9,4], f32[9,4]) tuple(s, g)"),  # read by itself, too
        text("k = f32[9,4] exponential(g)", CHAIN.replace("add(m, h)", "add(k, h)")),
    ],
)
def test_what_is_left(source: str) -> None:
    assert "broadcast" in opcodes(source)


def test_updates_of_a_chain_are_added_to_the_array() -> None:
    source = text(CHAIN)
    assert opcodes(source) == ["concatenate", "concatenate", "scatter"]
    module = hlo_opt.parse(source)
    inputs = module_inputs(module, 3)
    made, _ = hlo_opt.fuse(module, passes=PASSES, simplify="never")
    (want,), (got,) = hlo_opt.evaluate(module, inputs), hlo_opt.evaluate(made, inputs)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def chain(
    *reducers: str,
    kinds: str = "f32",
    rows: tuple[int, ...] = (7, 5, 3),
    more: str = "",
    last: str = "",
    dims: str = NUMBERS,
) -> str:
    """Scatters of which each goes into the result of the one before, with as many updates each as `rows` says."""
    folds = "".join(
        f"{name} {{\n  a = {kinds}[] parameter(0)\n  b = {kinds}[] parameter(1)\n  ROOT c = {kinds}[] {name}(a, b)\n}}\n"
        for name in sorted(set(reducers))
    )
    lines, into = [f"t0 = {kinds}[9,4] parameter(0)"], "t0"
    for k, (name, count) in enumerate(zip(reducers, rows, strict=True), start=1):
        lines.append(f"i{k} = s32[{count},1] parameter({2 * k - 1})")
        lines.append(f"up{k} = {kinds}[{count},4] parameter({2 * k})")
        lines.append(f"t{k} = {kinds}[9,4] scatter({into}, i{k}, up{k}), {dims}, to_apply={name}{more}")
        into = f"t{k}"
    lines.append(last or f"ROOT r = {kinds}[9,4] negate({into})")
    return f"HloModule m\n{folds}ENTRY e {{\n  " + "\n  ".join(lines) + "\n}\n"


@pytest.mark.parametrize(
    ("kind", "reducer"), [("f32", "add"), ("s32", "xor"), ("f64", "maximum"), ("bf16", "multiply")]
)
def test_a_chain_of_scatters_is_one(kind: str, reducer: str) -> None:
    source = chain(reducer, reducer, reducer, kinds=kind, more=", unique_indices=true")
    assert opcodes(source) == ["concatenate", "concatenate", "scatter", "negate"]
    module = hlo_opt.parse(source)
    made, _ = hlo_opt.fuse(module, passes=PASSES, simplify="never")
    assert "unique_indices=true" not in str(made)
    inputs = module_inputs(module, 3)
    (want,), (got,) = hlo_opt.evaluate(module, inputs), hlo_opt.evaluate(made, inputs)
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-6, atol=1e-6)


def test_what_a_chain_brings_is_one_kernel() -> None:
    """Beside that which copies the array, and that which reads the result."""
    fused, _ = hlo_opt.fuse(hlo_opt.parse(chain("add", "add", "add")))
    assert len(kernels_of(fused, target("h100_sxm"))) <= 3


@pytest.mark.parametrize(
    "source",
    [
        chain("add", "maximum", rows=(7, 5)),
        chain("add", "add", rows=(7, 5), last="ROOT r = (f32[9,4], f32[9,4]) tuple(t1, t2)"),  # read by itself, too
        chain("add", "add", rows=(7, 5), more=", indices_are_sorted=true"),
        chain(
            "add", "add", rows=(7, 500_000)
        ),  # a kernel that puts so many behind each other takes longer than a launch
    ],
    ids=["others", "read", "sorted", "many"],
)
def test_chains_that_stay(source: str) -> None:
    assert opcodes(source).count("scatter") == 2
