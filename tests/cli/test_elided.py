"""`--elided`: what to take for constants that the text leaves out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hlo_opt.cli.group import run

TEXT = """HloModule m

ENTRY e {
  p = f32[4]{0} parameter(0)
  w = f32[4]{0} constant({...})
  h = bf16[4]{0} constant({...})
  c = f32[4]{0} convert(h)
  m = f32[4]{0} multiply(p, w)
  ROOT s = f32[4]{0} add(m, c)
}
"""


@pytest.mark.parametrize("verb", ["run", "check", "bench", "fuse --check"])
def test_runs_ask_for_it(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, values = tmp_path / "m.hlo", tmp_path / "values.npz"
    file.write_text(TEXT)
    np.savez(values, w=np.ones(4, np.float32), h=np.zeros(4, np.uint16))
    words = [*verb.split(), str(file), *(["--rounds", "1"] if verb == "bench" else ["--backend", "numpy"])]
    if verb == "bench":
        words += ["--backend", "numpy"]
    assert run(words) == 2
    assert "m.hlo:5:3: HLO407" in capsys.readouterr().err
    for wish in ("zeros", "random", str(values)):
        assert run([*words, "--elided", wish]) == 0
    capsys.readouterr()
    assert run([*words, "--elided", str(tmp_path / "none.npz")]) == 2
    assert "none.npz" in capsys.readouterr().err


def test_what_runs_nothing_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(TEXT)
    for verb in ("fuse", "explain", "print", "stats"):
        assert run([verb, str(file)]) == 0


def test_two_files_agree_by_name(tmp_path: Path) -> None:
    files = [tmp_path / "one.hlo", tmp_path / "other.hlo"]
    for file, text in zip(files, (TEXT, TEXT.replace("(p, w)", "(w, p)")), strict=True):
        file.write_text(text)
    words = ["check", *map(str, files), "--backend", "numpy", "--elided", "random"]
    assert run(words) == 0
    files[1].write_text(TEXT.replace("w", "v"))
    assert run(words) == 1
