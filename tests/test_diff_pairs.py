"""The pairs of `scripts.diff_pairs`, on smaller modules: the change is named first, and there is none where nothing
changed."""

from __future__ import annotations

import pytest

from scripts import diff_pairs
from scripts.diff_programs import PLANTS

SIZE = 650


@pytest.mark.parametrize("kind", diff_pairs.KINDS)
def test_what_is_told_is_true(kind):
    found = list(diff_pairs.KINDS[kind](SIZE, 3))
    assert (
        len(found)
        >= {"planted": 2 * len(PLANTS), "told again": 12, "lost fusion": 6, "regression": 16, "public": 3}[kind]
    )
    assert {pair.name: fault for pair in found if (fault := diff_pairs.judged(pair)[0])} == {}


def test_a_wrong_answer_is_seen():
    pair = next(diff_pairs.public(SIZE, 0))
    found = diff_pairs.judged(pair)[1]
    assert diff_pairs.verdict(pair, found) == ""
    assert diff_pairs.verdict(diff_pairs.Pair("", "", "", None), found).startswith("a difference where there is none")
    assert diff_pairs.verdict(diff_pairs.Pair("", "", "", frozenset({"other"})), found).startswith("named first: ")
