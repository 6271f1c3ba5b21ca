"""The table of rewrites: the proof refuses each wrong one, both ways round, and accepts each right one, both ways
round."""

from __future__ import annotations

import pytest
import rewrites_library  # noqa: F401 - adds rows
import rewrites_order  # noqa: F401 - adds rows
from rewrites import ELIDED, RIGHT, WRONG, Rewrite
from rewrites_effects import SHUFFLED, SIX, TRIANGLES

import hlo_opt
from hlo_opt.diag import ProofError
from hlo_opt.fusion.proof import prove_same_graph
from hlo_opt.ir import edit

ONE_WAY = (
    "a schedule",
    "a tuple of another",
    "an element of another layout",
    "a fusion whose",
    "a branch that is given",
    "a choice of",
    "a loop that is given",
    "a loop of",
    "a start ",
    "an end of",
    "a barrier of",
    "a copy of another layout",
    "a copy that ends",
)
"""What only the later module must not have: a claim, and shapes that do not go together."""


def named(rows: list[Rewrite]) -> list[object]:
    return [pytest.param(row, id=row.what.replace(" ", "-")) for row in rows]


def prove(before: str, after: str) -> None:
    prove_same_graph(hlo_opt.parse(before), hlo_opt.parse(after))


@pytest.mark.parametrize("row", named(WRONG))
def test_a_wrong_rewrite_is_refused(row: Rewrite):
    prove(row.before, row.before)
    prove(row.after, row.after)
    with pytest.raises(ProofError):
        prove(row.before, row.after)
    if not row.what.startswith(ONE_WAY):
        with pytest.raises(ProofError):
            prove(row.after, row.before)


@pytest.mark.parametrize("row", named(RIGHT))
def test_a_right_rewrite_is_accepted(row: Rewrite):
    prove(row.before, row.after)
    if not row.what.startswith(ONE_WAY):
        prove(row.after, row.before)


def test_there_are_enough():
    assert len(WRONG) >= 150 and len(RIGHT) >= 50
    assert len({row.what for row in WRONG}) == len(WRONG) and len({row.what for row in RIGHT}) == len(RIGHT)


def test_ties_are_broken_by_trying():
    """In a ring of six and in two of three, every draw meets two others."""
    prove(SIX, SHUFFLED)
    prove(SHUFFLED, SIX)
    with pytest.raises(ProofError, match="equal side effects"):
        prove(SIX, TRIANGLES)


def test_constants_that_were_left_out_are_equal_to_themselves_only():
    module = hlo_opt.parse(ELIDED)
    prove_same_graph(module, edit.clone_module(module))
    with pytest.raises(ProofError, match="output 0"):
        prove(ELIDED, ELIDED)
