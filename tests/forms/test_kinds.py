"""Forms are told apart by their content."""

from __future__ import annotations

import gzip

import pytest
from form_samples import ARTIFACT, TEXT, apart, forms, module

from hlo_opt.forms import kinds
from hlo_opt.forms.kinds import Form, artifact_module, fault_of, form_of, module_message, unzipped
from hlo_opt.forms.wire import of_bytes

FORMS = forms()


@pytest.mark.parametrize("form", Form)
def test_each_form_is_known(form: Form) -> None:
    assert form_of(FORMS[form]) is form
    assert form_of(unzipped(gzip.compress(FORMS[form]))) is form


def test_a_snapshot_whose_arrays_stand_behind_it() -> None:
    data = apart([11], b"x" * 11)
    assert form_of(data) is Form.PARTITIONS
    assert module_message(data, Form.PARTITIONS) == module()


@pytest.mark.parametrize("form", sorted(kinds.PROTOS, key=str))
def test_the_module_in_a_protobuf(form: Form) -> None:
    assert module_message(FORMS[form], form) == module()


@pytest.mark.parametrize(
    "text",
    [
        "module {\n}\n",
        '// a comment\n\n#loc = loc("x")\n!t = tensor<2xf32>\nmodule @m attributes {a = 1 : i32} {\n}\n',
        "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n",
        '"builtin.module"() ({\n}) : () -> ()\n',
        "\ufeffmodule @m {}",
    ],
)
def test_stablehlo_text(text: str) -> None:
    assert form_of(text.encode()) is Form.MLIR


@pytest.mark.parametrize(
    "text", [TEXT, "// module\nHloModule module\n", "module = f32[2] parameter(0)", "modules", "", "#include <a>\n"]
)
def test_other_text_is_hlo_text(text: str) -> None:
    assert form_of(text.encode()) is Form.TEXT


@pytest.mark.parametrize("form", [f for f in Form if f not in (Form.TEXT, Form.MLIR, Form.BYTECODE)])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_what_is_cut_off_is_no_module(form: Form, share: float) -> None:
    data = FORMS[form]
    cut = data[: int(len(data) * share)]
    assert form_of(cut) is None
    if form in kinds.PROTOS:
        assert "cut off" in fault_of(cut)


@pytest.mark.parametrize(
    "data",
    [
        b"\x7fELF\x02\x80",
        b"PK\x03\x04\x00\x80",
        bytes(64),
        b"\xff" * 64,
        of_bytes(1, b"\xff" * 8),
        of_bytes(1, module()[:50]),
    ],
)
def test_other_bytes_are_no_module(data: bytes) -> None:
    assert form_of(data) is None


def test_an_artifact_holds_bytecode() -> None:
    data = ARTIFACT.read_bytes()
    found = artifact_module(data)
    assert found is not None and form_of(found) is Form.BYTECODE
    assert all(artifact_module(data[:n]) is None for n in range(0, len(data) // 2, 7))


def test_gzip_in_several_pieces_and_damaged_gzip() -> None:
    assert unzipped(gzip.compress(b"ab") + gzip.compress(b"c")) == b"abc"
    whole = gzip.compress(TEXT.encode())
    with pytest.raises(ValueError, match="cut off"):
        unzipped(whole[:-9])
    with pytest.raises(ValueError, match="damaged gzip"):
        unzipped(whole[:12] + b"\xff" * 40)


def test_gzip_that_grows_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "LARGEST", 1000)
    assert len(unzipped(gzip.compress(bytes(1000)))) == 1000
    with pytest.raises(ValueError, match="larger"):
        unzipped(gzip.compress(bytes(1001)))
