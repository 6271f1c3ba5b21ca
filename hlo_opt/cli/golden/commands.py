"""Golden files: those with a RUN line, and `NAME.hlo` next to a `NAME.golden.hlo` (or `.golden.txt`, `.golden.json`);
and what RUN lines may say and mean.

RUN lines are read as a text of commands of this program; no shell is ever involved.

    // RUN: hlo-opt fuse %s --passes=cse,dce | FileCheck %s
    // RUN: not hlo-opt fuse %s --max-kernels 1 2>&1 | FileCheck %s --check-prefix=OVER

`%s` is the file itself, `%S` its folder, `%%` a percent sign. A backslash at the end continues a line. Verbs that run
modules, options that write files and inputs outside the folder under test are refused: a golden file may come from
anywhere.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hlo_opt.cli.sizes import LIKE
from hlo_opt.diag import Source, Span, UsageError, did_you_mean

REFUSED = "HLO340"
MOST_STAGES = 8
LONGEST_LINE = 10_000
"""Characters of one RUN line, its continuations included."""

_LINE = re.compile(r"^[ \t]*//[ \t]*RUN:(.*)$", re.MULTILINE)
_CHECK = re.compile(r"^[ \t]*//[ \t]*CHECK(?:-[A-Z]+(?:-[0-9]+)?)?:", re.MULTILINE)
_SUBSTITUTION = re.compile(r"%(.?)", re.DOTALL)

_FUSING = {
    "file",
    "preset",
    "passes",
    "config",
    "target",
    "simplify",
    "effort",
    "stop_after_step",
    "choices",
    "trip_count",
}
_BUDGET = {"max_kernels", "max_bytes", "fail_on"}
_READING = {"max_errors", "allow_unknown", "split"}
SAFE: dict[str, frozenset[str]] = {
    "fuse": frozenset(
        _FUSING | _BUDGET | _READING | {"what_if", "force", "forbid", "print_after", "time_passes", "dynamic"}
    ),
    "explain": frozenset(
        _FUSING
        | _BUDGET
        | _READING
        | {"instruction", "what_if", "force", "forbid", "form", "json", "source_root", "everything", "verbose", "by"}
        | {"dynamic", "types"}
    ),
    "print": frozenset(_READING | {"file", "style"}),
    "stats": frozenset(_READING | {"file", "target", "trip_count", "as_json", "form", "only_hash", "dynamic"}),
    "simplify": frozenset(_READING | {"file", "fast_math", "replays"}),
    "passes": frozenset({"name", "as_json", "form", "rules"}),
    "ops": frozenset({"opcode", "types", "calls", "as_json", "form"}),
    "targets": frozenset({"name", "as_json", "form"}),
}
"""The verbs that only read and print, and the arguments of them that a RUN line may give."""

_NAMES_A_FILE = ("file", "config", "target")


@dataclass(frozen=True)
class Stage:
    """One command of a pipe. `negated` wants it to fail, `merged` sends what it says on stderr the same way as its
    output."""

    program: str
    arguments: tuple[str, ...]
    negated: bool = False
    merged: bool = False

    def __str__(self) -> str:
        words = [*(["not"] if self.negated else []), self.program, *self.arguments]
        return shlex.join(words) + (" 2>&1" if self.merged else "")


@dataclass(frozen=True)
class RunLine:
    """One RUN line of a file: its stages, and where it stands."""

    stages: tuple[Stage, ...]
    line: int

    @property
    def is_checked(self) -> bool:
        """Whether its output goes to FileCheck."""
        return self.stages[-1].program == FILE_CHECK


HLO_OPT = "hlo-opt"
FILE_CHECK = "FileCheck"
_PROGRAMS = {"hlo-opt": HLO_OPT, "FileCheck": FILE_CHECK, "filecheck": FILE_CHECK}


def has_run_line(text: str) -> bool:
    """Whether a text has a RUN line."""
    return _LINE.search(text) is not None


def first_check(text: str) -> int | None:
    """The line, from 1, of the first CHECK line of a text; None without one."""
    found = _CHECK.search(text)
    return None if found is None else text.count("\n", 0, found.start()) + 1


def default_line(path: Path) -> RunLine:
    """What is run for a module that has no RUN line: `hlo-opt fuse %s`."""
    return RunLine((Stage(HLO_OPT, ("fuse", spelt(path))),), 1)


def spelt(path: Path) -> str:
    """A path as an argument: never taken for an option."""
    text = str(path)
    return f"./{text}" if text.startswith("-") else text


def run_lines(source: Source, path: Path, root: Path) -> list[RunLine]:
    """The RUN lines of a file at `path`, below the folder `root` that is under test. Raises UsageError (HLO340), with
    the line, for what is refused."""
    lines: list[RunLine] = []
    pending = ""
    start: re.Match[str] | None = None
    for match in _LINE.finditer(source.text):
        start = start or match
        text = match[1].rstrip()
        if text.endswith("\\"):
            pending += text[:-1] + " "
            continue
        lines.append(_Reader(Span(source, start.start(1), match.end(1)), path, root).line(pending + text))
        pending, start = "", None
    if start is not None:
        raise UsageError(
            "this RUN line ends with a backslash", code=REFUSED, span=Span(source, start.start(1), start.end(1))
        )
    return lines


class _Reader:
    def __init__(self, span: Span, path: Path, root: Path) -> None:
        first = span.source.text[span.start : span.end].partition("\n")[0]
        self._span = Span(span.source, span.start + len(first) - len(first.lstrip()), span.start + len(first.rstrip()))
        self._path = path
        self._root = root

    def line(self, text: str) -> RunLine:
        if len(text) > LONGEST_LINE:
            raise self._error(f"a RUN line is longer than {LONGEST_LINE} characters")
        words = self._words(text)
        stages = []
        while words:
            end = words.index("|") if "|" in words else len(words)
            stages.append(self._stage(words[:end]))
            if end == len(words) - 1:
                raise self._error("a RUN line ends with `|`")
            words = words[end + 1 :]
        if not stages:
            raise self._error("a RUN line names no command", "// RUN: hlo-opt fuse %s | FileCheck %s")
        if len(stages) > MOST_STAGES:
            raise self._error(f"a RUN line pipes through more than {MOST_STAGES} commands")
        if any(s.program == FILE_CHECK for s in stages[:-1]) or stages[0].program == FILE_CHECK:
            raise self._error("FileCheck stands last, and checks what `hlo-opt` prints")
        return RunLine(tuple(stages), self._span.line)

    def _words(self, text: str) -> list[str]:
        """The words, and `|` and `2>&1` as words of their own; what else would mean something to a shell is refused."""
        lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>()")
        lexer.whitespace_split = True
        lexer.commenters = ""
        try:
            raw = list(lexer)
        except ValueError as error:
            raise self._error(f"this RUN line cannot be read: {str(error).lower()}") from None
        words: list[str] = []
        position = 0
        while position < len(raw):
            word = raw[position]
            if raw[position : position + 3] == ["2", ">&", "1"]:
                words.append("2>&1")
                position += 3
                continue
            if word and word != "|" and set(word) <= set("|&;<>()"):
                raise self._error(
                    f"`{word}` means something to a shell, and a RUN line is not given to one",
                    "a RUN line is `hlo-opt VERB ...`, may pipe into `FileCheck %s`, and may quote such characters",
                )
            words.append(word)
            position += 1
        return words

    def _stage(self, words: list[str]) -> Stage:
        negated = merged = False
        if words[:1] == ["not"]:
            negated, words = True, words[1:]
        if words[-1:] == ["2>&1"]:
            merged, words = True, words[:-1]
        if not words:
            raise self._error("a RUN line names no command", "// RUN: hlo-opt fuse %s | FileCheck %s")
        program = _PROGRAMS.get(words[0])
        if program is None:
            raise self._error(
                f"a RUN line cannot run `{words[0]}`",
                "only `hlo-opt` and `FileCheck` run, after `not` if they should fail",
            )
        arguments = tuple(_SUBSTITUTION.sub(self._substitute, word) for word in words[1:])
        if program == HLO_OPT:
            self._check(arguments)
        return Stage(program, arguments, negated, merged)

    def _substitute(self, match: re.Match[str]) -> str:
        meaning = {"s": spelt(self._path), "S": spelt(self._path.parent), "%": "%"}
        if match[1] not in meaning:
            raise self._error(
                f"`{match[0]}` stands for nothing here",
                "%s is this file, %S its folder, %% a percent sign; nothing may be written",
            )
        return meaning[match[1]]

    def _check(self, arguments: tuple[str, ...]) -> None:
        """Refuse what is not known to be harmless. What the command line does not understand is left to it."""
        import click

        from hlo_opt.cli.group import group

        verb = arguments[0] if arguments else ""
        if verb not in SAFE:
            raise self._error(
                f"a RUN line cannot call `hlo-opt {verb}`",
                did_you_mean(verb, SAFE) or f"verbs that only read and print: {', '.join(SAFE)}",
            )
        command = group.get_command(click.Context(group), verb)
        assert command is not None
        try:
            values, _, order = command.make_parser(click.Context(command)).parse_args(list(arguments[1:]))
        except click.UsageError:
            return
        for parameter in order:
            name = parameter.name or ""
            if name not in SAFE[verb] and parameter in command.params:  # --help is not among them
                raise self._error(
                    f"a RUN line cannot give `{parameter.opts[-1]}` to `hlo-opt {verb}`",
                    "it may read and print, but neither write files nor run modules",
                )
            if name in _NAMES_A_FILE and isinstance(values.get(name), str):
                self._check_file(name, values[name])
        for text in values.get("dynamic") or ():
            if text.startswith(LIKE):
                self._check_file("dynamic", text.removeprefix(LIKE))

    def _check_file(self, name: str, value: str) -> None:
        if name == "file" and (value in ("-", spelt(self._path)) or re.fullmatch(r"[A-Za-z]{3}[0-9]{3}", value)):
            return
        if name == "target" and not value.endswith(".toml") and "/" not in value and "\\" not in value:
            return
        if not confined(value, self._root):
            raise self._error(f"`{value}` is no file below the folder under test", "%s is this file, %S its folder")

    def _error(self, message: str, hint: str | None = None) -> UsageError:
        return UsageError(message, code=REFUSED, span=self._span, hint=hint)


def confined(name: str, root: Path) -> bool:
    """Whether a path leads to a plain file below a folder, links followed."""
    try:
        path = Path(name).resolve()
        return path.is_relative_to(root.resolve()) and path.is_file()
    except (OSError, ValueError, RuntimeError):
        return False


SUFFIX = ".hlo"
GOLDENS = (".golden.hlo", ".golden.txt", ".golden.json")


@dataclass(frozen=True)
class Case:
    """One file to test.

    path      the module, or a golden without one
    root      the folder under test; a RUN line reads nothing outside it
    golden    the text that it must give; None where RUN and CHECK lines say all
    is_named  whether the user named the file itself, so that `--update` may write its first golden
    """

    path: Path
    root: Path
    golden: Path | None = None
    is_named: bool = False


def find_cases(names: Sequence[str]) -> list[Case]:
    """The cases of files and folders, each folder's in the order of their paths. Raises UsageError for a path that does
    not exist, and when there is no case."""
    cases: dict[Path, Case] = {}
    for name in names:
        path = Path(name)
        try:
            is_folder, is_file = path.is_dir(), path.is_file()
        except ValueError:
            is_folder = is_file = False
        if not (is_folder or is_file):
            raise UsageError("no such file or folder", filename=name)
        if is_folder and not os.access(path, os.R_OK | os.X_OK):  # a search would skip it without a word
            raise UsageError("permission denied", filename=name)
        for case in _in_folder(path) if is_folder else [named(path)]:
            cases.setdefault(case.path, case)
    if not cases:
        raise UsageError(
            "there is no golden file",
            filename=names[0] if len(names) == 1 else None,
            hint="a golden file is NAME.hlo with a `// RUN:` line, or with a NAME.golden.hlo next to it",
        )
    return list(cases.values())


def named(path: Path) -> Case:
    """The case of a file that the user named: the module, or its golden."""
    module = _module_of(path) or path
    return Case(module if module.is_file() else path, path.parent, _golden_of(module), is_named=True)


def case_of(path: Path, root: Path) -> Case | None:
    """The case of a file that was found; None for one that is no golden file."""
    if not path.name.endswith(SUFFIX) and not path.name.endswith(GOLDENS):
        return None
    if not path.is_file():
        return None
    module = _module_of(path)
    if module is not None:
        return None if module.is_file() else Case(path, root, path)
    golden = _golden_of(path)
    if golden is None and not _asks(path):
        return None
    return Case(path, root, golden)


def _in_folder(root: Path) -> Iterator[Case]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f != "__pycache__")
        for name in sorted(names):
            case = case_of(Path(folder) / name, root)
            if case is not None:
                yield case


def _module_of(path: Path) -> Path | None:
    """The module that a golden belongs to, whether or not it exists; None for a path that is no golden."""
    for suffix in GOLDENS:
        if path.name.endswith(suffix) and len(path.name) > len(suffix):
            return path.with_name(path.name[: -len(suffix)] + SUFFIX)
    return None


def _golden_of(module: Path) -> Path | None:
    stem = module.name.removesuffix(SUFFIX)
    goldens = [module.with_name(stem + suffix) for suffix in GOLDENS]
    return next((g for g in goldens if g.is_file()), None)


def first_golden(module: Path) -> Path:
    """Where the first golden of a module is written."""
    return module.with_name(module.name.removesuffix(SUFFIX) + GOLDENS[0])


def _asks(path: Path) -> bool:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        return has_run_line(text) or first_check(text) is not None
    except OSError:
        return True  # running it tells why it cannot be read
