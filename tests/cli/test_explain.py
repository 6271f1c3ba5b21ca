"""`hlo-opt explain`: what another type would save, and what reads a parameter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hlo_opt.cli.group import run

DUMP = str(Path(__file__).parents[2] / "testdata" / "dumps" / "layer_norm.hlo")


def test_another_type_is_compared_with_the_module_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", DUMP, "--as", "f32=bf16"]) == 0
    text = capfd.readouterr().out
    assert "what if: with bf16 for f32" in text and "results are not looked at" in text
    assert run(["explain", DUMP, "--as", "f32=bf16", "--format", "json"]) == 0
    found = json.loads(capfd.readouterr().out)["what_if"]
    assert found["types"] == "f32=bf16" and found["what_if"]["bytes"] < found["as_it_is"]["bytes"]


def test_what_is_no_type_is_one_error(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", DUMP, "--as", "bf16"]) == 2
    assert "--as takes two types, and not 'bf16'" in capfd.readouterr().err


PARAMETERS = """HloModule m
ENTRY e {
  p = f32[64,64] parameter(0)
  q = f32[64,64] parameter(1)
  unread = f32[8] parameter(2)
  d = f32[64,64] custom-call(p), custom_call_target="f"
  v = f32[4096] reshape(p)
  s = f32[4096] sine(v)
  ROOT t = (f32[64,64], f32[4096], f32[64,64]) tuple(d, s, q)
}
"""


def test_a_parameter_is_answered_with_the_kernels_that_read_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(PARAMETERS)
    assert run(["explain", str(file), "p", "unread"]) == 0
    text = capfd.readouterr().out
    assert "`p` is parameter 0, 16.4 kB; read by 2 kernels of the result: " in text and "`d`" in text
    assert "`unread` is parameter 2, 32 B; no kernel of the result reads it" in text
