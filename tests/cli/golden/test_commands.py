"""RUN lines: what they mean, and that nothing in them reaches a shell, a file to write, or a file outside the folder
under test."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click
import pytest

from hlo_opt.cli.golden.commands import SAFE, Case, RunLine, Stage, case_of, find_cases, run_lines
from hlo_opt.cli.group import group
from hlo_opt.diag import Source, UsageError

WRITES_OR_RUNS = {
    "fuse": {
        "output",
        "folder",
        "stats_file",
        "jobs",
        "scheduler",
        "checks",
        "backend",
        "precise",
        "inputs",
        "seed",
        "memory_limit",
        "elided",
    },
    "print": {"output"},
    "explain": {"measured"},
    "simplify": {"output", "checks", "certificate", "backend", "precise", "inputs", "seed", "memory_limit", "elided"},
}
"""Arguments of the safe verbs that are refused. An argument that is in neither list has not been thought about."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "a b.hlo"
    made.write_text("HloModule m\n")
    return made


def lines(text: str, path: Path) -> list[RunLine]:
    return run_lines(Source(text, str(path)), path, path.parent)


def test_stages_substitutions_and_continuations(path: Path) -> None:
    found = lines(
        "// a comment\n"
        "// RUN: hlo-opt fuse %s --passes='cse, dce' \\\n"
        "//RUN:   2>&1 | FileCheck %s --check-prefix=100%%\n"
        "// RUN: not hlo-opt print %S/'a b.hlo'\n",
        path,
    )
    assert found == [
        RunLine(
            (
                Stage("hlo-opt", ("fuse", str(path), "--passes=cse, dce"), merged=True),
                Stage("FileCheck", (str(path), "--check-prefix=100%")),
            ),
            2,
        ),
        RunLine((Stage("hlo-opt", ("print", str(path)), negated=True),), 4),
    ]
    assert [f.is_checked for f in found] == [True, False]


def test_a_name_that_looks_like_an_option_or_a_command_is_one_argument(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("-o.hlo", "$(touch x).hlo", "a' b\n|c.hlo", "%s.hlo"):
        path = Path(name)
        path.write_text("HloModule m\n")
        (found,) = lines("// RUN: hlo-opt fuse %s", path)
        assert found.stages[0].arguments == ("fuse", f"./{name}" if name.startswith("-") else name)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no command"),
        ("| FileCheck %s", "names no command"),
        ("FileCheck %s", "FileCheck stands last"),
        ("hlo-opt fuse %s | FileCheck %s | hlo-opt print -", "FileCheck stands last"),
        ("hlo-opt fuse %s |", "ends with `|`"),
        ("hlo-opt fuse %s \\", "ends with a backslash"),
        ("hlo-opt fuse '%s", "no closing quotation"),
        ("rm -rf %S", "cannot run `rm`"),
        ("/bin/hlo-opt fuse %s", "cannot run `/bin/hlo-opt`"),
        ("hlo-opt fuse %s; rm x", "`;` means something to a shell"),
        ("hlo-opt fuse %s && rm x", "`&&` means something to a shell"),
        ("hlo-opt fuse %s > x", "`>` means something to a shell"),
        ("hlo-opt fuse < %s", "`<` means something to a shell"),
        ("hlo-opt fuse %s --passes=fixpoint(cse)", "`(` means something to a shell"),
        ("hlo-opt fuse %s $(rm x)", r"`\(` means something to a shell"),
        ("hlo-opt fuse %s -o %t", "`%t` stands for nothing"),
        ("hlo-opt fuse %s -o out.hlo", "cannot give `-o` to `hlo-opt fuse`"),
        ("hlo-opt fuse %s -oout.hlo", "cannot give `-o`"),
        ("hlo-opt fuse %s --emit=d", "cannot give `--emit`"),
        ("hlo-opt fuse %s --stats s.json", "cannot give `--stats`"),
        ("hlo-opt fuse %s --check", "cannot give `--check`"),
        ("hlo-opt print %s -o out.hlo", "cannot give `-o` to `hlo-opt print`"),
        ("hlo-opt run %s", "cannot call `hlo-opt run`"),
        ("hlo-opt check %s", "cannot call `hlo-opt check`"),
        ("hlo-opt test %S --update", "cannot call `hlo-opt test`"),
        ("hlo-opt --list-passes", "cannot call `hlo-opt --list-passes`"),
        ("hlo-opt", "cannot call `hlo-opt `"),
        ("hlo-opt fuse /etc/passwd", "`/etc/passwd` is no file below the folder under test"),
        ("hlo-opt fuse %S/../other.hlo", "is no file below the folder under test"),
        ("hlo-opt fuse %S/no.hlo", "is no file below"),
        ("hlo-opt fuse %S/link.hlo", "is no file below"),
        ("hlo-opt fuse %s --config /etc/hosts", "`/etc/hosts` is no file below"),
        ("hlo-opt fuse %s --target ../gpu.toml", "`../gpu.toml` is no file below"),
        ("hlo-opt fuse %s " + "x" * 10_000, "longer than"),
        ("hlo-opt fuse %s" + " | hlo-opt print -" * 8, "more than 8 commands"),
    ],
)
def test_what_is_refused(text: str, why: str, path: Path) -> None:
    (path.parent.parent / "other.hlo").write_text("HloModule m\n")
    (path.parent / "link.hlo").symlink_to(path.parent.parent / "other.hlo")
    with pytest.raises(UsageError, match=why if "\\" in why else re.escape(why)) as caught:
        lines(f"HloModule m\n// RUN: {text}\n", path)
    assert caught.value.code == "HLO340" and caught.value.line == 2


