"""`--dynamic`: what `fuse` and `check` say and write, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hlo_opt.cli.group import run

MODULE = """HloModule m
ENTRY e {
  p = f32[8,16]{1,0} parameter(0)
  q = f32[8,16]{1,0} parameter(1)
  a = f32[8,16]{1,0} add(p, q)
  ROOT n = f32[8,16]{1,0} tanh(a)
}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "m.hlo").write_text(MODULE)
    return str(tmp_path / "m.hlo")


def test_check_tries_five_sizes(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", file, "--dynamic", "p0:0=1..40", "--backend", "host"]) == 0
    out = capsys.readouterr().out
    assert "sizes 1 to 40 of p0:0, p1:0" in out
    assert out.count("agrees on host") == 5 and "check at size 39: agrees" in out


def test_fuse_prints_the_module_at_the_size_of_its_price(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fuse", file, "--dynamic", "p0:0=1..40@24"]) == 0
    captured = capsys.readouterr()
    assert "f32[24,16]{1,0} fusion(%p, %q)" in captured.out and "dynamic: sizes 1 to 40" in captured.err


def test_fuse_writes_the_family(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fuse", file, "--dynamic", "p0:0", "--emit", str(tmp_path / "out"), "-o", str(tmp_path / "f.hlo")]) == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["kernels", "manifest.json"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fuse", "--dynamic", "p7:0"], "the entry has 2 parameters"),
        (["check", "--dynamic", "p0:0", "--inputs", "x.npz"], "draws inputs of several sizes"),
        (["fuse", "--dynamic", "p0:0", "--split-input-file"], "for one module"),
    ],
)
def test_what_is_refused(arguments: list[str], message: str, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([arguments[0], file, *arguments[1:]]) == 2
    assert message in capsys.readouterr().err


def test_like_is_a_dump_that_must_agree(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "five.hlo").write_text(MODULE.replace("[8,16]", "[5,16]"))
    (tmp_path / "other.hlo").write_text(MODULE.replace("[8,16]", "[5,16]").replace("tanh", "sine"))
    assert run(["stats", file, "--dynamic", "p0:0", "--dynamic", f"like={tmp_path / 'five.hlo'}"]) == 0
    capsys.readouterr()
    assert run(["stats", file, "--dynamic", "p0:0", "--dynamic", f"like={tmp_path / 'other.hlo'}"]) == 2
    assert "SIZ112" in capsys.readouterr().err
    assert run(["stats", file, "--dynamic", f"like={tmp_path / 'five.hlo'}"]) == 2
    assert "needs a dimension" in capsys.readouterr().err


MEAN = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY e {
  p = f32[8,16]{1,0} parameter(0)
  i = s32[] parameter(1)
  zero = f32[] constant(0)
  sum = f32[16]{0} reduce(p, zero), dimensions={0}, to_apply=add
  part = f32[] constant(0.125)
  parts = f32[16]{0} broadcast(part), dimensions={}
  mean = f32[16]{0} multiply(sum, parts)
  none = s32[] constant(0)
  negative = pred[] compare(i, none), direction=LT
  count = s32[] constant(8)
  later = s32[] add(i, count)
  place = s32[] select(negative, later, i)
  row = f32[1,16]{1,0} dynamic-slice(p, place, none), dynamic_slice_sizes={1,16}
  ROOT r = (f32[16]{0}, f32[1,16]{1,0}) tuple(mean, row)
}
"""


@pytest.fixture
def two(tmp_path: Path) -> list[str]:
    """Requests for a mean of which another dump says what the count is."""
    (tmp_path / "m.hlo").write_text(MEAN)
    other = MEAN.replace("[8,16]", "[5,16]").replace("0.125", "0.2").replace("constant(8)", "constant(5)")
    (tmp_path / "five.hlo").write_text(other)
    like = f"like={tmp_path / 'five.hlo'}"
    return [str(tmp_path / "m.hlo"), "--dynamic", "p0:0=1..300@20", "--dynamic", like]


def test_constants_follow_as_another_dump_says(
    two: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", *two, "--backend", "host"]) == 0
    told = capsys.readouterr().out
    assert "`part` follows: 1 / n\n" in told and "`count` follows: n\n" in told and "SIZ111" not in told
    ones, last = np.ones((200, 16), np.float32), np.int32(-1)
    np.savez(tmp_path / "in.npz", in0=ones * np.arange(200, dtype=np.float32)[:, None], in1=last)
    arguments = ["--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz"), "--backend", "host"]
    assert run(["run", *two, *arguments]) == 0
    with np.load(tmp_path / "out.npz") as out:
        assert np.allclose(out["out0"], 99.5) and (out["out1"] == 199).all()


def test_a_third_dump_must_agree(two: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    third = MEAN.replace("[8,16]", "[4,16]").replace("0.125", "0.25").replace("constant(8)", "constant(7)")
    (tmp_path / "four.hlo").write_text(third)
    assert run(["stats", *two, "--dynamic", f"like={tmp_path / 'four.hlo'}"]) == 2
    assert "count: at size 4 the other dump has 7, not 4" in capsys.readouterr().err
    (tmp_path / "four.hlo").write_text(third.replace("constant(7)", "constant(4)"))
    assert run(["stats", *two, "--dynamic", f"like={tmp_path / 'four.hlo'}"]) == 0


def test_view_and_bench_have_the_size_that_prices_are_for(two: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["view", *two, "--format", "json"]) == 0
    page = json.loads(capsys.readouterr().out)
    assert page["dynamic"]["priced"] == 20 and page["dynamic"]["formulas"] == {"part": "1 / n", "count": "n"}
    assert run(["bench", *two, "--backend", "host", "--rounds", "1", "--json"]) == 0
    assert [v["name"] for v in json.loads(capsys.readouterr().out)["variants"]] == ["unfused", "fused", "all sizes"]


@pytest.mark.parametrize("verb", ["explain", "stats", "lint"])
def test_verbs_that_price_name_the_size(verb: str, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    request = ["--dynamic", "p0:0=2..40@24"]
    assert run([verb, file, *request]) == 0
    assert "sizes 2 to 40 of p0:0, p1:0; prices are for size 24" in capsys.readouterr().out
    assert run([verb, file, *request, "--json"]) == 0
    dynamic = json.loads(capsys.readouterr().out)["dynamic"]
    assert dynamic == {
        "of": ["p0:0", "p1:0"],
        "sizes": [[2, 40, 1]],
        "priced": 24,
        "read": {},
        "frozen": {},
        "formulas": {},
    }


def test_run_takes_the_size_of_the_inputs(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = np.full((5, 16), 0.5, np.float32)
    np.savez(tmp_path / "in.npz", in0=values, in1=values)
    request = ["--dynamic", "p0:0=1..40", "--backend", "host", "--outputs", str(tmp_path / "out.npz")]
    assert run(["run", file, *request, "--inputs", str(tmp_path / "in.npz")]) == 0
    assert np.allclose(np.load(tmp_path / "out.npz")["out0"], np.tanh(2 * values))
    assert run(["run", file, *request]) == 0
    assert np.load(tmp_path / "out.npz")["out0"].shape == (8, 16)
    assert run(["run", file, *request, "--check-nans"]) == 2


def test_a_bounded_dimension_is_dynamic_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b.hlo").write_text(MODULE.replace("[8,16]", "[<=8,16]"))
    assert run(["fuse", str(tmp_path / "b.hlo")]) == 0
    captured = capsys.readouterr()
    assert "f32[<=8,16]{1,0} fusion(%p, %q)" in captured.out
    assert "sizes 0 to 8 of p0:0, p1:0; prices are for size 8" in captured.err
    assert run(["check", str(tmp_path / "b.hlo"), "--backend", "host"]) == 0
    assert capsys.readouterr().out.count("agrees on host") == 5


def test_a_priced_size_must_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "HloModule m\nENTRY e {\n  p = f32[8] parameter(0)\n  ROOT b = f32[2,4] reshape(p)\n}\n"
    (tmp_path / "b.hlo").write_text(text)
    assert run(["stats", str(tmp_path / "b.hlo"), "--dynamic", "p0:0=..40@10"]) == 2
    assert "SIZ105" in capsys.readouterr().err


def test_explain_shows_the_pages(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "siz103"]) == 0
    assert capsys.readouterr().out.startswith("SIZ103 literal")
    assert run(["help", "SIZ110"]) == 0
    assert capsys.readouterr().out.startswith("SIZ110 decided-by-size")
