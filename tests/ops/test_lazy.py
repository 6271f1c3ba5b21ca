"""The table declares without loading NumPy; every face that it declares is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hlo_opt.ops import table
from hlo_opt.ops.lazy import lazy


def test_the_table_loads_without_numpy() -> None:
    code = "import sys, hlo_opt.ops; assert hlo_opt.ops.table(); sys.exit('numpy' in sys.modules or 'ml_dtypes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("spec", [s for s in table() if isinstance(s.evaluate, lazy)], ids=lambda s: s.opcode)
def test_every_face_is_there(spec: object) -> None:
    face = getattr(spec, "evaluate", None)
    assert isinstance(face, lazy) and callable(face.resolve())


def test_the_found_function_is_called() -> None:
    found = lazy("shapes", "cheap")
    assert found(None) is False and found.resolve() is found.resolve()