@pytest.mark.parametrize(
    "text",
    [
        "hlo-opt explain FUS201",
        "hlo-opt fuse %s --target a100_sxm_80 | hlo-opt print - | FileCheck %s",
        "hlo-opt fuse %S/../%S/x.hlo",
        "hlo-opt fuse %s --no-such-option",
        "hlo-opt fuse --help",
        "not filecheck %s",
    ],
)
def test_what_is_left_to_the_command_or_the_check(text: str, path: Path) -> None:
    text = text.replace("%S/../%S/x.hlo", "%s")
    if text.startswith("not"):
        text = f"hlo-opt print %s | {text}"
    assert len(lines(f"// RUN: {text}", path)) == 1


def test_every_argument_of_the_safe_verbs_has_been_thought_about() -> None:
    for verb, allowed in SAFE.items():
        command = group.get_command(click.Context(group), verb)
        assert command is not None
        names = {p.name for p in command.params}
        refused = WRITES_OR_RUNS.get(verb, set())
        assert refused <= names
        assert names - refused <= allowed, f"{verb}: does one of these write files or run modules?"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "run.hlo": "// RUN: hlo-opt print %s\n",
        "plain.hlo": "HloModule m\n",
        "plain.golden.hlo": "",
        "told.hlo": "HloModule m\n",
        "told.golden.txt": "",
        "dump.hlo": "HloModule m\n",
        "orphan.golden.hlo": "",
        "notes.txt": "// RUN: hlo-opt print %s\n",
        "sub/deep.hlo": "  // RUN: hlo-opt print %s\n",
        ".git/hidden.hlo": "// RUN: hlo-opt print %s\n",
        "-o.hlo": "// RUN: hlo-opt print %s\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_a_folder_is_searched(folder: Path) -> None:
    assert [(str(c.path), c.golden and str(c.golden)) for c in find_cases(["."])] == [
        ("-o.hlo", None),
        ("orphan.golden.hlo", "orphan.golden.hlo"),
        ("plain.hlo", "plain.golden.hlo"),
        ("run.hlo", None),
        ("told.hlo", "told.golden.txt"),
        ("sub/deep.hlo", None),
    ]


def test_a_file_is_a_case_by_being_named_under_either_name(folder: Path) -> None:
    plain = Case(Path("plain.hlo"), Path(), Path("plain.golden.hlo"), is_named=True)
    assert find_cases(["plain.hlo"]) == find_cases(["plain.golden.hlo"]) == [plain]
    assert find_cases(["dump.hlo"]) == [Case(Path("dump.hlo"), Path(), is_named=True)]


def test_what_is_there_twice_is_run_once(folder: Path) -> None:
    assert len(find_cases(["plain.hlo", ".", "."])) == 6


def test_a_pipe_is_never_opened(folder: Path) -> None:
    os.mkfifo(folder / "pipe.hlo")
    assert case_of(folder / "pipe.hlo", folder) is None


@pytest.mark.parametrize(
    ("name", "why"), [("no", "no such file or folder"), ("a\0b", "no such file"), ("empty", "no golden file")]
)
def test_what_cannot_be_tested_is_bad_usage(name: str, why: str, folder: Path) -> None:
    (folder / "empty").mkdir()
    with pytest.raises(UsageError, match=why):
        find_cases([name])
