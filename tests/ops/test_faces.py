"""The table declares without loading NumPy; every face that it declares is there."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from hlo_opt.ops import table
from hlo_opt.ops.faces import lazy
from hlo_opt.ops.spec import OpSpec
from hlo_opt.ops.ways import Ways


def test_the_table_loads_without_numpy() -> None:
    code = (
        "import sys, hlo_opt.ops; assert hlo_opt.ops.table(); sys.exit('numpy' in sys.modules or 'ml_dtypes' in "
        "sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def lazy_faces(spec: OpSpec) -> list[lazy]:
    fields = [getattr(spec, f.name) for f in dataclasses.fields(spec)]
    rules = [getattr(spec.spread, f.name) for f in dataclasses.fields(spec.spread)]
    return [face for face in (*fields, *rules) if isinstance(face, lazy)]


@pytest.mark.parametrize("spec", table(), ids=lambda s: s.opcode)
def test_every_face_is_there(spec: OpSpec) -> None:
    """A name that `ops.ways` has stands for the ways of an operation; every other one for a function."""
    for face in lazy_faces(spec):
        assert isinstance(face.resolve(), Ways) if face is spec.ways else callable(face.resolve())


def test_there_are_faces_of_all_sorts() -> None:
    found = [face for spec in table() for face in lazy_faces(spec)]
    assert len({face._module for face in found}) > 10


def test_the_found_function_is_called() -> None:
    found = lazy("faces", "never")
    assert found(None) is False and found.resolve() is found.resolve()
