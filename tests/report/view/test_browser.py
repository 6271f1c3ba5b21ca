"""The page in a real browser: it opens, finds, selects on both sides, zooms, stays accessible in light and dark, and
shows hostile names as text."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import AXE, Browser, browsers, wait_for

from hlo_opt import diff, parse
from hlo_opt.passes.run import report_on, run
from hlo_opt.report.view.data import comparison_data, data_of
from hlo_opt.report.view.graph import graph_json, graph_of
from hlo_opt.report.view.page import as_html
from hlo_opt.report.view.steps import PassLog

ROOT = Path(__file__).resolve().parents[3]
DUMPS = ROOT / "testdata" / "dumps"
TABS = ("Graph", "Kernels", "Edges", "Source", "Passes")
START = Callable[..., Browser]


@pytest.fixture(scope="module")
def start() -> Iterator[START]:
    with browsers() as made:
        yield made


def data(text: str) -> dict[str, Any]:
    module = parse(text)
    log = PassLog.of(module)
    return data_of(report_on(run(module, observer=log)), log, str(ROOT))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("view") / "page.html"
    made.write_text(as_html(data((DUMPS / "softmax_library.hlo").read_text())), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def window(start: START) -> Browser:
    return start()


def shown(browser: Browser, side: int) -> str:
    """What a canvas shows, as a picture."""
    return str(browser.run("return document.querySelectorAll('canvas')[arguments[0]].toDataURL()", side))


def test_it_opens_without_a_word_on_the_console(window: Browser, page: Path) -> None:
    window.open(page)
    assert window.text("h1") == "jit_softmax_library"
    assert "kernels" in window.text("header")
    assert window.errors() == []


def test_a_search_selects_on_both_sides(window: Browser, page: Path) -> None:
    window.open(page)
    time.sleep(0.3)
    before = [shown(window, side) for side in (0, 1)]
    window.type("input[type=search]", "exp")
    assert window.run("return document.querySelectorAll('.results button').length") > 0
    window.press("Enter")
    wait_for(lambda: all(shown(window, side) != before[side] for side in (0, 1)))
    assert "exp" in window.text(".panel h2")
    assert "What its time is made of" in window.text(".panel")
    window.press("Escape")
    wait_for(lambda: window.text(".panel h2") == "Summary")


def test_zoom_and_keys_move_the_graph(window: Browser, page: Path) -> None:
    window.open(page)
    time.sleep(0.3)
    seen = [shown(window, 0)]
    for button in ("Zoom in before", "Show all of before", "Zoom out before"):
        window.click(f"button[aria-label='{button}']")
        wait_for(lambda: shown(window, 0) != seen[-1])
        seen.append(shown(window, 0))
    window.run("document.querySelector('canvas').focus()")
    window.press("Down")
    first = window.text(".panel h2")
    window.press("Down")
    second = window.text(".panel h2")
    assert first not in ("Summary", second)
    window.press("Up")
    assert window.text(".panel h2") not in ("Summary", second)


def test_every_tab_shows_something(window: Browser, page: Path) -> None:
    window.open(page)
    for tab, word in zip(TABS[1:], ("Kernels after", "refused", "softmax.py", "as read"), strict=True):
        window.click(f"#tab-{tab}")
        assert word in window.run("return document.getElementById('content').textContent"), tab
    assert window.errors() == []


def test_a_line_marks_what_comes_from_it(window: Browser, page: Path) -> None:
    window.open(page)
    window.click("#tab-Source")
    window.click("tr.code button")
    assert window.run("return document.querySelectorAll('tr.marked').length") == 1


@pytest.mark.parametrize("dark", [False, True])
def test_no_fault_of_accessibility(start: START, page: Path, dark: bool) -> None:
    if not AXE.is_file():
        pytest.skip("no axe-core: scripts/browser.sh installs it")
    window = start(dark)
    window.open(page)
    assert window.run("return getComputedStyle(document.documentElement).colorScheme") == ("dark" if dark else "light")
    for tab in TABS:
        window.click(f"#tab-{tab}")
        assert window.faults_of_access() == [], tab
    window.type("input[type=search]", "exp")
    window.press("Enter")
    assert window.faults_of_access() == []


EVIL = "</script><img src=x onerror=window.hit=1><b>"
HOSTILE = """HloModule evil

