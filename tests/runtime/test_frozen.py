"""Programs of the host as data."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.diag import BackendError
from hlo_opt.runtime.host import library
from hlo_opt.runtime.host.freezing import freeze
from hlo_opt.runtime.host.frozen import Frozen
from hlo_opt.runtime.host.library import cache_directory
from hlo_opt.runtime.host.program import HostProgram
from hlo_opt.runtime.numpy import Reference
from hlo_opt.runtime.schedule import build_schedule

TEXT = """HloModule m
ENTRY e {
  p = f32[8,4] parameter(0)
  q = pred[3] parameter(1)
  c = f32[4] constant({1, 2, 3, 4})
  b = f32[8,4] broadcast(c), dimensions={1}
  r = f32[8,4] multiply(p, b)
  n = pred[3] not(q)
  ROOT t = (f32[8,4], pred[3]) tuple(r, n)
}
"""


def program(text: str) -> HostProgram:
    module = hlo_opt.fuse(text)[0]
    return HostProgram(build_schedule(module), Reference(module))


def test_it_survives_a_file() -> None:
    frozen = freeze(program(TEXT))
    again = Frozen.unpacked(frozen.packed())
    assert (again.library, again.launchers, again.routines) == (frozen.library, frozen.launchers, frozen.routines)
    assert (again.inputs, again.outputs) == (frozen.inputs, frozen.outputs)
    assert [size for _, size in frozen.inputs] == [128, 3] and [size for _, size in frozen.outputs] == [128, 3]
    for name in ("memory", "slots", "frames", "pointers", "own"):
        assert getattr(again, name) == getattr(frozen, name)
    for ours, theirs in zip((*again.words, *again.constants), (*frozen.words, *frozen.constants), strict=True):
        assert ours.tobytes() == np.asarray(theirs).tobytes()


def test_it_names_the_routines_that_it_calls() -> None:
    text = "HloModule m\nENTRY e {\n  p = f32[64] parameter(0)\n"
    text += "  ROOT r = c64[33] fft(p), fft_type=RFFT, fft_length={64}\n}\n"
    assert freeze(program(text)).own == ("transform_f32",) and freeze(program(TEXT)).own == ()


def test_the_library_is_in_the_cache() -> None:
    frozen = freeze(program(TEXT))
    assert (cache_directory() / frozen.library).is_file() and frozen.launchers


def test_the_text_of_its_kernels_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a long kernel takes longer than all else."""
    written: list[str] = []
    one = library.lanes_unit
    monkeypatch.setattr(library, "lanes_unit", lambda kernels: written.append(one(kernels)) or written[-1])
    assert freeze(program(TEXT)).library and len(written) == 1


def test_what_needs_numpy_is_refused() -> None:
    text = (
        "HloModule m\nENTRY e {\n  p = f32[37] parameter(0)\n  ROOT r = c64[19] fft(p), fft_type=RFFT, "
        "fft_length={37}\n}\n"
    )
    with pytest.raises(BackendError, match="fft") as caught:
        freeze(program(text))
    assert caught.value.code == "HLO528"


@pytest.mark.parametrize("data", [b"", b"nothing", b"PK\x03\x04"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no frozen program"):
        Frozen.unpacked(data)


def test_parts_that_are_missing_are_refused() -> None:
    import io

    file = io.BytesIO()
    np.savez(file, head=np.frombuffer(b"{}", np.uint8))
    with pytest.raises(ValueError, match="no frozen program"):
        Frozen.unpacked(file.getvalue())
