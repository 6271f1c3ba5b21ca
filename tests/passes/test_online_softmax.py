"""The maximum of a long row and the sum of exponentials below it as one fold: where, and that the values stay,
infinities and NaN included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hlo_opt
from hlo_opt.passes.online_softmax import LONGEST_KEPT
from hlo_opt.plans import Plan, plan, region_of
from tests.small_modules import H100

ROWS = 132
COLUMNS = {"f32": 2 * LONGEST_KEPT + 17, "bf16": 16 * LONGEST_KEPT + 17}
"""Registers hold two numbers of bf16 each, and a row that L2 holds is quickly read again."""
FEW = 7
OLDER = replace(H100, compute_capability=80)
"""Without clusters of blocks, which read most rows once."""


def softmax(rows: int = ROWS, columns: int = 0, kind: str = "f32", less: str = "max") -> str:
    columns = columns or COLUMNS[kind]
    whole, row = f"{kind}[{rows},{columns}]", f"{kind}[{rows}]"
    return f"""HloModule m

max {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT c = {kind}[] maximum(a, b)
}}

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

body {{
  x = {whole} parameter(0)
  low = {kind}[] constant(-inf)
  zero = f32[] constant(0)
  m = {row} reduce(x, low), dimensions={{1}}, to_apply=max
  lows = {row} broadcast(low), dimensions={{}}
  max = {row} maximum(lows, m)
  half = {row} multiply(m, m)
  tall = {kind}[{rows},1] reshape({less})
  flat = {row} reshape(tall)
  maxs = {whole} broadcast(flat), dimensions={{0}}
  d = {whole} subtract(x, maxs)
  e = {whole} exponential(d)
  wide = f32[{rows},{columns}] convert(e)
  s = f32[{rows}] reduce(wide, zero), dimensions={{1}}, to_apply=sum
  narrow = {row} convert(s)
  ss = {whole} broadcast(narrow), dimensions={{0}}
  ROOT r = {whole} divide(e, ss)
}}

