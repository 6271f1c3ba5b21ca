"""`hlo_opt.report(module)`: text, page, and what a notebook shows."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import hlo_opt

SOFTMAX = (Path(__file__).resolve().parents[2] / "testdata" / "dumps" / "softmax.hlo").read_text()


class Frames(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.frames: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.frames.append({"tag": tag, **dict(attrs)})


def test_a_notebook_shows_the_page_in_a_frame(tmp_path: Path) -> None:
    made = hlo_opt.report(hlo_opt.parse(SOFTMAX))
    read = Frames()
    read.feed(made._repr_html_())
    (frame,) = read.frames
    assert frame["tag"] == "iframe" and frame["sandbox"] == "allow-scripts"
    assert frame["srcdoc"] == made.html
    made.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == made.html


def test_as_text_it_is_what_explain_prints() -> None:
    assert "kernels" in str(hlo_opt.report(SOFTMAX))


def test_the_package_is_still_a_package() -> None:
    from hlo_opt.report.page import Page

    assert Page is not None and "report" in dir(hlo_opt)
