"""Edges priced by what was measured; and profiles of JAX and nsys joined with the module that ran."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.diag import UsageError
from hlo_opt.passes.run import report_on, run
from hlo_opt.report.measured.join import Joined
from hlo_opt.report.measured.prices import MeasuredPrices
from hlo_opt.report.sentences import EdgePrices, first_page
from tests.report.test_totals import TEXT

PROFILES = Path(__file__).resolve().parents[3] / "testdata" / "profiles"


@pytest.fixture(scope="module")
def report():
    return report_on(run(hlo_opt.parse((PROFILES / "mlp_train_step.hlo").read_text(encoding="utf-8")), "xla-2026"))


@pytest.mark.parametrize("form", ["xplane.pb", "nsys.csv"])
def test_at_least_95_of_100_kernels_join(report, form: str) -> None:
    prices = MeasuredPrices.read(report, str(PROFILES / f"mlp_train_step.{form}"))
    assert prices.joined.share >= 0.95 and prices.total > prices.after > 0
    lines = str(first_page(report, report.refused, most=10, prices=prices)).splitlines()
    assert any(line.startswith("measured: 27 of 27 kernels joined by name (100 %), ") for line in lines)
    assert any("refusals cost" in line and "% of the step: " in line for line in lines)
    told = prices.json()
    assert told["joined"] == told["kernels"] == 27 and told["dearest"]
    assert [d["us_saved"] for d in told["dearest"]] == sorted((d["us_saved"] for d in told["dearest"]), reverse=True)


def test_prices_are_scaled_by_what_was_measured() -> None:
    report = report_on(run(hlo_opt.parse(TEXT), passes="dce"))
    estimated = EdgePrices(report)
    times = {one.instruction: 10 * one.est_us for one in report.before.launched}
    prices = MeasuredPrices(report, Joined(times, [], {}, 1))
    edge = next(d for d in report.refused if d.cost is not None)
    assert prices.saved(edge) == pytest.approx(10 * (estimated.saved(edge) or 0.0))
    assert prices.after == pytest.approx(10 * report.after.est_us)
    assert MeasuredPrices(report, Joined({}, list(times), {}, 1)).saved(edge) is None


def test_what_does_not_join_is_counted_and_named() -> None:
    report = report_on(run(hlo_opt.parse(TEXT), passes="dce"))
    page = str(MeasuredPrices(report, Joined({"a": 3.0}, ["t", "d"], {"gemm": 5.0}, 1)).page())
    assert "  2 not in the profile: t, d\n" in page and "  1 not in the module: gemm (5 us)\n" in page


def test_a_profile_of_another_module_says_whose_it_is() -> None:
    report = report_on(run(hlo_opt.parse(TEXT)))
    with pytest.raises(
        UsageError, match=r"names none of the 4 kernels of m; the profile is of .*jit_train_step"
    ) as caught:
        MeasuredPrices.read(report, str(PROFILES / "mlp_train_step.xplane.pb"))
    assert caught.value.code == "HLO731" and "after_optimizations" in str(caught.value.hint)


def test_a_fresh_profile_of_jax_on_the_cpu_joins(tmp_path: Path) -> None:
    """In a process of its own: it sets the number of JAX's devices, which no test before it may have started."""
    pytest.importorskip("jax")
    command = [sys.executable, "-m", "scripts.profile_cpu", "layer_norm", str(tmp_path), "--times", "2"]
    done = subprocess.run(command, cwd=PROFILES.parents[1], capture_output=True, text=True, check=True)
    text, *profiles = map(Path, done.stdout.split())
    report = report_on(run(hlo_opt.parse(text.read_text(encoding="utf-8"))))
    for path in profiles:
        joined = MeasuredPrices.read(report, str(path)).joined
        assert joined.share >= 0.95 and joined.executions == 2
