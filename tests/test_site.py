"""The site: every page is in its navigation, every link leads somewhere, and what is generated says what the program
says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hlo_opt.cli.group import VERBS
from hlo_opt.diag.reason import reason_specs
from scripts import site_pages as site

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("site") / "docs"
    site.write(made)
    return made


def anchors(page: Path) -> set[str]:
    """The places of a page that a link may name."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = []
    for target in LINK.findall(text):
        name, _, place = target.partition("#")
        if "://" in name:
            continue
        other = (page.parent / name).resolve() if name else page
        if not other.is_file() or (place and place not in anchors(other)):
            found.append(f"{page.name}: {target}")
    return found


def test_links_of_the_repository_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert [one for page in pages for one in broken(page)] == []


def test_links_of_the_site_lead_somewhere(folder: Path) -> None:
    assert [one for page in folder.rglob("*.md") for one in broken(page)] == []


def test_navigation_has_every_page_once(folder: Path) -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:")[2]
    named = re.findall(r": (\S+\.md)$", text, re.MULTILINE)
    assert sorted(named) == sorted(str(page.relative_to(folder)) for page in folder.rglob("*.md"))


def test_verbs_and_codes_have_their_sections(folder: Path) -> None:
    assert anchors(folder / "verbs.md") >= set(VERBS)
    text = (folder / "codes.md").read_text(encoding="utf-8")
    assert all(f"\n## {spec.code} {spec.slug}\n" in text for spec in reason_specs())
    assert site.escaped("a <b> * `<c>`") == "a &lt;b> \\* `<c>`"


def test_first_screen_is_short() -> None:
    """What a visitor reads before he scrolls: a problem, a command with what it prints, a picture, in 25 lines."""
    screen = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## ")[0].splitlines()
    assert len(screen) < 25
    assert sum(line.startswith("$ ") for line in screen) == 1 and any(line.startswith("![") for line in screen)
