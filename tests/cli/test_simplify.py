"""`hlo-opt simplify`: what it prints, writes and checks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hlo_opt.cli.group import run

TEXT = """HloModule m

ENTRY e {
  x = f32[8]{0} parameter(0)
  zero = f32[] constant(0)
  zeros = f32[8]{0} broadcast(zero), dimensions={}
  a = f32[8]{0} add(x, zeros)
  b = f32[8]{0} negate(a)
  ROOT c = f32[8]{0} negate(b)
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "m.hlo"
    made.write_text(TEXT)
    return made


def test_it_prints_the_module_and_counts_rules(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simplify", str(file), "--check-proof", "--check", "--backend", "numpy"]) == 0
    said = capsys.readouterr()
    assert "negate" not in said.out and "add(" in said.out
    assert "6 instructions -> 4" in said.err and "negate-negate" in said.err
    assert "1 rewrites done again: the same module" in said.err


def test_fast_math_and_the_certificate(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, certificate = file.parent / "out.hlo", file.parent / "c.json"
    assert run(["simplify", str(file), "--fast-math", "-o", str(out), "--certificate", str(certificate)]) == 0
    assert "add(" not in out.read_text()
    (module,) = json.loads(certificate.read_text())["modules"]
    assert {s["rule"] for steps in module["runs"] for s in steps} == {"add-positive-zero", "negate-negate"}


def test_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["passes", "--rules", "--json"]) == 0
    rules = json.loads(capsys.readouterr().out)["rules"]
    assert {"name", "family", "opcodes", "what", "why", "differs"} == set(rules[0])
    assert run(["passes", "--rules"]) == 0
    assert "negate-negate" in capsys.readouterr().out
