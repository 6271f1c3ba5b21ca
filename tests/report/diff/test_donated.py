"""Inputs that only one of two modules gives away, by name, whatever their numbers; what reads them belongs to it."""

from __future__ import annotations

import pytest

from hlo_opt.report.diff.comparison import diff
from hlo_opt.report.diff.page import title

TEXT = """HloModule m, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }

ENTRY e {
  keys = f32[64,256]{1,0} parameter(0)
  values = f32[64,128]{1,0} parameter(1)
  a = f32[64,256]{1,0} tanh(keys)
  b = f32[64,128]{1,0} negate(values)
  ROOT r = (f32[64,256]{1,0}, f32[64,128]{1,0}) tuple(a, b)
}
"""
WHOLE = "input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("input_output_alias={ {1}: (1, {}, may-alias) }", "2, with `keys` (65.5 kB) -> 1"),
        ("input_output_alias={ }", "2, with `keys`, `values` (98.3 kB) -> 0"),
        ("input_output_alias={ {0}: (0, {}, must-alias), {1}: (1, {}, may-alias) }", "may-alias"),
    ],
)
def test_which_are_lost(said: str, told: str) -> None:
    found = diff(TEXT, TEXT.replace(WHOLE, said))
    assert [title(d).startswith("0 us  header input_output_alias") for d in found.differences] == [True]
    assert told in title(found.differences[0])


def test_numbers_may_be_others() -> None:
    other = TEXT.replace("parameter(0)", "parameter(9)").replace("parameter(1)", "parameter(0)")
    other = other.replace("parameter(9)", "parameter(1)").replace(
        WHOLE, "input_output_alias={ {0}: (1, {}, may-alias) }"
    )
    changes = [c for d in diff(TEXT, other).differences for c in d.changes if c.kind == "module"]
    assert [(d.old, d.new) for c in changes for d in c.details] == [("2, with `values` (32.8 kB)", "1")]


def test_a_copy_belongs_to_it() -> None:
    """What is no longer made in the input's memory copies it."""
    copied = TEXT.replace(WHOLE, "input_output_alias={ {1}: (1, {}, may-alias) }")
    copied = copied.replace("tanh(keys)", "tanh(c)").replace("  a =", "  c = f32[64,256]{1,0} copy(keys)\n  a =")
    (found,) = diff(TEXT, copied, fuse="never").differences
    assert "`keys`" in title(found) and found.us > 0
    assert [c.kind for c in found.changes] == ["module", "added"]
