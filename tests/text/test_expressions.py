"""Possessive groups as atomic ones: the same matches on every version of Python, also where groups nest."""

from __future__ import annotations

import re

import pytest

from hlo_opt.text.expressions import compiled, with_atomic_groups


@pytest.mark.parametrize(
    ("text", "atomic"),
    [
        (r"(?:a|b)*+", r"(?>(?:a|b)*)"),
        (r"x(?:(?:y)++z)?+", r"x(?>(?:(?>(?:y)+)z)?)"),
        (r"(?:a){2,3}+b{2}+", r"(?>(?:a){2,3})b{2}+"),
        (r"(?P<n>a)*(?=b)", r"(?P<n>a)*(?=b)"),
        (r"[()*+][^)]*+[]()*+]\)*+", r"[()*+][^)]*+[]()*+]\)*+"),
        (r"\\(?:a)*+", r"\\(?>(?:a)*)"),
        (r"a*+b++", r"a*+b++"),
    ],
)
def test_possessive_groups_become_atomic(text: str, atomic: str) -> None:
    assert with_atomic_groups(text) == atomic == with_atomic_groups(atomic)
    re.compile(atomic)


@pytest.mark.parametrize(
    ("text", "matched"), [("abcb \n d", "abcb"), ("a \n d", "a"), ("ab // c\n c d", "ab // c\n c"), ("a//", "a")]
)
def test_what_a_group_began_to_match_is_given_back(text: str, matched: str) -> None:
    """Python 3.11.2 keeps the white space that the last, failed repetition had taken."""
    pattern = r"a(?:(?:[ \n]++|//[^\n]*+)*+(?:b|c))*+"
    for form in (compiled(pattern), re.compile(with_atomic_groups(pattern))):
        found = form.match(text)
        assert found is not None and found[0] == matched
