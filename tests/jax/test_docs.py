"""docs/jax.md shows what runs."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import jax
import pytest

import hlo_opt.jax
from hlo_opt.jax import hook
from hlo_opt.jax.report import CODES

TEXT = (Path(__file__).resolve().parent.parent.parent / "docs" / "jax.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("winning")
def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(block, "example.py", "exec"), {"__name__": "docs"})
    shown = re.search(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert shown is not None

    def shape(text: str) -> list[str]:
        return [re.sub(r"[\d.]+ us", "N us", line) for line in text.splitlines()]

    assert shape(capsys.readouterr().out) == shape(shown[1])
    jax.clear_caches()


def test_arguments_and_defaults_are_those_of_the_table() -> None:
    shown = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", TEXT, re.MULTILINE))
    expected = {
        name: "none" if p.default is None else f'`"{p.default}"`' if isinstance(p.default, str) else f"`{p.default}`"
        for name, p in inspect.signature(hlo_opt.jax.install).parameters.items()
    }
    assert shown == expected
    assert inspect.signature(hook.fusing).parameters == inspect.signature(hook.install).parameters


def test_calls_that_are_named_exist() -> None:
    named = set(re.findall(r"hlo_opt\.jax\.(\w+)\(", TEXT))
    assert named <= set(hlo_opt.jax.__all__) and set(CODES) >= set(re.findall(r"JAX\d{3}", TEXT))