ENTRY e {
  p = f32[64,32]{1,0} parameter(0)
  a = f32[64,32]{1,0} tanh(p), metadata={op_name="NAME" source_file="NAME.py" source_line=4}
  c = f32[64]{0} custom-call(a), custom_call_target="NAME"
  ROOT b = f32[64]{0} negate(c), metadata={source_file="NAME.py" source_line=5}
}
""".replace("NAME", EVIL)


def test_hostile_names_stay_text(window: Browser, tmp_path: Path) -> None:
    made = tmp_path / "evil.html"
    made.write_text(as_html(data(HOSTILE)), encoding="utf-8")
    window.open(made)
    for tab in TABS:
        window.click(f"#tab-{tab}")
        assert window.run("return [document.querySelectorAll('img, b').length, window.hit ?? null]") == [0, None]
    window.type("input[type=search]", EVIL[:12])
    window.press("Enter")
    assert EVIL in window.text(".panel")
    assert window.run("return [document.querySelectorAll('img, b').length, window.hit ?? null]") == [0, None]
    assert window.errors() == []


def nested(depth: int) -> str:
    """A module of loops within loops."""
    state = "(s32[], f32[8])"
    parts = [
        f"until {{\n  s = {state} parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n  n = s32[] constant(3)\n"
        "  ROOT c = pred[] compare(i, n), direction=LT\n}\n"
    ]
    for level in reversed(range(depth)):
        inner = f"while(u), condition=until, body=body{level + 1}" if level + 1 < depth else "tuple(z, y)"
        parts.append(
            f"body{level} {{\n  s = {state} parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n"
            "  x = f32[8] get-tuple-element(s), index=1\n  one = s32[] constant(1)\n  z = s32[] constant(0)\n"
            f"  j = s32[] add(i, one)\n  y = f32[8] tanh(x)\n  u = {state} tuple(z, y)\n  w = {state} {inner}\n"
            f"  v = f32[8] get-tuple-element(w), index=1\n  ROOT t = {state} tuple(j, v)\n}}\n"
        )
    return (
        "HloModule nested\n\n"
        + "\n".join(parts)
        + (
            f"\nENTRY e {{\n  p = f32[8] parameter(0)\n  z = s32[] constant(0)\n  t = {state} tuple(z, p)\n"
            f"  ROOT w = {state} while(t), condition=until, body=body0\n}}\n"
        )
    )


ODD = {
    "one instruction": "HloModule m\n\nENTRY e {\n  ROOT p = f32[8] parameter(0)\n}\n",
    "one constant": "HloModule m\n\nENTRY e {\n  ROOT c = f32[] constant(1)\n}\n",
    "no result": "HloModule m\n\nENTRY e {\n  ROOT t = () tuple()\n}\n",
    "no edges": "HloModule m\n\nENTRY e {\n  p = f32[8] parameter(0)\n  q = f32[8] parameter(1)\n"
    "  ROOT t = (f32[8], f32[8]) tuple(p, q)\n}\n",
    "no elements": "HloModule m\n\nENTRY e {\n  p = f32[0,4] parameter(0)\n  ROOT n = f32[0,4] negate(p)\n}\n",
    "loops within loops": nested(5),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_modules_have_a_page(window: Browser, tmp_path: Path, name: str) -> None:
    made = tmp_path / "odd.html"
    made.write_text(as_html(data(ODD[name])), encoding="utf-8")
    window.open(made)
    for tab in TABS:
        window.click(f"#tab-{tab}")
        assert "NaN" not in window.run("return document.body.innerText"), tab
    window.click("#tab-Graph")
    window.type("input[type=search]", parse(ODD[name]).entry.root.name)
    window.press("Enter")
    assert window.errors() == []


def large(size: int) -> dict[str, Any]:
    """A page with graphs of `size` instructions."""
    lines = ["  v0 = f32[8]{0} parameter(0)", "  v1 = f32[8]{0} tanh(v0)"]
    lines += [f"  v{n} = f32[8]{{0}} add(v{n - 1}, v{max(0, n - 2 - n % 7)})" for n in range(2, size)]
    module = parse(
        "HloModule big\n\nENTRY e {\n" + "\n".join([*lines, f"  ROOT r = f32[8]{{0}} negate(v{size - 1})"]) + "\n}\n"
    )
    made = data("HloModule small\n\nENTRY e {\n  p = f32[8]{0} parameter(0)\n  ROOT r = f32[8]{0} negate(p)\n}\n")
    for side in made["sides"]:
        side["graph"] = graph_json(module, graph_of(module))
        side["kernels"] = []
    return made


def test_ten_thousand_instructions_open_in_two_seconds_and_scroll(window: Browser, tmp_path: Path) -> None:
    made = tmp_path / "large.html"
    made.write_text(as_html(large(10_000)), encoding="utf-8")
    window.open(made)
    ready = window.run("return performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
    assert ready < 2000
    frames = window.run_until_called(
        "const done = arguments[0]; const c = document.querySelector('canvas'); const times = []; let last;"
        "const step = (now) => { if (last !== undefined) times.push(now - last); last = now;"
        "c.dispatchEvent(new WheelEvent('wheel', {deltaY: 300, cancelable: true}));"
        "if (times.length < 60) requestAnimationFrame(step); else done(times.sort((a, b) => a - b)); };"
        "requestAnimationFrame(step);"
    )
    assert frames[len(frames) // 2] < 50, frames  # milliseconds; 16 on an idle machine


def test_a_comparison_has_its_differences(window: Browser, tmp_path: Path) -> None:
    old, new = ((ROOT / "testdata" / "diff" / f"{day}.hlo").read_text() for day in ("monday", "tuesday"))
    made = tmp_path / "diff.html"
    made.write_text(as_html(comparison_data(diff(old, new))), encoding="utf-8")
    window.open(made)
    window.click("#tab-Differences")
    assert "split" in window.text("#content")
    window.click("#content details button")
    assert window.text(".panel h2") != "Summary"
    assert window.errors() == []
