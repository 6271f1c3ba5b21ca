"""Which form a profile has; and what is none, is told with a code and a hint."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from hlo_opt.diag import UsageError
from hlo_opt.report.measured.read import read_profile
from tests.report.measured.test_nsys import SUMMARY

PROFILES = Path(__file__).resolve().parents[3] / "testdata" / "profiles"


def test_forms_are_told_apart(tmp_path: Path) -> None:
    trace = b'{"traceEvents": [{"ph": "X", "name": "k", "dur": 1, "args": {"hlo_op": "k", "hlo_module": "m"}}]}'
    for name, data in (("a.json", trace), ("a.json.gz", gzip.compress(trace)), ("a.csv", SUMMARY.encode())):
        (tmp_path / name).write_bytes(data)
        assert read_profile(str(tmp_path / name)).of("m")[0]
    assert read_profile(str(PROFILES / "mlp_train_step.xplane.pb")).modules


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"hello", "no profile"),
        (b"a,b\n", "titles"),
        (b"[]", "no event"),
        (b"\x1f\x8b", "gzip"),
        (b"\0\1", "no profile"),
    ],
)
def test_what_is_no_profile(tmp_path: Path, data: bytes, why: str) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(UsageError, match=why) as caught:
        read_profile(str(tmp_path / "x"))
    assert caught.value.code == "HLO730" and "nsys" in str(caught.value.hint)


def test_a_folder_names_the_newest_profile_in_it(tmp_path: Path) -> None:
    inner = tmp_path / "plugins" / "profile" / "now"
    inner.mkdir(parents=True)
    with pytest.raises(UsageError, match="is a folder") as caught:
        read_profile(str(tmp_path))
    assert "name a file" in str(caught.value.hint)
    (inner / "vm.xplane.pb").write_bytes(b"")
    with pytest.raises(UsageError, match="is a folder") as caught:
        read_profile(str(tmp_path))
    assert caught.value.hint == f"name a profile in it: {inner / 'vm.xplane.pb'}"
    with pytest.raises(UsageError, match="no such file"):
        read_profile(str(tmp_path / "no.pb"))
