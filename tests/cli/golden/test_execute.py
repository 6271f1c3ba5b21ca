"""Running golden files: what passes, what fails and says why, what is written."""

from __future__ import annotations

import os
import signal
import sys
import time
from difflib import unified_diff
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_opt.cli.golden.commands import find_cases
from hlo_opt.cli.golden.execute import MOST_SHOWN, Result, difference, execute
from hlo_opt.cli.golden.file_check import file_check
from hlo_opt.diag import UsageError

MODULE = """HloModule m

ENTRY e {
  p = f32[8]{0} parameter(0)
  s = f32[8]{0} sine(p)
  ROOT n = f32[8]{0} negate(s)
}
"""
FUSE = "// RUN: hlo-opt fuse %s --passes=instruction-fusion"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def result(text: str, name: str = "m.hlo", **options: object) -> Result:
    Path(name).write_text(text)
    (case,) = find_cases([name])
    return execute(case, **options)


def test_check_lines_match_or_say_where_they_stop() -> None:
    pytest.importorskip("filecheck")
    head = f"{FUSE} | FileCheck %s\n// CHECK: HloModule m\n// CHECK: {{{{%?}}}}[[NAME:[a-z_]+]] = {{{{.*}}}} fusion(\n"
    assert result(f"{head}// CHECK-NOT: sine\n{MODULE}").status == "passed"
    failed = result(f"{head}// CHECK: cosine\n{MODULE}")
    assert failed.status == "failed"
    assert failed.why[0] == "m.hlo:1: FileCheck m.hlo"
    assert 'm.hlo:4: error: Couldn\'t match "cosine"' in str(failed)
    assert "the output from line " in str(failed) and "\x1b" not in str(failed)


@pytest.mark.parametrize(
    ("check", "why"),
    [
        ("// CHECK: [[#N + 1]]", "FileCheck: NotImplementedError"),
        ("// CHECK: {{[[:cntrl:]]}}", "FileCheck: ValueError"),
        ("// CHECK: [[NAME]]", "referenced before assignment"),
        ("// CHECK: {{(}}", "Malformed regex"),
        ("// OTHER: m", "No check strings found"),
    ],
)
def test_check_lines_that_cannot_be_read_fail(check: str, why: str) -> None:
    pytest.importorskip("filecheck")
    failed = result(f"{FUSE} | FileCheck %s\n{check}\n{MODULE}")
    assert failed.status == "failed" and why in str(failed)


def test_a_command_should_fail_where_not_says_so() -> None:
    over = f"{FUSE} --max-kernels 0".replace("RUN: hlo-opt", "RUN: not hlo-opt")
    assert result(f"{over}\n{MODULE}").status == "passed"
    failed = result(f"{over.replace('-kernels 0', '-kernels 9')}\n{MODULE}")
    assert failed.why == (
        "m.hlo:1: not hlo-opt fuse m.hlo --passes=instruction-fusion --max-kernels 9",
        "  succeeded, and should fail",
    )
    failed = result(f"{FUSE} --max-kernels 0\n{MODULE}")
    assert failed.why[1] == "  failed with exit status 1" and "HLO710" in str(failed)


def test_a_module_that_cannot_be_read_fails_with_its_place() -> None:
    failed = result(f"{FUSE}\n{MODULE.replace('sine(p)', 'sin(p)')}")
    assert failed.status == "failed" and "m.hlo:6:" in str(failed)
    Path("m.hlo").write_bytes(b"\xff// RUN: hlo-opt print %s\n")
    (case,) = find_cases(["m.hlo"])
    assert "HLO1" in str(execute(case))


def test_goldens_are_written_and_compared() -> None:
    missing = result(MODULE)
    assert missing.why == ("m.golden.hlo: there is no golden yet; --update writes it",)
    assert result(MODULE, update=True).written == Path("m.golden.hlo")
    assert result(MODULE).status == "passed"
    golden = Path("m.golden.hlo").read_text()
    Path("m.golden.hlo").write_bytes(golden.replace("\n", "\r\n").encode())
    assert result(MODULE).status == "passed"
    Path("m.golden.hlo").write_text(golden.replace("sine", "cosine"))
    failed = result(MODULE)
    assert failed.why == ("m.hlo: prints something else than m.golden.hlo",)
    assert [row[0] for row in failed.difference if "sine" in row] == ["-", "+"]
    assert failed.difference[:2] == ("--- m.golden.hlo", "+++ what is printed now")
    assert result(MODULE, update=True).status == "updated" and Path("m.golden.hlo").read_text() == golden


