"""How kernels are compiled: as XLA:GPU compiles its own, or, to be precise, as IEEE 754 says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.codegen.options import ALWAYS, compile_options

TEXT = """HloModule m
ENTRY e {
  x = f32[512]{0} parameter(0)
  y = f32[512]{0} parameter(1)
  q = f32[512]{0} divide(x, y)
  ROOT r = f32[512]{0} sqrt(q)
}
"""


@pytest.mark.parametrize(
    ("precise", "division", "root"), [(False, "div.full", "sqrt.approx"), (True, "div.rn", "sqrt.rn")]
)
def test_what_nvrtc_makes_of_divisions_and_roots(precise: bool, division: str, root: str, tmp_path: Path) -> None:
    pytest.importorskip("cupy")
    from cupy.cuda import nvrtc

    fused, _ = hlo_opt.fuse(hlo_opt.parse(TEXT))
    hlo_opt.emit(fused, tmp_path / "o", precise=precise)
    manifest = json.loads((tmp_path / "o" / "manifest.json").read_text())
    (kernel,) = manifest["kernels"]
    program = nvrtc.createProgram((tmp_path / "o" / kernel["file"]).read_text(), "k.cu", (), ())
    nvrtc.compileProgram(program, ("-arch=compute_90", *manifest["options"]))
    text = nvrtc.getPTX(program)
    text = text.decode() if isinstance(text, bytes) else text
    assert f"{division}.f32" in text and f"{root}.f32" in text and ".ftz" not in text and "fma.rn" not in text


@pytest.mark.parametrize("precise", [False, True])
def test_driver_and_manifest_say_the_same(precise: bool, tmp_path: Path) -> None:
    module = hlo_opt.parse(TEXT)
    hlo_opt.emit(module, tmp_path / "o", precise=precise)
    options = compile_options(precise=precise)
    assert json.loads((tmp_path / "o" / "manifest.json").read_text())["options"] == list(options)
    assert f"\nOPTIONS = {options!r}" in (tmp_path / "o" / "driver.py").read_text()
    assert options[: len(ALWAYS)] == ALWAYS


def test_the_texts_are_the_same(tmp_path: Path) -> None:
    module = hlo_opt.parse(TEXT)
    for name, precise in (("a", False), ("b", True)):
        hlo_opt.emit(module, tmp_path / name, precise=precise)
    first, second = (sorted((tmp_path / name / "kernels").iterdir()) for name in "ab")
    assert [p.read_text() for p in first] == [p.read_text() for p in second]
