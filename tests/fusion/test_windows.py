"""A cumulative window keeps the kernel that takes each of its elements once."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.fusion.traits import LEFT
from hlo_opt.passes.table import preset as preset_passes
from scripts.launches import rows

TEXT = """HloModule m

f {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

ENTRY e {
  p = f32[64,64]{1,0} parameter(0)
  i = f32[] constant(0)
  LINES
}
"""
S, WINDOW = "f32[64,64]{1,0}", "window={size=1x64 pad=0_0x63_0}, to_apply=f"
SUM = f"s = {S} reduce-window(p, i), {WINDOW}"


def kinds(*lines: str, preset: str = "default", joining: bool = True) -> list[str]:
    passes = None if joining else preset_passes(preset).replace("kernel-joining,", "")
    text = TEXT.replace("LINES", "\n  ".join(lines))
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text), **({"passes": passes} if passes else {"preset": preset}))
    found = rows(fused, "h100_sxm")
    assert all(row.agrees for row in found)
    return sorted(row.kind for row in found)


@pytest.mark.parametrize("preset", ["default", "xla-2026", "xla-2023"])
@pytest.mark.parametrize(
    "line",
    [
        "ROOT r = f32[64]{0} reduce(s, i), dimensions={1}, to_apply=f",
        "ROOT r = f32[64]{0} reduce(s, i), dimensions={0}, to_apply=f",
        f"ROOT r = {S} transpose(s), dimensions={{1,0}}",
        f"ROOT r = {S} reverse(s), dimensions={{1}}",
        "ROOT r = f32[64,1]{1,0} slice(s), slice={[0:64], [63:64]}",
    ],
)
def test_what_reads_it_elsewhere_has_a_kernel_of_its_own(line: str, preset: str) -> None:
    found = kinds(SUM, line, preset=preset)
    assert len(found) == 2 and "cumulative" in found


@pytest.mark.parametrize("preset", ["xla-2026", "xla-2023"])
def test_a_window_of_it_has_a_kernel_of_its_own_but_with_ours(preset: str) -> None:
    line = f"ROOT r = {S} reduce-window(s, i), {WINDOW}"
    assert kinds(SUM, line) == ["cumulative"]  # folded in the same walk, a stage later
    assert kinds(SUM, line, preset=preset) == ["cumulative", "cumulative"]


def test_what_is_computed_beside_its_elements_is_fused() -> None:
    assert kinds(f"m = {S} multiply(p, p)", SUM.replace("(p,", "(m,"), f"ROOT r = {S} add(s, p)") == ["cumulative"]
    other = SUM.replace("s =", "t =").replace("63_0", "63_0").replace("(p,", "(p,")
    assert kinds(SUM, f"n = {S} negate(s)", other, f"ROOT r = ({S}, {S}) tuple(n, t)") == ["cumulative"]


def test_rows_that_it_reads_are_shared_before() -> None:
    found = kinds(
        "t = f32[64]{0} reduce(p, i), dimensions={1}, to_apply=f",
        f"b = {S} broadcast(t), dimensions={{0}}",
        f"d = {S} divide(p, b)",
        f"ROOT r = {S} reduce-window(d, i), {WINDOW}",
    )
    assert "cumulative" in found and "row-reduction" in found


def test_short_ones_are_fused_as_xla_does() -> None:
    def of(n: int) -> list[str]:
        line = f"ROOT r = {S} reverse(s), dimensions={{1}}"
        text = (
            (SUM + "\n  " + line)
            .replace("[64,64]", f"[64,{n}]")
            .replace("1x64", f"1x{n}")
            .replace("x63_0", f"x{n - 1}_0")
        )
        return kinds(
            *text.replace("p,", "q,").replace("s = ", f"q = f32[64,{n}]{{1,0}} parameter(1)\n  s = ", 1).split("\n  "),
            joining=False,
        )

    assert of(LEFT) == ["loop"] and of(LEFT + 1) == ["cumulative", "loop"]


SLIDING = f"s = {S} reduce-window(p, i), window={{size=1x33 pad=0_0x16_16}}, to_apply=f"


@pytest.mark.parametrize(
    "line",
    [
        "ROOT r = f32[2048,4096]{1,0} reverse(s), dimensions={1}",
        "ROOT r = f32[2048]{0} reduce(s, i), dimensions={1}, to_apply=f",
    ],
)
def test_a_sliding_window_keeps_its_kernel_but_not_where_the_rules_are_xlas(line: str) -> None:
    lines = [text.replace("64,64", "2048,4096") for text in (SLIDING, line)]
    q = "q = f32[2048,4096]{1,0} parameter(1)"
    lines = [q, lines[0].replace("(p,", "(q,"), lines[1]]
    assert "sliding-window" in kinds(*lines) and len(kinds(*lines)) == 2
    assert len(kinds(*lines, preset="xla-2026")) == 1