def test_a_golden_may_hold_text_or_json() -> None:
    Path("m.golden.json").touch()
    assert result(f"// RUN: hlo-opt explain %s --format json\n{MODULE}", update=True).written == Path("m.golden.json")
    assert Path("m.golden.json").read_text().startswith('{\n  "schema": 1')


def test_a_golden_is_kept_when_a_command_fails_or_it_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("m.golden.hlo").write_text("old")
    assert result(f"{FUSE} --max-kernels 0\n{MODULE}", update=True).status == "failed"
    assert Path("m.golden.hlo").read_text() == "old"

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "replace", refuse)
    failed = result(MODULE, update=True)
    assert str(failed) == "m.golden.hlo: HLO300 cannot write: Read-only file system"
    assert Path("m.golden.hlo").read_text() == "old"
    assert sorted(os.listdir()) == ["m.golden.hlo", "m.hlo"]


def test_a_golden_that_leads_elsewhere_is_not_written(tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "file"
    elsewhere.write_text("mine")
    Path("m.golden.hlo").symlink_to(elsewhere)
    failed = result(MODULE, update=True)
    assert "leads out of the folder under test" in str(failed) and elsewhere.read_text() == "mine"


def test_a_golden_belongs_to_one_line_and_one_module() -> None:
    Path("m.golden.hlo").touch()
    failed = result(f"{FUSE}\n{FUSE}\n{MODULE}")
    assert "holds what one RUN line without FileCheck prints, and there are 2" in str(failed)
    Path("lost.golden.hlo").touch()
    (case,) = find_cases(["lost.golden.hlo"])
    assert "there is no module for this golden" in str(execute(case))


@pytest.mark.parametrize("name", ["-o.hlo", "a b'\"$(touch x);|.hlo", "%s.hlo", "\udcff.hlo"])
def test_odd_names_are_only_names(name: str) -> None:
    pytest.importorskip("filecheck")
    try:
        made = result(f"{FUSE} | FileCheck %s\n// CHECK: fusion(\n{MODULE}", f"./{name}")
    except OSError:
        pytest.skip("this file system does not take the name")
    assert made.status == "passed", str(made)
    assert os.listdir() == [name]


@pytest.mark.skipif(sys.platform == "win32", reason="no timer signals")
def test_a_file_gets_its_time_and_no_more() -> None:
    pytest.importorskip("filecheck")
    hang = f"{FUSE} | FileCheck %s\n// CHECK: {{{{((.|[a-z])+)+[$]}}}}\n{MODULE}"
    assert str(result(hang, timeout=0.5)) == "m.hlo: took longer than 0.5 s"


@pytest.mark.skipif(sys.platform == "win32", reason="no timer signals")
def test_somebody_elses_limit_goes_on() -> None:
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    try:
        signal.setitimer(signal.ITIMER_REAL, 50)
        assert result(f"{FUSE}\n{MODULE}").status == "passed"
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 50
        assert signal.getsignal(signal.SIGALRM) == signal.SIG_IGN
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_streams_are_given_back() -> None:
    before = sys.stdin, sys.stdout, sys.stderr
    assert result(f"// RUN: hlo-opt print - | hlo-opt stats -\n{MODULE}").status == "failed"  # stdin is empty
    assert result(f"// RUN: hlo-opt print %s | hlo-opt stats -\n{MODULE}").status == "passed"
    assert (sys.stdin, sys.stdout, sys.stderr) == before


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "wants the file"),
        (("m.hlo", "n.hlo"), "takes one file"),
        (("/etc/passwd",), "no file below the folder under test"),
        (("m.hlo", "--check-prefix"), "wants a value"),
        (("m.hlo", "--check-prefix=(a+)+"), "wants words"),
        (("m.hlo", "--chek-prefix=A"), "did you mean --check-prefix"),
        (("m.hlo", "--input-file=x"), "no option '--input-file=x' here"),
    ],
)
def test_arguments_of_filecheck_that_are_refused(arguments: tuple[str, ...], why: str) -> None:
    Path("m.hlo").write_text("// CHECK: m\n")
    with pytest.raises(UsageError) as caught:
        file_check(arguments, "m\n", Path("m.hlo"), Path())
    assert why in str(caught.value)


