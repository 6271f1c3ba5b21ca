"""The pages of the site, for mkdocs: python -m scripts.site_pages [FOLDER]

Writes `build/site/docs`: the pages of docs/, README.md as the first page, CONTRIBUTING.md and CHANGELOG.md, and three
pages that the program says itself: its verbs, its codes, and the rules of lint. `scripts/site.sh` makes HTML of them.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from hlo_opt.cli.group import VERBS, group
from hlo_opt.diag.reason import ReasonSpec, reason_specs
from hlo_opt.report.lint.base import rule_specs

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "site" / "docs"
MOVED = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
GENERATED = ("verbs.md", "codes.md", "rules.md", *MOVED.values())


def write(folder: Path) -> None:
    """All pages, into a folder that is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    for path in folder.rglob("*.md"):
        up = "../" * len(path.relative_to(folder).parts)
        path.write_text(linked(path.read_text(encoding="utf-8"), up), encoding="utf-8")
    for name, target in MOVED.items():
        (folder / target).write_text(linked((ROOT / name).read_text(encoding="utf-8"), ""), encoding="utf-8")
    (folder / "verbs.md").write_text(verbs(), encoding="utf-8")
    (folder / "codes.md").write_text(codes("Codes", reason_specs()), encoding="utf-8")
    (folder / "rules.md").write_text(codes("Rules of lint", rule_specs().values()), encoding="utf-8")


def linked(text: str, up: str) -> str:
    """A page with its links as they are on the site: docs/ is its top folder, and the pages at the top of the
    repository have other names there. `up` leads from the page to the repository's top folder."""
    for name, target in MOVED.items():
        text = text.replace(f"]({up}{name}", f"]({up[3:]}{target}")
    return text if up else text.replace("](docs/", "](")


def verbs() -> str:
    """A section for each verb, with what `--help` says."""
    parts = ["# Verbs\n\n`hlo-opt VERB --help` prints the same.\n"]
    top = click.Context(group, info_name="hlo-opt")
    for verb, purpose in VERBS.items():
        command = group.get_command(top, verb)
        if command is not None:
            with click.Context(command, info_name=f"hlo-opt {verb}", terminal_width=90, max_content_width=90) as shown:
                parts.append(f"## {verb}\n\n{purpose}\n\n```text\n{command.get_help(shown)}\n```\n")
    return "\n".join(parts)


def codes(title: str, specs: Iterable[ReasonSpec]) -> str:
    """A section for each code."""
    return "\n".join([f"# {title}\n", *map(_code, sorted(specs, key=lambda spec: spec.code))])


def _code(spec: ReasonSpec) -> str:
    example = f"\n```text\n{spec.example.strip()}\n```\n" if spec.example else ""
    rows = [("message", spec.template), ("hint", spec.hint)]
    table = "\n".join(f"- {name}: {escaped(text)}" for name, text in rows)
    return f"## {spec.code} {spec.slug}\n\n{escaped(spec.page.strip())}\n\n{table}\n{example}"


def escaped(text: str) -> str:
    """A text of ours in Markdown: `<` outside of code would begin an element."""
    return "".join(
        part if n % 2 else part.replace("<", "&lt;").replace("*", "\\*")
        for n, part in enumerate(re.split(r"(`[^`]*`)", text))
    )


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    write(target)
    print(target)
