"""A few of the texts that `scripts/fuzz_text.py` makes; the script itself reads 20,000 of them under limits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import hlo_opt
from scripts.fuzz_text import FINE, FORMS, outcome, texts


def test_the_form_text_has_every_form_right():
    assert outcome(FORMS) == "module"
    hlo_opt.verify(hlo_opt.parse(FORMS.decode()))


def test_mutated_texts_end_in_a_module_or_an_error():
    for number, text in enumerate(texts(seed=3, count=150)):
        assert outcome(text) in FINE, number


def test_a_batch_is_read_under_limits():
    """In a process of its own: one that has mapped more than the machine has cannot be forked."""
    program = (
        f"from scripts.fuzz_text import run_batch\nprint(*[r for _, r in run_batch([{FORMS!r}, bytes([255]), "
        f"{FORMS!r}])])"
    )
    root = Path(__file__).resolve().parent.parent.parent
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["module", "ParseError", "module"]


def test_the_same_seed_gives_the_same_texts():
    assert list(texts(5, 4)) == list(texts(5, 4)) != list(texts(6, 4))
