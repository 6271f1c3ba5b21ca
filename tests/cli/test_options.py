from __future__ import annotations

import pytest
from click.shell_completion import BashComplete

from hlo_opt.cli.group import group


def offered(*words):
    *before, typed = words
    items = BashComplete(group, {}, "hlo-opt", "_HLO_OPT_COMPLETE").get_completions(list(before), typed)
    return [(item.type, item.value) for item in items]


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["fuse", "m.hlo", "--preset", "xla-20"], "xla-2026"),
        (["fuse", "m.hlo", "--target", "a100"], "a100_sxm_80"),
        (["fuse", "m.hlo", "--passes", "instr"], "instruction-fusion"),
        (["explain", "m.hlo", "--what-if", "FUS1"], "FUS105"),
        (["explain", "m.hlo", "--fail-on", "FUS1"], "FUS105"),
        (["run", "m.hlo", "--backend", ""], "host"),
        (["check", "m.hlo", "--simplify", "al"], "always"),
    ],
)
def test_values_are_offered(words, value):
    found = offered(*words)
    assert ("plain", value) in found and all(name.startswith(words[-1]) for _, name in found)


@pytest.mark.parametrize(
    "words", [["fuse", "da"], ["print", ""], ["check", "m.hlo", "o"], ["fuse", "m.hlo", "--config", "c"]]
)
def test_files_are_left_to_the_shell(words):
    assert ("file", words[-1]) in offered(*words)
