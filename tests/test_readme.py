"""What README.md shows is what the program prints, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hlo_opt.cli.group import VERBS
from scripts import readme

ROOT = Path(__file__).resolve().parent.parent
TEXT = readme.README.read_text(encoding="utf-8")


def test_shown_outputs_are_real() -> None:
    assert "\n".join(readme.differences(TEXT)) == "", "python -m scripts.readme update"


def test_there_are_two_commands() -> None:
    first, second = readme.commands(TEXT)
    assert first.startswith("pip install . && hlo-opt fuse testdata/") and "--check" in first
    assert second == "pip install '.[test]' && pytest"
    dump = re.search(r"testdata/\S+", first)
    assert dump is not None and (ROOT / dump[0]).is_file()
    assert f"$ {first.removeprefix('pip install . && ')}\n" in TEXT


def test_every_verb_that_is_named_exists() -> None:
    named = {m[1] for m in re.finditer(r"`hlo-opt ([a-z]+)", TEXT)}
    assert named <= set(VERBS)


@pytest.mark.parametrize(
    ("expected", "actual", "is_same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\nc\n", False),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\n", "a\n", True),
        ("a\n...\nd\n", "a\nb\nc\n", False),
        ("check: agrees on host (g++)\n", "check: agrees on numpy\n", True),
        ("a.c\n", "abc\n", False),
    ],
)
def test_comparison_knows_what_is_left_out(expected: str, actual: str, is_same: bool) -> None:
    assert readme.same(expected, actual) is is_same


def test_the_ways_to_get_a_dump_from_jax_are_as_they_are_shown() -> None:
    jax = pytest.importorskip("jax")
    import hlo_opt
    from hlo_opt.text.frames import has_source_lines

    lowered = jax.jit(lambda x: jax.numpy.exp(x) * 2).lower(jax.numpy.ones(3))
    for call in ('as_text("hlo", debug_info=True)', "compile().as_text()"):
        assert f".lower(*args).{call}" in TEXT
    made = [lowered.as_text("hlo", debug_info=True), lowered.compile().as_text(), lowered.as_text("hlo")]
    assert [has_source_lines(hlo_opt.parse(dump)) for dump in made] == [True, True, False]
