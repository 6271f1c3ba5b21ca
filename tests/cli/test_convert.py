"""`hlo-opt convert`, and every verb on every form."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import numpy as np
import pytest
from form_samples import INPUTS, TEXT, forms, literal, module

from hlo_opt.analysis.graph.digest import module_digest
from hlo_opt.cli.group import run
from hlo_opt.forms.kinds import MODULE_FIELD, Form, form_of, inner_message, unzipped
from hlo_opt.forms.wire import of_bytes
from hlo_opt.text import parse

FORMS = forms()
SUFFIXES = {
    "hlo": Form.TEXT,
    "txt": Form.TEXT,
    "pb": Form.MODULE,
    "hlo.pb": Form.PROTO,
    "mlir": Form.MLIR,
    "mlirbc": Form.BYTECODE,
    "hlo.gz": Form.TEXT,
    "mlirbc.gz": Form.BYTECODE,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_name_says_the_form(suffix: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = file.with_name(f"out.{suffix}")
    assert run(["convert", str(file), str(out)]) == 0
    data = out.read_bytes()
    assert data.startswith(b"\x1f\x8b") == suffix.endswith("gz") and form_of(unzipped(data)) is SUFFIXES[suffix]
    capsys.readouterr()
    assert run(["print", str(out)]) == 0
    read = parse(capsys.readouterr().out)
    if SUFFIXES[suffix] not in (Form.MLIR, Form.BYTECODE):
        assert module_digest(read) == module_digest(parse(TEXT))
    assert run(["check", str(file), str(out), "--backend", "numpy"]) == 0


def test_to_says_the_form(file: Path, tmp_path: Path) -> None:
    assert run(["convert", str(file), str(tmp_path / "x"), "--to", "hlo.pb"]) == 0
    assert inner_message((tmp_path / "x").read_bytes()) is not None and MODULE_FIELD == 1


def test_what_was_written_is_said_once(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = file.with_suffix(".pb")
    file.write_text(TEXT, encoding="utf-8-sig")  # jaxlib takes no byte order mark
    assert run(["convert", str(file), str(out)]) == 0
    assert capfd.readouterr() == ("", f"hlo-opt: wrote {out}\n")
    assert run(["-q", "convert", str(file), str(out)]) == 0
    assert capfd.readouterr() == ("", "")


def test_text_on_stdout(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", str(file), "-", "--to", "mlir"]) == 0
    assert "stablehlo.add" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("out",), "HLO308 its name does not say which form is wanted"),
        (("out.pb", "--to", "mlr"), "HLO308 no form is called 'mlr'\n  hint: did you mean mlir?"),
    ],
)
def test_no_form(arguments: tuple[str, ...], says: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", str(file), *arguments]) == 2
    assert says in capsys.readouterr().err


def test_constants_that_the_text_leaves_out_never_become_zeros(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("HloModule m\n\nENTRY e {\n  ROOT c = f32[99] constant({...})\n}\n")
    assert run(["convert", str(file), str(file.with_suffix(".pb"))]) == 2
    assert "HLO309 the text leaves out the value of the constant `c`" in capsys.readouterr().err
    assert not file.with_suffix(".pb").exists()
    assert run(["convert", str(file), str(file.with_suffix(".txt"))]) == 0


def test_what_a_form_has_no_place_for_is_told(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(TEXT.replace("HloModule m", "HloModule m, num_partitions=2"))
    assert run(["convert", str(file), str(file.with_suffix(".pb"))]) == 0
    assert "pb has no place for num_partitions, and leaves that out" in capsys.readouterr().err


def test_a_text_that_is_wrong_has_its_place(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(TEXT.replace("add(p, c)", "add(p, d)"))
    assert run(["convert", str(file), str(file.with_suffix(".pb"))]) == 2
    assert f"{file}:7:" in capsys.readouterr().err


# ---- snapshots


@pytest.mark.parametrize("form", [Form.SNAPSHOT, Form.PARTITIONS])
def test_verbs_run_a_snapshot_on_its_inputs(form: Form, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "s.pb", tmp_path / "out.npz"
    path.write_bytes(FORMS[form])
    for backend in ("numpy", "auto"):
        assert run(["run", str(path), "--outputs", str(out), "--backend", backend]) == 0
        assert "the inputs are those of the snapshot" in capsys.readouterr().err
        with np.load(out) as found:
            assert found["out0"][0].tolist() == [2, 4, 6] and found["out1"].tolist() == [[1, -2, 3], [4, 5, 6]]
    assert run(["check", str(path), "--backend", "numpy"]) == 0
    said = capsys.readouterr()
    assert "agrees" in said.out and "of the snapshot" in said.err
    given = tmp_path / "given.npz"
    np.savez(given, in0=np.zeros((2, 3), np.float32), in1=np.zeros((2, 3), np.int32))
    assert run(["run", str(path), "--inputs", str(given), "--outputs", str(out)]) == 0
    assert "of the snapshot" not in capsys.readouterr().err
    with np.load(out) as found:
        assert found["out1"].tolist() == [[0, 0, 0], [0, 0, 0]]
    recorded = tmp_path / "had.npz"
    assert run(["isolate", str(path), "s", "-o", str(tmp_path / "s.hlo"), "--recorded", str(recorded)]) == 0
    with np.load(recorded) as found:
        assert found["in0"].tolist() == [[1, 2, 3], [4, 5, 6]]


def test_the_inputs_of_a_snapshot_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "s.pb", tmp_path / "in.npz"
    path.write_bytes(FORMS[Form.SNAPSHOT])
    assert run(["convert", str(path), str(tmp_path / "m.hlo"), "--recorded", str(out)]) == 0
    with np.load(out) as found:
        assert found["in0"].dtype == np.float32 and found["in1"].tolist() == [[1, -2, 3], [4, 5, 6]]
    path.write_bytes(FORMS[Form.MODULE])
    assert run(["convert", str(path), str(tmp_path / "m.hlo"), "--recorded", str(out)]) == 2
    assert "is an HloModuleProto, and holds no inputs" in capsys.readouterr().err


def test_a_snapshot_of_another_program_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.pb"
    one, two = map(literal, INPUTS)
    for inputs in ((two, one), (one,), (one, two, two)):
        path.write_bytes(
            of_bytes(MODULE_FIELD, of_bytes(MODULE_FIELD, module())) + b"".join(of_bytes(2, given) for given in inputs)
        )
        assert run(["run", str(path)]) == 2
        assert f"{path}: HLO401 " in capsys.readouterr().err


# ---- every verb


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("zips", [False, True])
def test_stdin(form: Form, zips: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data = gzip.compress(FORMS[form]) if zips else FORMS[form]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert run(["stats", "-"]) == 0
    assert "kernels" in capsys.readouterr().out


@pytest.mark.parametrize(
    "verb",
    [
        ["fuse"],
        ["explain"],
        ["run", "--backend", "numpy"],
        ["check", "--backend", "numpy"],
        ["print"],
        ["stats"],
        ["bisect", "--watch", "kernels > 99"],
        ["reduce", "--keep", "kernels > 0"],
    ],
)
def test_verbs_take_a_protobuf(verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a file"
    path.write_bytes(FORMS[Form.PROTO])
    assert run([verb[0], str(path), *verb[1:]]) == (1 if verb[0] == "bisect" else 0), capsys.readouterr().err
    capsys.readouterr()
    path.write_bytes(FORMS[Form.PROTO][:-20])
    assert run([verb[0], str(path), *verb[1:]]) == 2
    assert str(path) in (told := capsys.readouterr().err) and told.count(" HLO") == 1


def test_two_files_in_two_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(FORMS[Form.MODULE])
    second.write_bytes(FORMS[Form.MLIR])
    assert run(["diff", str(first), str(second)]) == 0
    assert "no difference" in capsys.readouterr().out
