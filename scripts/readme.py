"""Keeps README.md, and the pages of docs/ that show commands, true: python -m scripts.readme

python -m scripts.readme command N        print the N-th of the two commands
python -m scripts.readme check [PAGE]     run every `$ ` line of the console blocks and compare with what is shown; exit
1 on a difference
python -m scripts.readme update [PAGE]    the same, and write what they print into the page; README.md without one

A block's commands run in the repository's top folder, with outputs in a folder that is thrown away. What depends on the
machine is left out of the comparison: lines that start with `check:`. A shown line `...` stands for lines left out.

The commands of a recipe run in a copy of the package, after the page's changes to it: a block with `title="PATH"` is a
file, `title="append to PATH"` goes to the end of one, and a `diff` block changes the one place of its file where all
its lines but the added ones stand. A PATH without a folder is a file beside the commands.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
TITLED = re.compile(r'^```(\w+) title="(append to )?([^"]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
INSTALL = re.compile(r"^pip install .*$", re.MULTILINE)


def commands(text: str) -> list[str]:
    """The two commands: the lines that install something."""
    return INSTALL.findall(text)


@dataclass(frozen=True)
class Shown:
    """A command of a console block and what the block says it prints."""

    command: str
    output: str


def shown(block: str) -> list[Shown]:
    """The commands of a console block, in order."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [Shown(*part.split("\n", 1)) for part in parts]


@dataclass(frozen=True)
class Tree:
    """Where the package is that a page's commands run, and the files beside these commands."""

    root: Path = ROOT
    files: dict[str, str] = field(default_factory=dict)

    def run(self, command: str, folder: Path) -> str:
        """What `hlo-opt ...` prints on both streams, with this tree's hlo_opt. A pipe into `head -N` or `tail -N` keeps
        N lines, as in a shell."""
        command, _, rest = command.partition(" | ")
        program, *arguments = shlex.split(command)
        if program not in ("hlo-opt", "cat") or not re.fullmatch(r"((head|tail) -\d+)?", rest):
            raise ValueError(f"a page shows a command that is not ours: {command}")
        ours = ("testdata/", "tests/", "scripts")
        arguments = [str(self.root / a) if a.startswith(ours) else a for a in arguments]
        start = [sys.executable, "-m", "hlo_opt"] if program == "hlo-opt" else ["cat"]
        environment = {**os.environ, "PYTHONPATH": str(self.package), "NO_COLOR": "1"}
        done = subprocess.run(
            [*start, *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=300,
        )
        text = (done.stderr + done.stdout).replace(f"{self.root}/", "")
        if rest:
            lines, count = text.splitlines(keepends=True), int(rest.rpartition("-")[2])
            text = "".join(lines[:count] if rest.startswith("head") else lines[-count:])
        return text

    @property
    def package(self) -> Path:
        """The folder that holds hlo_opt: for pages without changes, this Python's."""
        import hlo_opt  # not needed, and not there yet, when `.ci/run` asks for the commands

        return Path(hlo_opt.__file__).parent.parent if self.root == ROOT else self.root

    def block(self, block: str) -> list[tuple[Shown, str]]:
        """The commands of a console block, each with what it prints."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in self.files.items():
                Path(folder, name).write_text(text, encoding="utf-8")
            return [(example, self.run(example.command, Path(folder))) for example in shown(block)]


@contextmanager
def tree_of(text: str) -> Iterator[Tree]:
    """The tree for a page: the repository, or a copy with the page's changes. Raises ValueError for a change that does
    not fit."""
    changes = TITLED.findall(text)
    if not changes:
        yield Tree()
        return
    with tempfile.TemporaryDirectory() as folder:
        root, files = Path(folder).resolve(), dict[str, str]()
        for name in ("hlo_opt", "grammars"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        for language, is_end, name, body in changes:
            if "/" not in name:
                files[name] = body
                continue
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() and (ROOT / name).exists():
                shutil.copy(ROOT / name, path)
            if is_end:
                body = path.read_text(encoding="utf-8") + body
            elif language == "diff":
                body = changed(path.read_text(encoding="utf-8"), body, name)
            elif path.exists():
                raise ValueError(f"{name} is there already")
            path.write_text(body, encoding="utf-8")
        yield Tree(root, files)


def changed(text: str, difference: str, name: str) -> str:
    """A text after a change. Raises ValueError unless the lines that are there before stand in exactly one place."""
    rows = [(row[:1], row[1:]) for row in difference.splitlines(keepends=True)]
    before, after = ("".join(line for mark, line in rows if mark in marks) for marks in (" -", " +"))
    if text.count(before) != 1:
        raise ValueError(f"the lines of the change stand {text.count(before)} times in {name}:\n{before}")
    return text.replace(before, after)


def same(expected: str, actual: str) -> bool:
    """Whether the shown output is the real one, up to the lines that depend on the machine and those left out."""
    lines = [re.escape(line) for line in expected.splitlines()]
    pattern = "".join(r"(?:.*\n)*?" if line == r"\.\.\." else f"{line}\n" for line in lines)
    pattern = re.sub(r"^check:.*$", "check:.*", pattern, flags=re.MULTILINE)
    # how far rounding goes is the processor's and the compiler's
    pattern = re.sub(r"^(\\ \\ out\d+:).*$", r"\1.*", pattern, flags=re.MULTILINE)
    return re.fullmatch(pattern, actual) is not None


def differences(text: str) -> list[str]:
    """The commands whose shown output is not the real one, with the real one."""
    with tree_of(text) as tree:
        ran = [one for block in BLOCK.findall(text) for one in tree.block(block)]
    return [f"$ {e.command}\n{actual}" for e, actual in ran if not same(e.output, actual)]


def updated(text: str) -> str:
    """The text with what the commands print now. Blocks with lines left out stay as they are."""
    with tree_of(text) as tree:

        def renew(match: re.Match[str]) -> str:
            parts = tree.block(match[1])
            rows = [f"$ {e.command}\n{e.output if same(e.output, actual) else actual}" for e, actual in parts]
            return f"```console\n{''.join(rows)}```"

        return BLOCK.sub(renew, text)


def main(arguments: list[str]) -> int:
    """The command."""
    page = ROOT / arguments[1] if len(arguments) == 2 and arguments[0] != "command" else README
    text = page.read_text(encoding="utf-8")
    match arguments:
        case ["command", number]:
            print(commands(text)[int(number) - 1])
            return 0
        case ["check", *_]:
            found = differences(text)
            print("\n".join(found), end="")
            return int(bool(found))
        case ["update", *_]:
            page.write_text(updated(text), encoding="utf-8")
            return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
