"""Every kind of kernel in both of its forms: the plain one means what the module says, and the lanes give what the plain one gives."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import hlo_opt
from hlo_opt.codegen.emit import EMITTERS
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.ir import Module
from hlo_opt.runtime.executable import compile
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.schedule import build_schedule

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

FOLDER = Path(__file__).resolve().parents[2] / "testdata" / "kernels"


def fused(file: Path) -> Module:
    """A module with fusions says what is to be one kernel."""
    module = hlo_opt.parse(file.read_text(encoding="utf-8"), filename=str(file))
    is_fused = any(i.opcode == "fusion" for i in module.entry.instructions)
    return module if is_fused else hlo_opt.fuse(module)[0]


@cache
def rows() -> dict[str, Path]:
    """The first module of each kind of segment."""
    found: dict[str, Path] = {}
    for file in sorted(FOLDER.glob("*.hlo")):
        for kernel in build_schedule(fused(file)).kernels:
            for kind in kernel.kind.split("+"):
                found.setdefault(kind, file)
    return found


@pytest.mark.parametrize("kind", EMITTERS)
def test_both_forms_agree(kind: str) -> None:
    assert kind in rows(), f"testdata/kernels has no module with a kernel of kind {kind}"
    module = fused(rows()[kind])
    given = module_inputs(module, seed=3)
    forms = [compile(module, "host", form=form)(*given) for form in ("plain", "lanes")]
    for plain, lanes in zip(*forms, strict=True):
        if plain.dtype.kind in "biu":
            np.testing.assert_array_equal(lanes, plain)
        else:
            wide = np.complex128 if plain.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(
                lanes.astype(wide), plain.astype(wide), rtol=2e-2 if plain.itemsize < 4 else 1e-5, atol=1e-5
            )
