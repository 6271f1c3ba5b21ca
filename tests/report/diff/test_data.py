"""A comparison for programs."""

from __future__ import annotations

import json

from hlo_opt.diag import CheckError
from hlo_opt.report.diff.comparison import diff
from hlo_opt.report.diff.data import as_json

TEXT = """HloModule m

ENTRY e {
  p = f32[64,32]{1,0} parameter(0)
  a = f32[64,32]{1,0} tanh(p), metadata={op_name="a" source_file="m.py" source_line=4}
  ROOT b = f32[64,32]{1,0} negate(a)
}
"""


def test_everything_is_there():
    new = TEXT.replace("tanh", "sine").replace(" a = ", " x = ").replace("(a)", "(x)")
    found = json.loads(json.dumps(as_json(diff(TEXT, new, fuse="never"), [CheckError("slow", code="HLO714")])))
    assert (
        found["schema"] == 1 and found["same"] is False and found["target"] == "h100_sxm" and found["fused_by"] is None
    )
    assert found["old"]["kernels"] == found["new"]["kernels"] == 2 and found["old"]["hash"] != found["new"]["hash"]
    assert found["operations"] == {"alike": 2, "changed": 1, "added": 0, "lost": 0, "moved": 0}
    (difference,) = found["differences"]
    (change,) = difference["changes"]
    assert change["kind"] == "changed" and change["details"] == [{"what": "opcode", "old": "tanh", "new": "sine"}]
    assert [change[side]["instruction"] for side in ("old", "new")] == ["a", "x"]
    assert change["new"]["source"] == difference["source"] == "m.py:4"
    assert found["failed"] == [{"code": "HLO714", "message": "slow"}]


def test_the_same_is_said_to_be_the_same():
    found = as_json(diff(TEXT, TEXT))
    assert found["same"] is True and found["growth"] == 0 and found["differences"] == []
    assert found["old"]["hash"] == found["new"]["hash"]
