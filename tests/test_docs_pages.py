"""What the pages of docs/ show is what the program prints, and every command that they name exists."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hlo_opt.cli.group import VERBS
from scripts import readme

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if readme.BLOCK.search(page.read_text(encoding="utf-8"))]

RECIPES = sorted((DOCS / "recipes").glob("*.md"))


def test_explain_has_a_page() -> None:
    assert DOCS / "explain.md" in PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_shown_outputs_are_real(page: Path) -> None:
    differences = readme.differences(page.read_text(encoding="utf-8"))
    assert "\n".join(differences) == "", f"python -m scripts.readme update {page.relative_to(readme.ROOT)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_every_verb_that_is_named_exists(page: Path) -> None:
    assert {m[1] for m in re.finditer(r"`hlo-opt ([a-z]+)", page.read_text(encoding="utf-8"))} <= set(VERBS)


@pytest.mark.skipif(shutil.which("ruff") is None, reason="ruff is not installed")
@pytest.mark.parametrize("page", RECIPES, ids=lambda p: p.stem)
def test_code_of_a_recipe_passes_the_checks_that_a_change_must_pass(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names = {
        name for _, _, name, _ in readme.TITLED.findall(text) if name.startswith("hlo_opt/") and name[-3:] == ".py"
    }
    with readme.tree_of(text) as tree:
        files = [str(tree.root / name) for name in names]
        settings = ["--config", str(readme.ROOT / "pyproject.toml")]
        for verb in (["check"], ["format", "--check"]):
            done = subprocess.run(["ruff", *verb, *settings, *files], capture_output=True, text=True)
            assert files and done.returncode == 0, done.stdout + done.stderr


def test_every_script_that_is_run_by_hand_has_a_line() -> None:
    scripts = DOCS.parent / "scripts"
    page = (scripts / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"scripts\.((?:bench\.)?\w+)", page))
    named |= {name.replace("/", ".") for name in re.findall(r"`(bench/\w+)\.py`", page)}
    files = [*scripts.glob("*.py"), *(scripts / "bench").glob("*.py")]
    runs = {f for f in files if '__name__ == "__main__"' in f.read_text(encoding="utf-8")}
    assert {".".join(f.relative_to(scripts).with_suffix("").parts) for f in runs} <= named
