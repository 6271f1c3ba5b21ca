"""XLA's own estimates for an H100, read from a decision log of its priority fusion: our model gives them within half a
nanosecond."""

import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.analysis.xla.performance import Priced
from hlo_opt.diag import UsageError

SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
RECORDS = {
    "elementwise into elementwise": (
        "p = f32[512,512]{1,0} parameter(0)\n q = f32[512,512]{1,0} parameter(1)\n z = f32[512,512]{1,0} parameter(2)\n"
        "producer = f32[512,512]{1,0} add(p, q)\n ROOT consumer = f32[512,512]{1,0} maximum(producer, z)",
        3.87825,
        2.25300,
    ),
    "broadcast of a scalar": (
        "zero = f32[] constant(0)\n z = f32[512,512]{1,0} parameter(0)\n"
        "producer = f32[512,512]{1,0} broadcast(zero), dimensions={}\n"
        "ROOT consumer = f32[512,512]{1,0} maximum(producer, z)",
        3.26725,
        1.64175,
    ),
    "broadcast of a row": (
        "p = f32[512]{0} parameter(0)\n z = f32[512,512]{1,0} parameter(1)\n"
        "producer = f32[512,512]{1,0} broadcast(p), dimensions={1}\n"
        "ROOT consumer = f32[512,512]{1,0} add(producer, z)",
        3.26825,
        1.64275,
    ),
    "reduction in a loop": (
        "p = f32[4,512,512]{2,1,0} parameter(0)\n zero = f32[] constant(0)\n z = f32[512,512]{1,0} parameter(1)\n"
        "producer = f32[512,512]{1,0} reduce(p, zero), dimensions={0}, to_apply=sum\n"
        "ROOT consumer = f32[512,512]{1,0} add(producer, z)",
        4.52325,
        2.89800,
    ),
    "elementwise into a row reduction": (
        "p = f32[512,512]{1,0} parameter(0)\n z = f32[512,512]{1,0} parameter(1)\n zero = f32[] constant(0)\n"
        "producer = f32[512,512]{1,0} maximum(p, z)\n"
        "ROOT consumer = f32[512]{0} reduce(producer, zero), dimensions={1}, to_apply=sum",
        3.25525,
        1.63050,
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_estimates_are_those_of_xla(name: str):
    body, us_unfused, us_fused = RECORDS[name]
    module = hlo_opt.parse(f"HloModule m\n\n{SUM}\nENTRY e {{\n {body}\n}}\n")
    found = hlo_opt.estimate(module, "producer", ["consumer"], target="h100_sxm", model="xla")
    assert found["us_unfused"] == pytest.approx(us_unfused, abs=0.00051)
    assert found["us_fused"] == pytest.approx(us_fused, abs=0.00051)
    assert found["bytes_saved"] > 0


def test_an_estimate_counts_bytes_and_operations():
    module = hlo_opt.parse(
        "HloModule m\n\nENTRY e {\n p = f32[1024]{0} parameter(0)\n ROOT t = f32[1024]{0} tanh(p)\n}\n"
    )
    found = Priced(module.entry.root, target("h100_sxm")).estimate
    assert (found.bytes_read, found.bytes_written, found.flops) == (4096, 4096, 467 * 1024)
    assert 0 < found.us < 1


def test_unknown_names_are_usage_errors():
    module = hlo_opt.parse("HloModule m\n\nENTRY e {\n p = f32[8]{0} parameter(0)\n ROOT tan = f32[8]{0} tan(p)\n}\n")
    with pytest.raises(UsageError, match="did you mean tan"):
        hlo_opt.estimate(module, "tann", ["tan"])
    with pytest.raises(UsageError, match="cost model"):
        hlo_opt.estimate(module, "p", ["tan"], model="xxx")
    with pytest.raises(UsageError, match="h100_sxm"):
        hlo_opt.estimate(module, "p", ["tan"], target="h100_sx")
    with pytest.raises(UsageError, match="does not use"):
        hlo_opt.estimate(module, "tan", ["p"])
