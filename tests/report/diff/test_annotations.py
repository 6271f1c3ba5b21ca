"""Differences at the Python lines that they come from."""

from __future__ import annotations

import hlo_opt
from hlo_opt.diag import CheckError
from hlo_opt.report.diff.annotations import CODE, difference_annotations
from hlo_opt.report.diff.comparison import diff

TEXT = """HloModule m

ENTRY e {
  p = f32[64,32]{1,0} parameter(0)
  a = f32[64,32]{1,0} tanh(p), metadata={op_name="a" source_file="/home/src/m.py" source_line=4}
  ROOT b = f32[64,32]{1,0} negate(a)
}
"""


def test_a_difference_is_at_its_line():
    slower = TEXT.replace("negate(a)", "negate(c)").replace(
        "  ROOT",
        '  c = f32[64,32]{1,0} copy(a), metadata={op_name="c" source_file="/home/src/m.py" source_line=6}\n  ROOT',
    )
    (found,) = difference_annotations(diff(TEXT, slower, fuse="never"), [], "/home")
    assert (found.code, found.level, found.file, found.line) == (CODE, "warning", "src/m.py", 6)
    assert "added c = f32[64,32]{1,0} copy(a)" in found.message
    (found,) = difference_annotations(diff(slower, TEXT, fuse="never"), [], "/home")
    assert found.level == "note"


def test_without_a_line_it_is_in_the_dump_and_limits_come_first():
    new = hlo_opt.parse(TEXT.replace("negate", "abs"), filename="/home/new.hlo")
    error = CheckError("slower", code="HLO714", filename="/home/new.hlo")
    first, second = difference_annotations(diff(hlo_opt.parse(TEXT), new, fuse="never"), [error], "/home")
    assert (first.level, first.file) == ("error", "new.hlo")
    assert (second.file, second.line) == ("new.hlo", 6)
