from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from hlo_opt.diag import BackendError
from hlo_opt.diag.time_limit import TimeUpError, time_until
from hlo_opt.runtime.host import compiler

UNIT = 'extern "C" __attribute__((visibility("default"))) int answer() { return 42; }'
pytestmark = pytest.mark.skipif(not compiler.has_compiler(), reason="no C++ compiler")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("HLO_OPT_CACHE", str(tmp_path / "cache"))
    compiler._own_folder.cache_clear()
    yield compiler.cache_directory()
    compiler._own_folder.cache_clear()


def fill(monkeypatch: pytest.MonkeyPatch, *folders: Path, told: Exception) -> list[Path]:
    """Nothing can be built in these folders any more. Returns the places where building is tried."""
    plain, tried = compiler._build, []

    def build(command: Sequence[str], units: Sequence[str], path: Path) -> None:
        tried.append(path.parent)
        if not folders or path.parent in folders:
            raise told
        plain(command, units, path)

    monkeypatch.setattr(compiler, "_build", build)
    monkeypatch.setattr(compiler, "has_room", lambda folder: bool(folders) and folder not in folders)
    return tried


@pytest.mark.parametrize(
    "told", [OSError(errno.ENOSPC, "No space left on device"), BackendError("ld: final link failed", code="HLO511")]
)
def test_a_full_disk_costs_only_what_would_have_been_kept(
    told: Exception, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = fill(monkeypatch, cache, told=told)
    path = compiler.built([UNIT])
    assert path.exists() and path.parent != cache and tried == [cache, path.parent]
    assert compiler.built([UNIT]) == path and len(tried) == 2


def test_where_all_disks_are_full_the_folder_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = fill(monkeypatch, told=OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(BackendError, match=r"HLO517 no kernels can be kept in .*: No space left on device"):
        compiler.built([UNIT])
    assert tried[0] == cache and len(tried) == 2


def test_where_no_folder_can_be_created_the_cache_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_folder(**_: str) -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory")

    fill(monkeypatch, told=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(compiler.tempfile, "TemporaryDirectory", no_folder)
    with pytest.raises(BackendError, match=r"HLO517 no kernels can be kept in .*cache: No usable"):
        compiler.built([UNIT])


def test_where_neither_the_cache_nor_a_temporary_folder_can_be_created_it_says_so(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_folder(**_: str) -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory")

    monkeypatch.setattr(compiler, "kept_folder", lambda: None)
    monkeypatch.setattr(compiler.tempfile, "TemporaryDirectory", no_folder)
    with pytest.raises(BackendError, match="HLO517 no folder for kernels can be made: No usable"):
        compiler.built([UNIT])


def test_a_text_that_is_wrong_is_built_once(cache: Path) -> None:
    with pytest.raises(BackendError, match="HLO511"):
        compiler.built(["this is no C++"])
    assert compiler.has_room(cache) and not compiler._own_folder.cache_info().currsize


def test_a_compiler_that_writes_nothing_is_one_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/bin/true")
    with pytest.raises(BackendError, match=r"HLO511 the C.. compiler /bin/true writes no library"):
        compiler.built([UNIT])
    assert list(cache.iterdir()) == []


def test_a_library_is_looked_for_in_both_folders(cache: Path) -> None:
    own = Path(compiler._own_folder().name)
    assert compiler.kept_library("a.so") is None
    for folder in (own, cache):
        (folder / "a.so").write_bytes(b"a library")
        compiler.seal(folder / "a.so")
        assert compiler.kept_library("a.so") == folder / "a.so"


def test_a_compiler_that_takes_too_long_is_ended(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a program that the compiler starts as well; what it takes elsewhere is not limited."""
    slow = tmp_path / "slow"
    slow.write_text(
        '#!/bin/sh\ncase "$*" in *unit0*) sh -c "while :; do :; done" || { echo CPU time limit >&2; exit 1; };; esac\n'
        'exec g++ "$@"\n'
    )
    slow.chmod(0o755)
    monkeypatch.setenv("CXX", str(slow))
    with (
        compiler.bounded_compiler(1),
        pytest.raises(BackendError, match=r"HLO511 the C.. compiler takes more than 1 s"),
    ):
        compiler.built([UNIT])
    monkeypatch.delenv("CXX")
    assert compiler.built([UNIT]).exists()


@pytest.mark.parametrize("units", [1, 2])
def test_a_compiler_without_time_is_ended(
    units: int, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all that it started, however little of a processor it takes, and with the runs beside it."""
    asleep = tmp_path / "asleep"
    asleep.write_text(
        f'#!/bin/sh\ncase "$*" in *unit*) sleep 99 & echo $! >> {tmp_path}/begun; wait;; esac\nexec g++ "$@"\n'
    )
    asleep.chmod(0o755)
    monkeypatch.setenv("CXX", str(asleep))
    compiler.processor(compiler.find_compiler())
    begun = time.monotonic()
    with time_until(begun + 1), pytest.raises(TimeUpError, match="HLO511"):
        compiler.built([UNIT.replace("42", str(n)) for n in range(units)])
    assert time.monotonic() - begun < 60
    started = [int(line) for line in (tmp_path / "begun").read_text().split()]
    assert len(started) == units and not any(map(runs, started))
    assert not list(cache.iterdir())


def runs(process: int) -> bool:
    """Whether a process has not ended, or not been waited for by a parent that is not ours."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("seconds", [None, 60])
def test_a_compiler_in_the_background_gives_way(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int | None
) -> None:
    """Also one whose time is limited; what is compiled outside does not."""
    noted = tmp_path / "noted"
    command = tmp_path / "compiler"
    command.write_text(f'#!/bin/sh\ncase "$*" in *unit0*) nice > "{noted}";; esac\nexec g++ "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("CXX", str(command))
    ours = os.nice(0)
    with compiler.compiler_that_gives_way(), compiler.bounded_compiler(seconds) if seconds else nullcontext():
        compiler.built([UNIT])
    assert int(noted.read_text()) == min(19, ours + compiler.NICENESS)
    compiler.built([UNIT.replace("42", "43")])
    assert int(noted.read_text()) == ours


@pytest.mark.parametrize("last", [0, 1])
def test_a_compiler_that_stops_by_its_own_fault_makes_plainer_code(
    last: int, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GCC 12 does at the largest of bytes under a condition, on processors with AVX512."""
    broken = tmp_path / "broken"
    taken = "".join(f"*unit0*{flag}*) ;; " for flag in compiler.PLAINER[last])
    broken.write_text(
        f'#!/bin/sh\ncase "$*" in {taken}*unit0*) echo "unit0.cpp:3:1: internal compiler error: in extract_insn" >&2; '
        'exit 1;; esac\nexec g++ "$@"\n'
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    assert compiler.built([UNIT]).exists()


@pytest.mark.parametrize("seconds", [None, 60])
@pytest.mark.parametrize(
    "ends",
    [
        "kill -KILL $$",
        "kill -TERM $$",
        "echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1",
        "echo 'g++: internal compiler error: Hangup signal terminated program cc1plus' >&2; exit 4",
        "echo 'collect2: fatal error: ld terminated with signal 9 [Killed]' >&2; exit 1",
        "echo 'clang++: error: unable to execute command: Killed' >&2; exit 1",
        "echo 'virtual memory exhausted: Cannot allocate memory' >&2; exit 1",
    ],
)
def test_a_compiler_that_is_ended_says_nothing_of_its_text(
    ends: str, seconds: int | None, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a system does that has no memory left. It is not run again either: it may be ended for good reason."""
    noted, ended = tmp_path / "noted", tmp_path / "ended"
    ended.write_text(f'#!/bin/sh\ncase "$*" in *unit0*) echo >> {noted}; {ends};; esac\nexec g++ "$@"\n')
    ended.chmod(0o755)
    monkeypatch.setenv("CXX", str(ended))
    with (
        compiler.bounded_compiler(seconds) if seconds else nullcontext(),
        pytest.raises(BackendError, match=r"HLO518 the C\+\+ compiler was ended from outside"),
    ):
        compiler.built([UNIT])
    assert len(noted.read_text()) == 1


def test_flags_are_not_taken_for_unknown_where_the_compiler_is_ended() -> None:
    with pytest.raises(BackendError, match="HLO518"):
        compiler.asked(["sh", "-c", "kill -KILL $$"])


def test_a_compiler_that_takes_too_long_is_not_run_again(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GCC calls it a fault of its own that it was ended by the limit."""
    noted, slow = tmp_path / "noted", tmp_path / "slow"
    says = "g++: internal compiler error: CPU time limit exceeded signal terminated program cc1plus"
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in *unit0*) echo >> {noted}; echo "{says}" >&2; exit 4;; esac\nexec g++ "$@"\n'
    )
    slow.chmod(0o755)
    monkeypatch.setenv("CXX", str(slow))
    with compiler.bounded_compiler(9), pytest.raises(BackendError, match=r"HLO511 .* takes more than 9 s"):
        compiler.built([UNIT])
    assert len(noted.read_text()) == 1


def test_a_compiler_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "ANSWER_SECONDS", 0.05)
    with pytest.raises(BackendError, match=r"HLO511 the C\+\+ compiler sleep takes more than 0\.05 s"):
        compiler.asked(["sleep"], "9")


def test_a_library_that_was_cut_off_is_built_again(cache: Path) -> None:
    """A process that loads half of one is killed."""
    path = compiler.built([UNIT])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert compiler.kept_library(path.name) is None
    assert compiler.load([UNIT]).answer() == 42 and path.read_bytes() == whole
