import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate import evaluate_devices
from hlo_opt.evaluate import module_inputs as sample_inputs
from hlo_opt.ops.spread import picked
from hlo_opt.ops.values import HIGH, LOW, VALUE, Spread
from hlo_opt.runtime.check.compare import check
from hlo_opt.runtime.differences import compare_output
from hlo_opt.runtime.numpy import Reference
from hlo_opt.runtime.rounding.analysis import analyse, analyse_devices
from hlo_opt.runtime.rounding.verdict import enclosures

from .spreads import holds, parsed, run, spread

DUMPS = Path(__file__).parents[3] / "testdata" / "dumps"


def dump(name: str) -> hlo_opt.ir.Module:  # type: ignore[name-defined]
    return hlo_opt.parse((DUMPS / f"{name}.hlo").read_text(), filename=name)


@pytest.mark.parametrize(
    "name", ["softmax", "k_means", "lstm", "transformer_block_bf16", "embed_gradient", "rotate_phase", "cartpole_scan"]
)
def test_the_analysis_has_the_reference_s_values_within_its_bounds(name: str) -> None:
    module = dump(name)
    inputs = sample_inputs(module, 0)
    expected = Reference(module).run(inputs)
    analysis = analyse(module, inputs)
    for value, array in zip(analysis.outputs, expected, strict=True):
        assert np.array_equal(np.asarray(picked(value, VALUE)), array)
        if isinstance(value, Spread) and array.dtype.kind != "c":
            assert ((value.rows[LOW] <= array) & (array <= value.rows[HIGH])).all()


@pytest.mark.parametrize("name", ["embed_gradient", "softmax_bf16", "layer_norm_gradient", "window", "adam_one"])
def test_planted_outputs_are_not_accepted(name: str) -> None:
    module = dump(name)
    inputs = sample_inputs(module, 0)
    expected = Reference(module).run(inputs)
    for number, (array, bound) in enumerate(zip(expected, enclosures(analyse(module, inputs), expected), strict=True)):
        wide = array.astype(np.float64)
        for wrong in (0 * wide, -wide, 2 * wide, wide.reshape(-1)[::-1].reshape(wide.shape), 1.05 * wide, 1.01 * wide):
            planted = wrong.astype(array.dtype)
            if not np.array_equal(planted, array, equal_nan=True):
                assert not compare_output(number, array, planted, bound).ok
        assert compare_output(number, array, array, bound).ok


def test_runs_are_the_same_for_the_same_seed() -> None:
    module = dump("softmax")
    inputs = sample_inputs(module, 0)
    first, second = (analyse(module, inputs, 3).outputs[0] for _ in range(2))
    assert isinstance(first, Spread) and np.array_equal(first.rows, second.rows)


def test_cancellation_shows() -> None:
    a = np.full(100, 1.0, np.float32)
    body = (
        "  a = f32[100]{0} parameter(0)\n  b = f32[100]{0} exponential(a)\n  c = f32[100]{0} sine(a)\n  k = f32[] "
        "constant(1.87681)\n"
    )
    body += (
        "  s = f32[100]{0} broadcast(k), dimensions={}\n  d = f32[100]{0} subtract(b, c)\n  ROOT e = f32[100]{0} "
        "subtract(d, s)"
    )
    (made,) = run(parsed(body), [a])
    assert isinstance(made, Spread)
    assert (made.rows[HIGH] - made.rows[LOW] > 0.05 * np.abs(made.rows[VALUE])).all()


def test_where_digits_are_lost_is_found() -> None:
    module = parsed(
        "  a = f32[100]{0} parameter(0)\n  b = f32[100]{0} exponential(a)\n  c = f32[100]{0} exponential(b)\n"
        "  far = f32[] constant(1e6)\n  f = f32[100]{0} broadcast(far), dimensions={}\n  d = f32[100]{0} multiply(c, "
        "f)\n"
        "  lost = f32[100]{0} cosine(d)\n  ROOT e = f32[100]{0} negate(lost)"
    )
    made = analyse(module, [np.linspace(0, 1, 100, dtype=np.float32)]).outputs[0]
    assert isinstance(made, Spread) and made.loss is not None and made.loss.instruction.name == "lost"


def test_operations_without_a_rule_are_as_open_as_their_moved_values() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(2, 6, 6)).astype(np.float32)
    a = a @ a.swapaxes(1, 2) + 6 * np.eye(6, dtype=np.float32)
    body = "  a = f32[2,6,6]{2,1,0} parameter(0)\n  ROOT c = f32[2,6,6]{2,1,0} cholesky(a), lower=true"
    (made,) = run(parsed(body), [a])
    assert isinstance(made, Spread)
    wide = np.linalg.cholesky(a.astype(np.float64)).astype(np.float32)
    assert ((made.rows[LOW] <= wide) & (wide <= made.rows[HIGH])).all()
    assert np.median(made.rows[HIGH] - made.rows[LOW]) < 1e-2
    holds(
        "  a = f32[64]{0} parameter(0)\n  ROOT c = c64[33]{0} fft(a), fft_type=RFFT, fft_length={64}",
        np.ones(64, np.float32),
        tries=0,
    )


