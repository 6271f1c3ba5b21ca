"""The page: whole, alone, and nothing of a dump is anything but text in it."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from importlib import resources

import pytest

from hlo_opt import parse
from hlo_opt.passes.run import report_on, run
from hlo_opt.report.view import page
from hlo_opt.report.view.data import data_of
from hlo_opt.report.view.page import PROGRAM, as_html, json_text, program_text
from hlo_opt.report.view.steps import PassLog

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\u2028\u2029'"
TEXT = """HloModule evil

ENTRY e {
  p = f32[64]{0} parameter(0)
  a = f32[64]{0} tanh(p), metadata={op_name="NAME" source_file="NAME" source_line=4}
  ROOT b = f32[64]{0} negate(a)
}
""".replace("NAME", EVIL)


class Elements(HTMLParser):
    """The elements of a page with their attributes, and what script elements hold."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.seen and self.seen[-1][0] == "script":
            self.scripts.append(data)


@pytest.fixture(scope="module")
def data() -> dict[str, object]:
    module = parse(TEXT)
    log = PassLog.of(module)
    return data_of(report_on(run(module, observer=log)), log)


def test_hostile_names_end_no_element(data: dict[str, object]) -> None:
    read = Elements()
    read.feed(as_html(data))
    tags = [tag for tag, _ in read.seen]
    assert tags.count("script") == 2 and "img" not in tags
    held = next(text for text in read.scripts if text.startswith("{"))
    assert json.loads(held) == json.loads(json.dumps(data))
    assert EVIL in json.dumps(data, ensure_ascii=False)


def test_the_page_loads_nothing(data: dict[str, object]) -> None:
    text = as_html(data)
    read = Elements()
    read.feed(text)
    assert not [a for _, attributes in read.seen for a in attributes if a in ("src", "href") or a.startswith("on")]
    policy = next(a["content"] for tag, a in read.seen if tag == "meta" and "http-equiv" in a)
    assert policy is not None and policy.startswith("default-src 'none';")
    for element in ("script", "style"):
        bodies = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        hashes = [b64encode(sha256(body.encode()).digest()).decode() for body in bodies]
        assert len(hashes) == 1 and f"{element}-src 'sha256-{hashes[0]}'" in policy


def test_the_same_data_gives_the_same_bytes(data: dict[str, object]) -> None:
    assert as_html(data) == as_html(json.loads(json.dumps(data)))


def test_the_program_writes_text_only() -> None:
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
        "fetch(",
        "XMLHttp",
    ):
        assert word not in program_text(), word


def test_every_part_of_the_program_is_in_it() -> None:
    files = {f.name for f in resources.files(page.__package__).iterdir() if f.name.endswith(".js")}
    assert files == set(PROGRAM)


@pytest.mark.parametrize("character", "<>&\u2028\u2029")
def test_what_could_end_a_script_is_escaped(character: str) -> None:
    text = json_text({"a": f"x{character}y"})
    assert character not in text and json.loads(text) == {"a": f"x{character}y"}


def test_numbers_that_json_lacks_become_null() -> None:
    assert json.loads(json_text({"a": [float("inf"), float("nan"), 1.5]})) == {"a": [None, None, 1.5]}
