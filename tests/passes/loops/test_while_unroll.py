"""Several rounds as one: by which factor, what is left over, which loops stay, and that the values stay."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.graph.loops import derived_trip_count
from hlo_opt.cli.group import run
from hlo_opt.diag import UsageError
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.fusion.summary import module_summary
from hlo_opt.passes.loops.while_unroll import UnrolledLoop
from tests.loops import COUPLED, loop
from tests.random_loops import random_loop
from tests.small_modules import H100

SINES = loop(["f32[64]", "f32[64]"], ["z = f32[64] sine(x1)", "y = f32[64] add(z, x2)"], ["y", "x2"], rounds=7)


def unrolled(text: str, factor: int | str) -> hlo_opt.Module:
    """The module after the pass, with the same values as before."""
    module = hlo_opt.parse(text)
    made, _ = hlo_opt.fuse(module, passes=f"while-unroll{{factor={factor}}},dce")
    hlo_opt.verify(made)
    given = [np.rint(a * 4).astype(a.dtype) for a in module_inputs(module, seed=3)]
    for got, want in zip(hlo_opt.evaluate(made, given), hlo_opt.evaluate(module, given), strict=True):
        np.testing.assert_array_equal(got, want)
    return made


def counts(module: hlo_opt.Module) -> list[int | None]:
    return [derived_trip_count(i) for c in module.computations for i in c.instructions if i.opcode == "while"]


@pytest.mark.parametrize(("factor", "rounds", "after"), [(2, 3, 1), (3, 2, 1), (5, 1, 2), (7, 1, 0)])
def test_what_is_left_over_stands_after_the_loop(factor: int, rounds: int, after: int) -> None:
    made = unrolled(SINES, factor)
    assert counts(made) == [rounds]
    (found,) = (i for i in made.entry.instructions if i.opcode == "while")
    assert [i.opcode for i in found.called_by("body").instructions].count("sine") == factor
    assert [i.opcode for i in made.entry.instructions].count("sine") == after


def test_fewer_rounds_than_that_stay() -> None:
    assert counts(unrolled(SINES, 8)) == [7]


@pytest.mark.parametrize("step", [3, -2])
def test_other_counters(step: int) -> None:
    text = SINES.replace("constant(1)", f"constant({step})").replace("constant(7)", f"constant({7 * step})")
    text = text if step > 0 else text.replace("direction=LT", "direction=GT")
    assert counts(hlo_opt.parse(text)) == [7]
    assert counts(unrolled(text, 3)) == [2]


def test_counters_that_are_read() -> None:
    lines = ["k = f32[] convert(x0)", "ks = f32[64] broadcast(k), dimensions={}", "y = f32[64] subtract(ks, x1)"]
    assert counts(unrolled(loop(["f32[64]"], lines, ["y"], rounds=5), 2)) == [2]


def test_the_number_of_rounds_is_read_afterwards() -> None:
    text = SINES.replace(
        "ROOT r = (f32[64]) tuple(r1)",
        "r0 = s32[] get-tuple-element(w), index=0\n  ROOT r = (f32[64], s32[]) tuple(r1, r0)",
    )
    assert "r0" in text
    assert counts(unrolled(text, 3)) == [2]


def test_a_loop_that_is_read_whole() -> None:
    text = SINES.replace("  w = (", "  ROOT w = (")
    text = text[: text.index("  r1 = ")] + "}\n"
    assert counts(unrolled(text, 3)) == [2]


LEFT = {
    "rounds that nobody counts": loop(
        ["f32[64]", "f32[]"],
        ["y = f32[64] sine(x1)", "o = f32[] constant(1.5)", "e = f32[] add(x2, o)"],
        ["y", "e"],
        test=["m = f32[] constant(9)", "c = pred[] compare(x2, m), direction=LT"],
        given=["g2 = f32[] constant(0)"],
    ),
    "rounds that wait": SINES.replace("sine(x1)", "sine(x1), control-predecessors={x2}"),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_stays(name: str) -> None:
    assert len(counts(unrolled(LEFT[name], 2))) == 1
    assert counts(unrolled(LEFT[name], 2)) == counts(hlo_opt.parse(LEFT[name]))


def test_a_loop_that_others_wait_for_has_no_rounds_to_join() -> None:
    text = SINES.replace("  r1 = ", "  later = f32[] constant(1), control-predecessors={w}\n  r1 = ")
    for module, is_counted in ((hlo_opt.parse(SINES), True), (hlo_opt.parse(text), False)):
        (own,) = (i for i in module.entry.instructions if i.opcode == "while")
        assert (UnrolledLoop.of(own) is not None) is is_counted


def test_side_effects_stay() -> None:
    text = SINES.replace("sine(x1)", 'custom-call(x1), custom_call_target="f", custom_call_has_side_effect=true')
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), passes="while-unroll{factor=2},dce")
    assert counts(made) == [7]


def test_auto_leaves_what_is_one_launch() -> None:
    assert counts(unrolled(SINES, "auto")) == [7]
    assert counts(unrolled(COUPLED["reduction"], "auto")) == counts(hlo_opt.parse(COUPLED["reduction"]))


def test_auto_saves_launches() -> None:
    """Of arrays that no device keeps on its chip."""
    module = hlo_opt.parse(COUPLED["shift"].replace("64", "60000000").replace("63", "59999999"))
    passes = "priority-fusion,cse,dce"
    before, _ = hlo_opt.fuse(module, passes=passes)
    after, _ = hlo_opt.fuse(module, passes=f"while-unroll,cse,dce,{passes}")
    one, other = module_summary(before, H100), module_summary(after, H100)
    assert other.launches < one.launches and other.est_us < 0.9 * one.est_us


@pytest.mark.parametrize("factor", ["1", "0", "-3", "often"])
def test_wrong_factors_are_told(factor: str) -> None:
    with pytest.raises(UsageError, match="factor must be auto or a number from 2 on"):
        hlo_opt.fuse(SINES, passes=f"while-unroll{{factor={factor}}}")


def test_factors_are_numbers_or_words() -> None:
    with pytest.raises(UsageError, match="factor must be a whole number or a word or a quoted text"):
        hlo_opt.fuse(SINES, passes="while-unroll{factor=1.5}")


@pytest.mark.parametrize(("value", "status"), [("3", 0), ('"auto"', 0), ("2.5", 2)])
def test_factors_in_a_file_of_options(
    value: str, status: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.hlo").write_text(SINES)
    (tmp_path / "o.toml").write_text(f"[options.while-unroll]\nfactor = {value}\n")
    arguments = ["--config", str(tmp_path / "o.toml"), "--passes", "while-unroll,dce"]
    assert run(["fuse", str(tmp_path / "m.hlo"), *arguments]) == status
    out = capfd.readouterr().out
    assert status or (out.count("sine(") == 4) == (value == "3")


@pytest.mark.parametrize("seed", range(30))
def test_random_loops_keep_their_values(seed: int) -> None:
    text = random_loop(Random(seed))
    unrolled(text, Random(seed + 1).choice([2, 3, 4]))
