"""One price: what a kernel takes is the same whoever asks; and of library calls, never less than what is possible."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from small_modules import H100, module_of, named, state_of

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.analysis.targets.rates import products_per_cycle
from hlo_opt.diag import Reason
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.outline import join
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Attribute, Called, Instruction, edit
from hlo_opt.ops.shapes import flops_of
from hlo_opt.passes import report_on, run
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.calls import price_of_call
from hlo_opt.plans.price import FREE, Price, one_after_another, price
from hlo_opt.plans.sketch import Sketch
from hlo_opt.report import explain, summary
from hlo_opt.runtime.driver.emission import kernel_files, manifest_of
from hlo_opt.runtime.measure.bench import bench
from hlo_opt.runtime.measure.profile import profile
from hlo_opt.runtime.schedule import build_schedule

DUMPS = Path(__file__).resolve().parents[2] / "testdata" / "dumps"
BY_AGE = ("p100", "v100", "a100_sxm_80", "h100_sxm", "h200", "b200")
WIDE = "f32[4096]{0}"
CALLS = {
    "dot": "r = {m} dot(p, p), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
    "convolution": "r = {m} convolution(p, p), dim_labels=bf_io->bf",
    "cholesky": "r = {m} cholesky(p), lower=true",
    "triangular-solve": "r = {m} triangular-solve(p, p), left_side=true, lower=true, unit_diagonal=false, "
    "transpose_a=NO_TRANSPOSE",
    "fft": "r = {t}[{n},{n}]{{1,0}} fft(p), fft_type=FFT, fft_length={{{n}}}",
    "library": 'r = {m} custom-call(p), custom_call_target="outside"',
    "all-reduce": "r = {m} all-reduce(p), replica_groups={{}}, to_apply=sum",
}


def call(name: str, n: int = 1024, t: str = "f32") -> Instruction:
    t = "c64" if name == "fft" else t
    matrix = f"{t}[{n},{n}]{{1,0}}"
    return named(module_of(f"p = {matrix} parameter(0)", CALLS[name].format(m=matrix, t=t, n=n)), "r")


def test_two_launches_take_longer_than_one_and_a_launch():
    module = module_of(f"p = {WIDE} parameter(0)", f"a = {WIDE} negate(p)", f"r = {WIDE} exponential(a)")
    a, r = named(module, "a"), named(module, "r")
    prices = state_of(module).prices
    alone, launch = prices.of(a).us, state_of(module).target.kernel_launch_us
    assert prices.takes_longer(a, r, alone + launch / 2)
    assert len(prices._plans.known.prices) == 1  # the second kernel's price was not needed
    apart = prices.apart(a, r)
    assert prices.takes_longer(a, r, apart) and not prices.takes_longer(a, r, apart, strictly=True)
    assert not prices.takes_longer(a, r, apart * 1.001)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("n", [4, 1024, 16384])
@pytest.mark.parametrize("device", ["p100", "a6000", "h100_sxm", "b200"])
def test_no_call_is_below_the_limit(name: str, n: int, device: str) -> None:
    on, made = target(device), call(name, n)
    found = price_of_call(made, on)
    size = 4 * n * n * (2 if name == "fft" else 1)
    unit = "tf32" if name in ("dot", "convolution") else made.operands[0].shape.type.name
    rate = products_per_cycle(on, unit, tensor_cores=True)
    limit = max(
        2 * size / (on.memory_bandwidth / 1e6), flops_of(made) / (2e3 * rate * on.core_count * on.clock_rate_ghz)
    )
    assert found.us >= found.launch + max(limit, found.memory, found.instructions, found.way)
    assert found.launch >= on.kernel_launch_us
    assert (found.read >= size or name == "all-reduce") and found.written >= size and found.least == found.bytes


@pytest.mark.parametrize(
    ("left", "right", "result", "how", "us"),
    [
        ("f32[32,28,28,128]", "f32[3,3,128,128]", "f32[32,28,28,128]", "size=3x3 pad=1_1x1_1, b01f_01io->b01f", 32.5),
        ("f16[1,512,512,128]", "f16[3,3,128,128]", "f16[1,512,512,128]", "size=3x3 pad=1_1x1_1, b01f_01io->b01f", 125),
        ("f32[32,14,14,256]", "f32[32,14,14,256]", "f32[3,3,256,256]", "size=14x14 pad=1_1x1_1, f01b_i01o->01bf", 62.8),
        ("f32[2,12,12,16]", "f32[3,3,16,16]", "f32[2,10,10,16]", "size=3x3, b01f_01io->b01f", 9.6),
    ],
)
def test_convolutions_take_what_they_took_on_an_h200(left: str, right: str, result: str, how: str, us: float) -> None:
    window, labels = how.split(", ")
    row = "{3,2,1,0}"
    made = module_of(
        f"a = {left}{row} parameter(0)\n  b = {right}{row} parameter(1)",
        f"r = {result}{row} convolution(a, b), window={{{window}}}, dim_labels={labels}",
    )
    assert price_of_call(named(made, "r"), target("h200")).us == pytest.approx(us, rel=0.25)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("t", ["f32", "bf16", "f16"])
def test_a_newer_device_is_not_slower(name: str, t: str) -> None:
    if name in ("cholesky", "triangular-solve") and t != "f32":
        return
    prices = [price_of_call(call(name, 4096, t), target(device)).us for device in BY_AGE]
    assert prices == sorted(prices, reverse=True)


def test_products_run_on_the_unit_of_their_type() -> None:
    wide, narrow, bytes_ = (price_of_call(call("dot", 8192, t), H100) for t in ("f32", "bf16", "s8"))
    assert wide.instructions == pytest.approx(2 * narrow.instructions)  # 2048 products in a cycle, and 1024 as TF32
    exact = call("dot", 8192)
    exact.attributes["operand_precision"] = Attribute("{highest,highest}")
    assert price_of_call(exact, H100).instructions == pytest.approx(8 * wide.instructions)  # 128
    assert bytes_.instructions == pytest.approx(8 * wide.instructions)  # no library of ours has the type
    assert 1.1e6 / 830 < narrow.us < 1.1e6 / 700  # TFLOPS


def test_a_product_costs_as_many_calls_as_its_batch_needs() -> None:
    def scores(operand: str, batch: str, kind: str = "bf16") -> Price:
        dims = f"lhs_batch_dims={batch}, rhs_batch_dims={batch}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{3}}"
        text = (
            f"HloModule m\nENTRY e {{\n  p = {kind}[{operand}] parameter(0)\n"
            f"  ROOT r = {kind}[3,12,64,64] dot(p, p), {dims}\n}}"
        )
        return price_of_call(hlo_opt.parse(text).entry.root, H100)

    one, listed = scores("3,12,64,32", "{0,1}"), scores("3,64,12,32", "{0,2}")
    assert listed.launch == one.launch and one.us < listed.us < 1.5 * one.us  # a list of addresses is read first
    wide, apart = scores("3,12,64,32", "{0,1}", "f64"), scores("3,64,12,32", "{0,2}", "f64")
    assert apart.launch == pytest.approx(3 * wide.launch) and 2 * wide.us < apart.us < 3.1 * wide.us


def test_a_sort_goes_over_its_data_for_each_digit_of_its_keys() -> None:
    def sorted_(t: str) -> Price:
        return price_of_call(
            named(
                module_of(
                    f"p = {t}[4194304]{{0}} parameter(0)",
                    f"r = {t}[4194304]{{0}} sort(p), dimensions={{0}}, to_apply=sum",
                ),
                "r",
            ),
            H100,
        )

    wide, narrow = sorted_("u32"), sorted_("u8")
    assert wide.bytes == 9 * 4 * 4194304 and narrow.bytes == 3 * 4194304
    assert wide.launch == 5 * H100.kernel_launch_us and narrow.launch == 2 * H100.kernel_launch_us


def test_what_launches_nothing_is_free_and_what_follows_each_other_adds_up() -> None:
    module = module_of(f"p = {WIDE} parameter(0)", f"a = {WIDE} negate(p)", f"b = ({WIDE}, {WIDE}) tuple(p, a)")
    prices = state_of(module).prices
    assert prices.of(named(module, "p")) is prices.of(named(module, "b")) is FREE
    a = prices.of(named(module, "a"))
    twice = one_after_another([a, a])
    assert (twice.us, twice.read, twice.launch) == (2 * a.us, 2 * a.read, 2 * a.launch)
    assert one_after_another([]) == FREE and one_after_another([a]) is a


@pytest.mark.parametrize("kept", [False, True])
def test_a_candidate_costs_what_the_kernel_costs_that_it_becomes(kept: bool) -> None:
    module = module_of(
        f"p = {WIDE} parameter(0)",
        f"q = {WIDE} parameter(1)",
        f"a = {WIDE} add(p, q)",
        f"b = {WIDE} tanh(a)",
        *(
            [f'c = {WIDE} custom-call(a), custom_call_target="other"', f"r = ({WIDE}, {WIDE}) tuple(b, c)"]
            if kept
            else ()
        ),
    )
    engine = Engine(module, PassContext(FuseOptions(H100)))
    a, b = named(module, "a"), named(module, "b")
    wanted = engine.state.prices.with_producer(a, b) if kept else engine.state.prices.joined(a, b)
    fusion = join(engine, a, b) if kept else engine.fuse(a, b)
    engine.finish()
    made = plan(region_of(module, fusion), H100)
    assert isinstance(made, Plan)
    assert engine.state.prices.of(fusion) == price(made, H100) == FusionState(module, H100).prices.of(fusion)
    assert isinstance(wanted, Price) and (wanted.us, wanted.bytes) == pytest.approx(
        (price(made, H100).us, price(made, H100).bytes)
    )


@pytest.mark.parametrize(
    "name", ["adam_one", "attention", "layer_norm_gradient", "softmax", "cartpole_random", "sample_tokens"]
)
def test_everything_that_shows_a_price_shows_the_same(name: str) -> None:
    report = report_on(run(hlo_opt.parse((DUMPS / f"{name}.hlo").read_text(encoding="utf-8"))))
    module = report.outcome.module
    stats = summary.stats_json(report)
    wanted = {(p["instruction"], p["computation"]): (p["est_us"], p["bytes"]) for p in stats["prices"]}
    assert len(wanted) == stats["after"]["kernels"]
    assert explain.as_json(report, [])["prices"] == stats["prices"]
    assert summary.as_json(summary.stats(module, H100))["prices"] == stats["prices"]
    schedule = build_schedule(module)
    manifest = manifest_of(schedule, kernel_files(schedule.kernels))
    told = {r["instruction"]: r["est_us"] for r in (*manifest["launches"], *manifest["library"])}
    assert told and all(wanted[key][0] == us for key in wanted for us in [told.get(key[0], wanted[key][0])])
    names = {i.name: i for c in module.computations for i in c.instructions}
    prices = FusionState(module, H100).prices
    assert all(us == round(prices.of(names[one]).us, 3) for one, us in told.items() if one in names)
    for decision in report.refused:
        if decision.cost is not None:
            ends = [wanted[k] for k in wanted if k[0] in (decision.producer_kernel, decision.consumer_kernel)]
            assert decision.cost.us_unfused == pytest.approx(sum(us for us, _ in ends), abs=0.002)
            assert decision.cost.bytes_unfused == pytest.approx(sum(size for _, size in ends), abs=2)


def test_bench_and_profile_show_that_price_too() -> None:
    module, _ = hlo_opt.fuse(hlo_opt.parse((DUMPS / "adam_one.hlo").read_text(encoding="utf-8")))
    wanted = summary.as_json(summary.stats(module, H100))
    inputs = [np.zeros(p.shape.dimensions, p.shape.type.dtype) for p in module.entry.parameters]
    _, found = profile(module, "host", [inputs])
    rows = json.loads(json.dumps(found.trace()))["kernels"]
    assert sorted((r["instruction"], r["est_us"]) for r in rows) == sorted(
        (p["instruction"], p["est_us"]) for p in wanted["prices"]
    )
    (variant,) = bench({"fused": module}, "host", [inputs], rounds=1).as_json()["variants"]
    assert variant["est_us"] == pytest.approx(wanted["est_us"], abs=0.001)


def test_a_kernel_that_is_not_there_is_planned_by_its_structure() -> None:
    text = """HloModule m

inside {
  x = f32[4096] parameter(0)
  e = f32[4096] exponential(x)
  ROOT r = f32[4096] %s(e)
}

ENTRY e {
  x = f32[4096] parameter(0)
  ROOT f = f32[4096] fusion(x), kind=kLoop, calls=inside
}
"""
    module, unplanned = hlo_opt.parse(text % "negate"), hlo_opt.parse(text % "unheard-of")
    kernel = module.entry.root
    state = FusionState(module, H100)
    kernel_plan = plan(region_of(module, kernel), H100)
    assert isinstance(kernel_plan, Plan)
    aside = Instruction("aside", "fusion", kernel.shape, list(kernel.operands), dict(kernel.attributes))
    for each in (kernel, aside):
        sketch = state.prices.planned(each)
        assert isinstance(sketch, Sketch)
        assert sketch.price == price(kernel_plan, H100)
    assert len(state.known.sketches) == 1
    edit.set_attribute(aside, "calls", Called(unplanned.entry.root.called_by("calls")))
    assert isinstance(state.prices.planned(aside), Reason)