ENTRY e {{
  x = {whole} parameter(0)
  ROOT f = {whole} fusion(x), kind=kInput, calls=body
}}
"""


def folded(text: str) -> hlo_opt.Module:
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), passes="online-softmax,cse,dce", target=OLDER, simplify="never")
    hlo_opt.verify(made)
    return made


def levels(module: hlo_opt.Module) -> list[int]:
    made = plan(region_of(module, module.entry.root), OLDER)
    assert isinstance(made, Plan) and made.kind == "row-reduction"
    return [len(level) for level in made.segments[0].part.levels]


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_a_long_row_is_folded_once(kind: str) -> None:
    assert levels(hlo_opt.parse(softmax(kind=kind))) == [1, 1]
    assert levels(folded(softmax(kind=kind))) == [1]


@pytest.mark.parametrize(
    "text",
    [softmax(columns=LONGEST_KEPT), softmax(columns=LONGEST_KEPT + 17, kind="bf16"), softmax(less="half")],
    ids=["a row that registers hold", "one of pairs", "something else than the maximum"],
)
def test_others_stay(text: str) -> None:
    assert levels(folded(text)) == [1, 1]


@pytest.mark.parametrize(("kind", "tolerance"), [("f32", 1e-5), ("bf16", 0.02)])
def test_the_values_stay(kind: str, tolerance: float) -> None:
    """The kernel of many rows on its first ones: the price of few rows would not ask for it."""
    module, made = hlo_opt.parse(softmax(kind=kind)), folded(softmax(kind=kind))
    dtype, columns = module.entry.root.shape.type.dtype, COLUMNS[kind]
    x = np.zeros((ROWS, columns), dtype)
    x[:FEW] = (np.random.default_rng(3).standard_normal((FEW, columns)) * 4).astype(dtype)
    x[1, :9000] = -np.inf  # whole threads that have seen nothing yet
    x[2] = -np.inf
    x[3, 5] = np.inf
    x[4, 40] = np.nan
    x[5, -1] = 60
    x[6] = np.linspace(-90, 90, columns).astype(dtype)
    (want,) = hlo_opt.evaluate(hlo_opt.parse(softmax(FEW, kind=kind)), [x[:FEW]])
    (got,) = hlo_opt.compile(made, backend="host")(x)
    want, got = want.astype(np.float64), got[:FEW].astype(np.float64)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    assert np.isnan(want[2:5]).all() and not np.isnan(want[[0, 1, 5, 6]]).any()
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=1e-30)


def test_numpy_folds_it_too() -> None:
    made = folded(softmax())
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS["f32"])).astype(np.float32)
    (want,), (got,) = hlo_opt.evaluate(hlo_opt.parse(softmax()), [x]), hlo_opt.evaluate(made, [x])
    np.testing.assert_allclose(got, want, rtol=1e-4)


def columns(rows: int, width: int) -> str:
    """A softmax of columns, and their maxima."""
    text = softmax(rows, width).split("ENTRY")[0].split("body")[0]
    return f"""{text}ENTRY e {{
  x = f32[{rows},{width}] parameter(0)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[{width}] reduce(x, low), dimensions={{0}}, to_apply=max
  ms = f32[{rows},{width}] broadcast(m), dimensions={{1}}
  d = f32[{rows},{width}] subtract(x, ms)
  e = f32[{rows},{width}] exponential(d)
  s = f32[{width}] reduce(e, zero), dimensions={{0}}, to_apply=sum
  ss = f32[{rows},{width}] broadcast(s), dimensions={{1}}
  r = f32[{rows},{width}] divide(e, ss)
  ROOT t = (f32[{rows},{width}], f32[{width}]) tuple(r, m)
}}
"""


def test_long_columns_are_folded_once_before_there_are_kernels() -> None:
    small = replace(H100, l2_cache_size=1 << 16)
    module = hlo_opt.parse(columns(600, 64))
    made, _ = hlo_opt.fuse(module, passes="online-softmax{columns=true},cse,dce", target=small, simplify="never")
    hlo_opt.verify(made)
    (fold,) = [i for i in made.entry.instructions if i.opcode == "reduce"]
    assert len(fold.operands) == 4
    x = np.random.default_rng(3).normal(size=(600, 64)).astype(np.float32) * 20
    x[5, 0], x[:, 1], x[7, 2] = -np.inf, -np.inf, np.nan
    for got in (hlo_opt.evaluate(made, [x]), hlo_opt.compile(made, backend="host")(x)):
        for one, want in zip(got, hlo_opt.evaluate(module, [x]), strict=True):
            np.testing.assert_allclose(one, want, rtol=1e-5, atol=1e-7)


def test_short_columns_stay() -> None:
    module = hlo_opt.parse(columns(600, 64))
    made, _ = hlo_opt.fuse(module, passes="online-softmax{columns=true}", target=H100, simplify="never")
    assert [len(i.operands) for i in made.entry.instructions if i.opcode == "reduce"] == [2, 2]


def log_sum_exp(rows: int, width: int, asked: str = "is-finite(m)", other: str = "0") -> str:
    """As `jax.nn.logsumexp` prints it: zero is subtracted where the maximum is not finite."""
    text = columns(rows, width).split("ENTRY")[0]
    return f"""{text}ENTRY e {{
  x = f32[{rows},{width}] parameter(0)
  low = f32[] constant(-inf)
  other = f32[] constant({other})
  zero = f32[] constant(0)
  m = f32[{width}] reduce(x, low), dimensions={{0}}, to_apply=max
  others = f32[{width}] broadcast(other), dimensions={{}}
  finite = pred[{width}] {asked}
  guarded = f32[{width}] select(finite, m, others)
  ms = f32[{rows},{width}] broadcast(guarded), dimensions={{1}}
  d = f32[{rows},{width}] subtract(x, ms)
  e = f32[{rows},{width}] exponential(d)
  s = f32[{width}] reduce(e, zero), dimensions={{0}}, to_apply=sum
  l = f32[{width}] log(s)
  ROOT r = f32[{width}] add(l, guarded)
}}
"""


SMALL = replace(H100, l2_cache_size=1 << 16)


def online(text: str) -> hlo_opt.Module:
    passes = "online-softmax{columns=true},cse,dce"
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), passes=passes, target=SMALL, simplify="never")
    hlo_opt.verify(made)
    return made


def folds_of(module: hlo_opt.Module) -> list[int]:
    return [len(i.operands) for i in module.entry.instructions if i.opcode == "reduce"]


def test_a_sum_below_a_guarded_maximum() -> None:
    text = log_sum_exp(600, 64)
    made = online(text)
    assert folds_of(made) == [4]
    x = np.random.default_rng(3).normal(size=(600, 64)).astype(np.float32) * 20
    x[:, 1], x[5, 2], x[7, 3], x[9, 4], x[9, 5] = -np.inf, np.inf, np.nan, -np.inf, np.inf
    x[10, 5] = np.nan
    (want,) = hlo_opt.evaluate(hlo_opt.parse(text), [x])
    assert np.isneginf(want[1]) and np.isposinf(want[2]) and np.isnan(want[[3, 5]]).all()
    for (got,) in (hlo_opt.evaluate(made, [x]), hlo_opt.compile(made, backend="host")(x)):
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize(
    "text", [log_sum_exp(600, 64, other="1"), log_sum_exp(600, 64, "compare(m, others), direction=LT")]
)
def test_other_guards_stay(text: str) -> None:
    assert folds_of(online(text)) == [2, 2]


def test_whole_numbers_of_exponentials_stay() -> None:
    """The exponentials that are 1: an integer in between makes 0 of all others."""
    text = log_sum_exp(600, 64)
    counted = text.replace("= f32[64] reduce(e,", "= f32[64] reduce(f,").replace(
        "  s = ", "  c = s32[600,64] convert(e)\n  f = f32[600,64] convert(c)\n  s = "
    )
    narrowed = counted.replace("s32[", "bf16[")
    assert folds_of(online(counted)) == [2, 2]
    assert folds_of(online(narrowed)) == [4]


def test_columns_of_a_block_that_the_cache_holds() -> None:
    """One fold where blocks can share it, and two where the exponentials are written: these are read again anyway."""
    rows = 1 << 9
    assert folds_of(online(columns(rows, 16))) == [2, 2]
    assert folds_of(online(log_sum_exp(rows, 16))) == [2, 2]
    batched = log_sum_exp(rows, 16)
    for old, new in (("[512,16]", "[8,512,16]"), ("[16]", "[8,16]"), ("dimensions={0}", "dimensions={1}")):
        batched = batched.replace(old, new)
    batched = batched.replace("broadcast(guarded), dimensions={1}", "broadcast(guarded), dimensions={0,2}")
    assert folds_of(online(batched)) == [4]
    written = batched.replace("ROOT r", "r").replace(
        "guarded)\n}", "guarded)\n  ROOT t = (f32[8,16], f32[8,512,16]) tuple(r, e)\n}"
    )
    assert folds_of(online(written)) == [2, 2]


def turned(move: str, *, order: str = "1,0", rank: str = "") -> str:
    """A softmax of the rows of a transpose, whose maxima are taken before it."""
    wide = f"f32[600,{rank}64]"
    kept = f"f32[{rank}64]".replace(",]", "]")
    tall = "f32[64,600]" if not rank else f"f32[{rank}64,600]"
    text = columns(600, 64).split("ENTRY")[0]
    spread, last = ("0", "1") if not rank else ("0,1", "2")
    return f"""{text}ENTRY e {{
  x = {wide} parameter(0)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = {kept} reduce(x, low), dimensions={{0}}, to_apply=max
  t = {move.format(tall=tall, order=order)}
  ms = {tall} broadcast(m), dimensions={{{spread}}}
  d = {tall} subtract(t, ms)
  e = {tall} exponential(d)
  s = {kept} reduce(e, zero), dimensions={{{last}}}, to_apply=sum
  ss = {tall} broadcast(s), dimensions={{{spread}}}
  ROOT r = {tall} divide(e, ss)
}}
"""


TRANSPOSE = "{tall} transpose(x), dimensions={{{order}}}"


@pytest.mark.parametrize(
    "text",
    [turned(TRANSPOSE), turned("f32[64,600]{{0,1}} bitcast(x)"), turned(TRANSPOSE, order="1,2,0", rank="2,")],
)
def test_sums_of_a_transpose_below_the_maxima_of_what_is_transposed(text: str) -> None:
    made = online(text)
    assert folds_of(made) == [4]
    x = np.random.default_rng(3).normal(size=made.entry.parameters[0].shape.dimensions).astype(np.float32) * 20
    want = hlo_opt.evaluate(hlo_opt.parse(text), [x])
    np.testing.assert_allclose(hlo_opt.evaluate(made, [x]), want, rtol=1e-5, atol=1e-7)


def test_maxima_of_other_elements_stay() -> None:
    """The transpose mixes kept dimensions of equal size, so that a maximum is not that of the row it is subtracted
    from."""
    text = turned(TRANSPOSE, order="2,1,0", rank="64,")
    assert folds_of(online(text)) == [2, 2]
    assert folds_of(online(turned("f32[64,600] bitcast(x)"))) == [2, 2]