@pytest.mark.parametrize(
    ("body", "lost"),
    [
        (
            "  a = c64[2,4] parameter(0)\n  b = c64[4,2] parameter(1)\n"
            "  ROOT c = c64[2,2] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            np.inf,
        ),
        (
            "  a = c64[2,4] parameter(0)\n  b = c64[4,2] parameter(1)\n"
            "  ROOT c = c64[2,4] fft(a), fft_type=FFT, fft_length={4}",
            complex(1, np.nan),
        ),
    ],
)
def test_either_part_of_a_complex_number_that_is_not_finite_may_be_nan(body: str, lost: complex) -> None:
    """Parts are multiplied by parts, and an infinite part times 0 is NaN, or is left out."""
    a, b = np.ones((2, 4), np.complex64), np.array([[1, 2], [0.5, -1], [-2, 3], [1, 1]], np.complex64)
    a[1, 2] = lost
    (made,) = run(parsed(body), [a, b])
    assert isinstance(made, Spread)
    is_open = np.isinf(made.rows[LOW]) & np.isinf(made.rows[HIGH])
    assert is_open[1].all() and not is_open[0].any()
    kind = f"f32[2,{made.rows.shape[-1]}]"
    (made,) = run(parsed(body.replace("ROOT c", "c") + f"\n  ROOT r = {kind} abs(c)"), [a, b])
    assert isinstance(made, Spread) and (made.rows[LOW][1] != made.rows[HIGH][1]).all()
    assert np.isinf(made.rows[HIGH][1]).all() and np.isfinite(made.rows[HIGH][0]).all()


def test_dynamic_sizes_are_handed_on() -> None:
    body = (
        "  a = f32[8]{0} parameter(0)\n  n = s32[] parameter(1)\n  b = f32[<=8]{0} set-dimension-size(a, n), "
        "dimensions={0}\n  ROOT c = f32[<=8]{0} exponential(b)"
    )
    a = np.linspace(0, 1, 8).astype(np.float32)
    (made,) = run(parsed(body), [spread(np.random.default_rng(0), a, 1e-3), np.array(5, np.int32)])
    assert isinstance(made, Spread) and made.sizes == (5,)
    assert ((made.rows[LOW] <= made.rows[VALUE]) & (made.rows[VALUE] <= made.rows[HIGH])).all()


def test_a_report_is_plain_data() -> None:
    module = dump("softmax_bf16")
    result = check(module, module, backend="numpy")
    assert json.loads(json.dumps([asdict(o) for o in result.outputs]))[0]["weak"] is None


def test_devices_exchange_what_may_be_open() -> None:
    body = (
        "  a = f32[64]{0} parameter(0)\n  i = u32[] replica-id()\n  k = u32[] constant(0)\n  p = pred[] compare(i, k), "
        "direction=EQ\n"
    )
    body += (
        "  e = f32[64]{0} exponential(a)\n  q = pred[64]{0} broadcast(p), dimensions={}\n  c = f32[64]{0} select(q, e, "
        "a)\n"
    )
    body += "  s = f32[64]{0} all-reduce(c), replica_groups={{0,1,2,3}}, to_apply=add_f32\n"
    body += (
        "  t = f32[64]{0} all-reduce-start(s), replica_groups={{0,1},{2,3}}, to_apply=maximum_f32\n  ROOT m = "
        "f32[64]{0} all-reduce-done(t)"
    )
    module = hlo_opt.parse(str(parsed(body)).replace("HloModule m", "HloModule m, replica_count=4", 1))
    rng = np.random.default_rng(0)
    inputs = [[rng.normal(size=64).astype(np.float32)] for _ in range(4)]
    expected = evaluate_devices(module, inputs)
    made = analyse_devices(module, inputs)
    for analysis, (array,) in zip(made, expected, strict=True):
        (value,) = analysis.outputs
        assert isinstance(value, Spread) and np.allclose(value.rows[VALUE], array, rtol=1e-5)
        assert ((value.rows[LOW] < array) & (array < value.rows[HIGH])).all()


def test_a_custom_call_that_runs_operations_is_moved_as_a_whole() -> None:
    config = '{"cudnn_conv_backend_config":{"activation_mode":"kNone","conv_result_scale":1,"side_input_scale":0,"leakyrelu_alpha":0}}'
    module = hlo_opt.parse(
        f"""HloModule m

ENTRY e {{
  p = f32[2,6,6,3] parameter(0)
  k = f32[4,3,3,3] parameter(1)
  x = f32[2,6,6,3] exponential(p)
  c = (f32[2,6,6,4], u8[0]) custom-call(x, k), window={{size=3x3 pad=1_1x1_1}}, dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convForward", backend_config={config}
  ROOT y = f32[2,6,6,4] get-tuple-element(c), index=0
}}
"""
    )
    inputs = sample_inputs(module, 0)
    (value,) = analyse(module, inputs).outputs[:1]
    (expected,) = Reference(module).run(inputs)
    assert isinstance(value, Spread) and np.array_equal(value.rows[VALUE], expected)
    bound = enclosures(analyse(module, inputs), [expected])[0]
    assert not compare_output(0, expected, expected * np.float32(1.01), bound).ok
