"""Where cuDNN is looked for, and what it says of itself, with a library of our own in its place."""

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hlo_opt.runtime.cupy import cudnn

FUNCTIONS = (
    *("cudnnCreate", "cudnnDestroy", "cudnnSetStream", "cudnnBackendCreateDescriptor", "cudnnBackendFinalize"),
    *("cudnnBackendDestroyDescriptor", "cudnnBackendSetAttribute", "cudnnBackendGetAttribute", "cudnnBackendExecute"),
)

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of Python's path with a library whose functions fail."""
    monkeypatch.setattr(cudnn, "NAME", "libcudnn_of_a_test.so.9")  # no process has loaded it
    folder = tmp_path / "nvidia" / "cudnn" / "lib"
    folder.mkdir(parents=True)
    source = tmp_path / "cudnn.c"
    say = (
        "void cudnnGetLastErrorString(char* text, unsigned long size) { text[0] = 'n'; text[1] = 'o'; text[2] = 0; }\n"
    )
    source.write_text("".join(f"int {name}(void) {{ return 1001; }}\n" for name in FUNCTIONS) + say)
    subprocess.run(["g++", "-x", "c", "-shared", "-fPIC", "-o", str(folder / cudnn.NAME), str(source)], check=True)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "none"), str(tmp_path)])
    return folder / cudnn.NAME


def test_the_library_of_a_wheel_is_used(wheel: Path) -> None:
    assert Path(cudnn.library_of()._name) == wheel


def test_a_failure_is_told_in_its_words(wheel: Path) -> None:
    library = cudnn.library_of()
    with pytest.raises(cudnn.CudnnError, match=r"cudnnCreate returns status 1001 \(no\)"):
        cudnn._check(library, library.cudnnCreate(ctypes.byref(ctypes.c_void_p())), "cudnnCreate")
