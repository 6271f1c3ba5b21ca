"""A few of the texts that `scripts/fuzz_text.py` makes; the script itself reads 20,000 of them under limits."""

from __future__ import annotations

import hlo_opt
from scripts.fuzz_text import FINE, FORMS, outcome, run_batch, texts


def test_the_form_text_has_every_form_right():
    assert outcome(FORMS) == "module"
    hlo_opt.verify(hlo_opt.parse(FORMS.decode()))


def test_mutated_texts_end_in_a_module_or_an_error():
    for number, text in enumerate(texts(seed=3, count=150)):
        assert outcome(text) in FINE, number


def test_a_batch_is_read_under_limits():
    assert [result for _, result in run_batch([FORMS, b"\xff", FORMS])] == ["module", "ParseError", "module"]


def test_the_same_seed_gives_the_same_texts():
    assert list(texts(5, 4)) == list(texts(5, 4)) != list(texts(6, 4))
