"""The launch that a kernel is priced with is the one that it is planned, emitted and launched with: on each device, for
each kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.analysis.targets import target as find
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import Module
from hlo_opt.plans.kinds import KINDS
from scripts.launches import TARGETS, rows

DATA = Path(__file__).resolve().parents[2] / "testdata"
LONG = 30_000
"""Bytes of a text."""
FILES = sorted((DATA / "dumps").glob("*.hlo")) + sorted((DATA / "kernels").glob("*.hlo"))
SOME = [f for n, f in enumerate(FILES) if f.parent.name == "kernels" or n % 3 == 0]
"""Each kind, and some of the dumps; `python -m scripts.launches testdata/dumps` takes all of them."""


def fused(file: Path, target: str) -> Module:
    module = hlo_opt.parse(file.read_text(encoding="utf-8"), filename=str(file))
    return hlo_opt.fuse(module, target=target)[0]


@pytest.mark.sweep
@pytest.mark.parametrize("file", SOME, ids=lambda f: f.stem)
def test_kernels_are_launched_as_they_are_priced(file: Path) -> None:
    """Long modules, each for one of the devices; short ones for all."""
    is_long = file.stat().st_size > LONG
    for target in [TARGETS[FILES.index(file) % len(TARGETS)]] if is_long else TARGETS:
        assert [row for row in rows(fused(file, target), target) if not row.agrees] == []


def test_every_kind_is_among_them() -> None:
    """The modules for kernels hold each kind, some only in the fusions that they come with."""
    kinds = set()
    for file in FILES:
        if file.parent.name == "kernels":
            for module in (fused(file, "h100_sxm"), hlo_opt.parse(file.read_text(encoding="utf-8"))):
                kinds |= {kind for row in rows(module, "h100_sxm") for kind in row.kind.split("+")}
    assert kinds == {kind.name for kind in KINDS}


def test_a_row_that_disagrees_is_seen() -> None:
    """A launch that another plan gives, under the price of the first."""
    file = DATA / "kernels" / "row_reduction_1.hlo"
    row = rows(fused(file, TARGETS[0]), TARGETS[0])[0]
    assert row.agrees
    blocks, threads, shared = row.plan
    assert not replace(row, price=(blocks + 1, threads, shared)).agrees and not replace(row, bytes=(1, 2)).agrees


def test_a_kernel_of_no_elements_is_not_launched_and_has_a_price() -> None:
    text = (
        "HloModule m\n\nENTRY e {\n  p = f32[4,0]{1,0} parameter(0)\n  z = f32[4]{0} parameter(1)\n  b = f32[4,0]{1,0} "
        "broadcast(z), dimensions={0}\n  ROOT a = f32[4,0]{1,0} add(p, b)\n}\n"
    )
    module, _ = hlo_opt.fuse(hlo_opt.parse(text))
    assert rows(module, "h100_sxm") == []
    assert module_summary(module, find("h100_sxm")).est_us < 10