def test_arguments_of_filecheck_that_are_taken() -> None:
    pytest.importorskip("filecheck")
    Path("m.hlo").write_text("// A: [[WHO]] b\n// B: c\n")
    arguments = ("m.hlo", "--check-prefixes=A,B", "-DWHO=m", "--match-full-lines")
    assert file_check(arguments, "m b\nc\n", Path("m.hlo"), Path()) == ""
    assert "match" in file_check(arguments, "m b.\nc\n", Path("m.hlo"), Path())


LINES = st.lists(st.sampled_from(["a", "b", "c"]), max_size=30)


@settings(max_examples=60, deadline=None)
@given(LINES, LINES)
def test_it_is_a_unified_diff(old: list[str], new: list[str]) -> None:
    texts = ["".join(f"{line}\n" for line in lines) for lines in (old, new)]
    rows = difference(*texts, "x", "y")
    assert bool(rows) == (old != new)
    # which lines are matched up may differ; what is left and what comes in may not
    theirs = list(unified_diff(old, new, lineterm=""))
    for sign in "+-":
        ours = [r for r in rows[2:] if r.startswith(sign)]
        assert (
            len(ours) - len([r for r in theirs[2:] if r.startswith(sign)])
            == (len([r for r in rows[2:] if r[0] in "+-"]) - len([r for r in theirs[2:] if r[0] in "+-"])) / 2
        )
    assert applied(old, rows) == new


def applied(old: list[str], rows: list[str]) -> list[str]:
    """What the diff makes of the old lines."""
    new: list[str] = []
    position = 0
    for row in rows[2:]:
        if row.startswith("@@"):
            start, count = (int(n) for n in row.split()[1][1:].split(","))
            first = start - 1
            new += old[position:first]
            position = first
            assert position + count <= len(old)
        elif row[0] == "+":
            new.append(row[1:])
        else:
            assert old[position] == row[1:]
            position += 1
            if row[0] == " ":
                new.append(row[1:])
    return new + old[position:]


def test_a_missing_end_of_line_is_told() -> None:
    rows = difference("a\nb\n", "a\nb", "x", "y")
    assert rows == ["--- x", "+++ y", "@@ -1,2 +1,3 @@", " a", " b", "+\\ no newline at the end"]


def test_large_texts_take_no_time_and_little_space() -> None:
    old = "".join(f"line {n}\n" for n in range(60_000))
    new = "".join(f"row {n}\n" for n in range(60_000))
    started = time.perf_counter()
    rows = difference(old, new, "x", "y")
    assert time.perf_counter() - started < 2
    assert len(rows) <= MOST_SHOWN + 1
    assert rows[3] == "-line 0" and "+row 0" in rows


def test_one_line_in_the_middle_of_a_large_text() -> None:
    lines = [f"line {n}\n" for n in range(60_000)]
    old = "".join(lines)
    lines[30_000] = "other\n"
    rows = difference(old, "".join(lines), "x", "y")
    assert rows[2] == "@@ -29998,7 +29998,7 @@"
    assert rows[6:8] == ["-line 30000", "+other"] and len(rows) == 11


def test_check_lines_that_nothing_reads_fail() -> None:
    for unread in ("// CHECK: nothing of that\n", "  // CHECK-COUNT-2: sine\n"):
        failed = result(f"// RUN: hlo-opt print %s\n{unread}{MODULE}")
        assert failed.status == "failed"
        assert "m.hlo:2: nothing reads this CHECK line" in str(failed)
        Path("m.hlo").write_text(f"{unread}{MODULE}")  # no RUN line either: it is found, and fails
        (case,) = find_cases(["."])
        assert "m.hlo:1: nothing reads this CHECK line" in str(execute(case))
    assert result(f"// RUN: hlo-opt print %s | FileCheck %s\n// CHECK: sine\n{MODULE}").status == "passed"
