"""Folders of builds that were killed are taken away, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hlo_opt.runtime.host.build_folders import STALE_SECONDS, build_folder, take_away_stale

KILLED = """
import os, signal, sys
from pathlib import Path
from hlo_opt.runtime.host.build_folders import build_folder
with build_folder(Path(sys.argv[1])) as folder:
    (folder / "unit0.cpp").write_text("")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def every_time() -> None:
    take_away_stale.cache_clear()


def aged(folder: Path) -> Path:
    before = time.time() - 2 * STALE_SECONDS
    os.utime(folder, (before, before))
    return folder


def test_the_folder_of_a_killed_process_goes_when_it_is_old(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()
    take_away_stale(tmp_path)
    assert left.exists()  # it may be in the making
    aged(left)
    take_away_stale.cache_clear()
    take_away_stale(tmp_path)
    assert not left.exists()


def test_a_build_that_takes_long_keeps_its_folder(tmp_path: Path) -> None:
    with build_folder(tmp_path) as folder:
        aged(folder)
        take_away_stale(tmp_path)
        assert folder.exists()
    assert not folder.exists()


def test_what_is_not_of_a_build_stays(tmp_path: Path) -> None:
    release, library = tmp_path / "build-releases", tmp_path / "build-abcdefgh"
    for folder in (release, library):
        folder.mkdir()
        (folder / "notes.txt").write_text("")
        aged(folder)
    (tmp_path / "build-ijklmnop").write_text("")
    (tmp_path / "build-qrstuvwx").symlink_to(release, target_is_directory=True)
    take_away_stale(tmp_path)
    assert len(list(tmp_path.iterdir())) == 4 and all(list(f.iterdir()) for f in (release, library))


def test_folders_of_builds_before_there_were_locks_go(tmp_path: Path) -> None:
    folder = tmp_path / "build-x1_23456"
    folder.mkdir()
    (folder / "unit0.cpp").write_text("")
    (folder / "ccXYZabc.s").write_text("")
    take_away_stale(tmp_path)
    assert folder.exists()
    aged(folder)
    take_away_stale.cache_clear()
    take_away_stale(tmp_path)
    assert not folder.exists()
