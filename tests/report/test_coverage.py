import pytest

from hlo_opt.diag import UsageError
from hlo_opt.ops import table
from hlo_opt.report import coverage


def test_the_table_says_which_faces_there_are():
    rows = {row.opcode: row for row in coverage.rows()}
    assert list(rows) == [spec.opcode for spec in table()]
    for spec in table():
        assert rows[spec.opcode].faces["cuda"] == (spec.cuda is not None)
    assert rows["dot"].library and rows["tuple"].free
    last = str(coverage.as_page(list(rows.values()))).splitlines()[-1]
    assert last.startswith(f"{len(rows)} opcodes: infer ")


def test_an_unknown_opcode_names_the_nearest():
    with pytest.raises(UsageError, match="tanhh") as caught:
        coverage.rows(["tanhh"])
    assert caught.value.hint == "did you mean tanh?"
