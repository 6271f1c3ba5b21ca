"""The page in a browser: whole, and nothing of a dump is markup in it."""

from __future__ import annotations

from html.parser import HTMLParser

from hlo_opt.report.diff.comparison import diff
from hlo_opt.report.diff.html import as_html

EVIL = '<script>alert("1")</script>&amp;\'"'
TEXT = """HloModule m

ENTRY e {
  p = f32[64,32]{1,0} parameter(0)
  a = f32[64,32]{1,0} custom-call(p), custom_call_target="one", metadata={op_name="a" source_file="NAME" source_line=4}
  c = f32[64,32]{1,0} copy(a)
  ROOT b = f32[64,32]{1,0} negate(c)
}
""".replace("NAME", EVIL.replace('"', '\\"'))


class Tags(HTMLParser):
    """Counts what is open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.data = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.data += data


def test_names_are_escaped_and_tags_are_closed():
    new = TEXT.replace('target="one"', f'target="{EVIL.replace(chr(34), chr(92) + chr(34))}"').replace(
        "copy(a)", "abs(a)"
    )
    page = as_html(diff(TEXT, new, fuse="never"))
    tags = Tags()
    tags.feed(page)
    assert tags.open == [] and "script" not in tags.seen and "<script" not in page
    assert "alert" in tags.data and EVIL in tags.data.replace("\\", "")
    assert {"details", "table", "summary"} <= tags.seen
    assert "http" not in page


def test_a_page_without_differences():
    tags = Tags()
    tags.feed(as_html(diff(TEXT, TEXT)))
    assert tags.open == [] and "no difference" in tags.data and "details" not in tags.seen
