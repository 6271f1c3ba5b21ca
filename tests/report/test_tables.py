import pytest

from hlo_opt.diag import UsageError
from hlo_opt.ops import table
from hlo_opt.ops.coverage import VALUES, has_evaluation
from hlo_opt.passes.table import option_meanings, pass_names, pass_options
from hlo_opt.report import tables


def test_the_table_says_which_faces_there_are():
    rows = {row["opcode"]: row for row in tables.ops_json(tables.chosen())["ops"]}
    assert list(rows) == [spec.opcode for spec in table()]
    for spec in table():
        assert rows[spec.opcode]["cuda"] == (spec.cuda is not None)
        assert rows[spec.opcode]["evaluate"] == any(has_evaluation(spec, t) for t in VALUES) or not spec.accepts
    assert rows["dot"]["library"] and rows["tuple"]["free"]
    last = str(tables.ops_page(tables.chosen())).splitlines()[-1]
    assert last.startswith(f"{len(rows)} opcodes: infer ")


def test_types_with_the_same_faces_share_a_line():
    lines = str(tables.types_page(tables.chosen(["erf", "after-all"]))).splitlines()
    assert lines[0].split() == ["opcode", "infer", "evaluate", "cuda", "expand", "ulp", "types"]
    assert [line.split() for line in lines[1:3]] == [
        ["erf", "yes", "yes", "yes", "-", "1", *(t.name for t in VALUES if t.is_float and t.bits <= 16)],
        ["yes", "yes", "yes", "-", "4", "f32", "f64"],
    ]
    assert lines[3].split() == ["after-all", "-", "-", "-", "-", "-", "no", "arrays"]
    assert lines[4].startswith("opcodes x element types: infer ")


def test_json_has_every_type_also_those_that_are_holes():
    (row,) = tables.ops_json(tables.chosen(["sqrt"]), types=True)["ops"]
    assert row["accepts"] == ["float", "complex"] and set(row["types"]) == {t.name for t in VALUES}
    assert row["types"]["f32"] == {"infer": True, "evaluate": True, "cuda": True, "expand": False, "ulp": 1}
    assert row["types"]["s32"] == {"infer": False, "evaluate": False, "cuda": False, "expand": False, "ulp": None}
    assert "types" not in tables.ops_json(tables.chosen(["sqrt"]))["ops"][0]


def test_an_unknown_opcode_names_the_nearest():
    with pytest.raises(UsageError, match="tanhh") as caught:
        tables.chosen(["tanhh"])
    assert caught.value.hint == "did you mean tanh?"


def test_a_custom_call_is_found_by_its_target():
    (gemm,) = tables.chosen_calls(["sqrt", "__cublas$gemm", "nothing"])
    assert gemm.target == "__cublas$gemm"
    assert "cuBLAS" in str(tables.calls_page([gemm])).splitlines()[1]
    assert tables.ops_json([], [gemm])["calls"][0]["evaluate"]
    with pytest.raises(UsageError) as caught:
        tables.chosen(["__cublas$gem"])
    assert caught.value.hint == "did you mean __cublas$gemm?"


@pytest.mark.parametrize("name", pass_names())
def test_every_option_of_a_pass_says_what_it_does(name: str) -> None:
    assert option_meanings(name).keys() == pass_options(name).keys()


def test_a_pass_that_is_named_comes_with_all_that_is_said_of_it():
    lines = str(tables.some_passes_page(["inline"])).splitlines()
    assert lines[0].endswith("Put the bodies of calls into their callers.")
    assert lines[1].split()[:3] == ["fusions", "bool", "false"] and "plain fusions" in lines[1]
    (row,) = tables.passes_json(["inline"])["passes"]
    assert "plain fusions" in row["options"]["fusions"]["meaning"]
