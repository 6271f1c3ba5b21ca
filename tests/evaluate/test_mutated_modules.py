"""Mutants of small modules. `python -m scripts.mutate_modules DIR` does the same with thousands."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

import hlo_opt
from scripts import mutate_modules
from scripts.mutate_modules import AnyWay, fails, in_a_child
from scripts.mutations import infer_anew, mutant
from scripts.random_modules import Way

TEXT = """HloModule small

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

body {
  x = f32[6,4]{1,0} parameter(0)
  ROOT e = f32[6,4]{1,0} exponential(x)
}

ENTRY e {
  p = f32[6,4]{1,0} parameter(0)
  c = f32[4]{0} constant({1, 2, 3, 4})
  f = f32[6,4]{1,0} fusion(p), kind=kLoop, calls=body
  zero = f32[] constant(0)
  r = f32[6]{0} reduce(f, zero), dimensions={1}, to_apply=sum
  w = f32[6,4]{1,0} broadcast(r), dimensions={0}
  v = f32[6,4]{1,0} broadcast(c), dimensions={1}
  d = f32[6,4]{1,0} divide(f, w)
  t = f32[6,4]{1,0} multiply(d, v)
  ROOT o = f32[4,6]{1,0} transpose(t), dimensions={1,0}
}
"""


def mutants(number: int) -> list[str]:
    found = [mutant(random.Random(seed), TEXT) for seed in range(number)]
    return [text for text in found if text is not None]


def test_mutants_verify_differ_and_hold() -> None:
    found = mutants(20)
    assert len(set(found)) >= 15 and TEXT not in found
    for text in found:
        hlo_opt.verify(hlo_opt.parse(text))
        assert fails(text, ["fuse", "again"], [Way("default")], Counter()) is None, text
    assert mutants(20) == found


def test_they_hold_with_any_passes() -> None:
    for seed, text in enumerate(mutants(8)):
        ways = [AnyWay.drawn(random.Random(f"{seed} {k}"), hlo_opt.parse(text)) for k in range(3)]
        assert fails(text, ["fuse"], ways, Counter()) is None, f"{ways}\n{text}"


def test_shapes_follow_operands_into_what_is_called() -> None:
    module = hlo_opt.parse(
        TEXT.replace("p = f32[6,4]", "p = bf16[6,4]").replace("f32[]", "bf16[]").replace("c = f32", "c = bf16")
    )
    with pytest.raises(hlo_opt.VerifyError):
        hlo_opt.verify(module)
    infer_anew(module)
    hlo_opt.verify(module)
    assert str(module.entry.root.shape) == "bf16[4,6]{1,0}"


@dataclass(frozen=True)
class Wrong:
    """Fuses into something else."""

    text: str

    def fuse(self, module: hlo_opt.Module) -> hlo_opt.Module:
        return hlo_opt.parse(self.text)


def test_another_result_is_told() -> None:
    other = TEXT.replace("divide(f, w)", "subtract(f, w)")
    assert fails(TEXT, ["fuse"], [Wrong(other)], Counter()) == f"{Wrong(other)}: out0 differs when fused"


class Ends:
    def fuse(self, module: hlo_opt.Module) -> hlo_opt.Module:
        os._exit(3)


def test_an_end_of_the_process_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "ended with status" in str(in_a_child(TEXT, [], [Ends()])[0])  # type: ignore[list-item]
    assert in_a_child(TEXT, ["fuse"], [Way("default")])[0] is None
    monkeypatch.setattr(mutate_modules, "SECONDS", 0.0)
    assert "no result" in str(in_a_child(TEXT, ["fuse"], [Way("default")])[0])


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.hlo").write_text(TEXT)
    monkeypatch.setattr(
        sys, "argv", ["mutate_modules", str(tmp_path), "--count", "3", "--keep", str(tmp_path / "kept")]
    )
    assert mutate_modules.main() == 0 and "3 held" in capsys.readouterr().out
    monkeypatch.setattr(mutate_modules, "fails", lambda *_: "wrong 17 times")
    assert mutate_modules.main() == 1 and "3 wrong N times" in capsys.readouterr().out
    assert len(list((tmp_path / "kept").iterdir())) == 3
