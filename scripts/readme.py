"""Keeps README.md, and the pages of docs/ that show commands, true: python -m scripts.readme

python -m scripts.readme command N        print the N-th of the two commands
python -m scripts.readme check [PAGE]     run every `$ ` line of the console blocks and compare with what is shown; exit
1 on a difference
python -m scripts.readme update [PAGE]    the same, and write what they print into the page; README.md without one

A block's commands run in the repository's top folder, with outputs in a folder that is thrown away. What depends on the
machine is left out of the comparison: lines that start with `check:`. A shown line `...` stands for lines left out.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
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


def run(command: str, folder: Path) -> str:
    """What `hlo-opt ...` prints on both streams, with this Python's hlo_opt. A pipe into `head -N` or `tail -N` keeps N
    lines, as in a shell."""
    import hlo_opt  # not needed, and not there yet, when `.ci/run` asks for the commands

    command, _, rest = command.partition(" | ")
    program, *arguments = shlex.split(command)
    if program not in ("hlo-opt", "cat") or not re.fullmatch(r"((head|tail) -\d+)?", rest):
        raise ValueError(f"a page shows a command that is not ours: {command}")
    arguments = [str(ROOT / a) if a.startswith(("testdata/", "scripts")) else a for a in arguments]
    start = [sys.executable, "-m", "hlo_opt"] if program == "hlo-opt" else ["cat"]
    environment = {**os.environ, "PYTHONPATH": str(Path(hlo_opt.__file__).parent.parent), "NO_COLOR": "1"}
    done = subprocess.run(
        [*start, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
    )
    text = (done.stderr + done.stdout).replace(f"{ROOT}/", "")
    if rest:
        lines, count = text.splitlines(keepends=True), int(rest.rpartition("-")[2])
        text = "".join(lines[:count] if rest.startswith("head") else lines[-count:])
    return text


def same(expected: str, actual: str) -> bool:
    """Whether the shown output is the real one, up to the lines that depend on the machine and those left out."""
    lines = [re.escape(line) for line in expected.splitlines()]
    pattern = "".join(r"(?:.*\n)*?" if line == r"\.\.\." else f"{line}\n" for line in lines)
    pattern = re.sub(r"^check:.*$", "check:.*", pattern, flags=re.MULTILINE)
    return re.fullmatch(pattern, actual) is not None


def differences(text: str) -> list[str]:
    """The commands whose shown output is not the real one, with the real one."""
    found = []
    for block in BLOCK.findall(text):
        with tempfile.TemporaryDirectory() as folder:
            for example in shown(block):
                actual = run(example.command, Path(folder))
                if not same(example.output, actual):
                    found.append(f"$ {example.command}\n{actual}")
    return found


def updated(text: str) -> str:
    """The text with what the commands print now. Blocks with lines left out stay as they are."""

    def renew(match: re.Match[str]) -> str:
        with tempfile.TemporaryDirectory() as folder:
            parts = [(e, run(e.command, Path(folder))) for e in shown(match[1])]
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
