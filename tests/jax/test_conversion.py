"""Modules in every form become HLO text, and what cannot is one coded error."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from form_samples import TEXT, forms, module

import hlo_opt
from hlo_opt.analysis.graph.digest import module_digest
from hlo_opt.diag import ParseError, UsageError
from hlo_opt.forms.kinds import STABLEHLO, Form
from hlo_opt.jax import conversion
from hlo_opt.jax.conversion import converted, hlo_text, text_of, unpacked
from hlo_opt.text import parse
from hlo_opt.text.frames import has_source_lines, source_location

FORMS = forms()


@pytest.mark.parametrize("form", [f for f in Form if f not in STABLEHLO])
def test_protobufs_hold_the_module_that_the_text_is(form: Form) -> None:
    assert module_digest(parse(text_of(FORMS[form], "m"))) == module_digest(parse(TEXT))


@pytest.mark.parametrize("form", [Form.MLIR, Form.BYTECODE])
def test_stablehlo_computes_the_same(form: Form) -> None:
    text = text_of(gzip.compress(FORMS[form]), "m")
    assert [i.opcode for i in parse(text).entry.instructions].count("add") == 1 and "nan" in text


@pytest.mark.parametrize("form", [Form.TEXT, Form.MODULE, Form.SNAPSHOT, Form.BYTECODE])
def test_python_reads_every_form(form: Form, tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(gzip.compress(FORMS[form]))
    for found in (hlo_opt.read(tmp_path / "m"), hlo_opt.read(str(tmp_path / "m")), hlo_opt.read(FORMS[form])):
        assert "add" in [i.opcode for i in found.entry.instructions]
    with pytest.raises(hlo_opt.HloOptError, match="m: "):
        (tmp_path / "m").write_bytes(b"\x0a\xff\xff\xff\x0f" + FORMS[Form.MODULE][:9])
        hlo_opt.read(tmp_path / "m")
    with pytest.raises(FileNotFoundError):
        hlo_opt.read(tmp_path / "n")


def test_operations_of_a_text_without_places_have_none() -> None:
    text = (
        "module {\n  func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n    %0 = stablehlo.sine %x : "
        "tensor<2xf32>\n    return %0 : tensor<2xf32>\n  }\n}\n"
    )
    assert not has_source_lines(parse(text_of(text.encode(), "m")))
    placed = text.replace(
        "%0 = stablehlo.sine %x : tensor<2xf32>", '%0 = stablehlo.sine %x : tensor<2xf32> loc("a.py":7:1)'
    )
    module = parse(text_of(placed.encode(), "m"))
    assert source_location(module, module.entry.root) == "a.py:7"


def test_an_artifact_is_read() -> None:
    assert [i.opcode for i in parse(text_of(FORMS[Form.ARTIFACT], "m")).entry.instructions][-1] == "dot"


def test_large_constants_are_written_out() -> None:
    values = ", ".join(map(str, range(500)))
    text = f"HloModule m\n\nENTRY e {{\n  ROOT c = s32[500] constant({{{values}}})\n}}\n"
    assert values in text_of(module(text), "m")


@pytest.mark.parametrize("target", ["hlo", "pb", "mlir", "mlirbc"])
def test_every_form_is_written(target: str) -> None:
    made = converted(TEXT.encode(), Form.TEXT, target, "m")
    found, form = unpacked(made, "m")
    assert form is {"hlo": Form.TEXT, "pb": Form.MODULE, "mlir": Form.MLIR, "mlirbc": Form.BYTECODE}[target]
    assert "add(" in hlo_text(found, form, "m")


@pytest.mark.parametrize(
    ("data", "code", "says"),
    [
        (FORMS[Form.MODULE][:-9], "HLO305", "is no module: as a protobuf, a field is cut off"),
        (gzip.compress(TEXT.encode())[:-12], "HLO305", "the gzip data is cut off"),
        (
            FORMS[Form.MODULE].replace(b"\x12\x03add", b"\x12\x03adX"),
            "HLO307",
            "is an HloModuleProto that jaxlib refuses",
        ),
        (FORMS[Form.BYTECODE][:60], "HLO307", "is StableHLO bytecode that jaxlib refuses"),
    ],
)
def test_what_cannot_be_read_is_one_error_with_the_name(data: bytes, code: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        text_of(data, "m.pb")
    assert caught.value.code == code and str(caught.value).startswith(f"m.pb: {code} {says}")
    assert "\n" not in caught.value.message


def test_a_fault_of_stablehlo_text_has_its_line_and_column() -> None:
    with pytest.raises(UsageError) as caught:
        text_of(b"module {\n  func.func @main() { nothing }\n}\n", "m.mlir")
    assert str(caught.value).startswith("m.mlir:2:23: HLO307 jaxlib refuses this StableHLO: custom op 'nothing'")
    assert str(caught.value).endswith("\n" + " " * 24 + "^")


@pytest.mark.parametrize("data", [b"\x7fELF\x02\x80", bytes(99)])
def test_other_bytes_are_no_text(data: bytes) -> None:
    with pytest.raises(ParseError, match="not text"):
        text_of(data, "m")


def test_where_xla_ends_the_process_it_is_an_error_all_the_same() -> None:
    text = "HloModule m\n\nENTRY e {\n  ROOT c = f6e2m3fn[2] constant({1, 2})\n}\n"
    with pytest.raises(UsageError, match="HLO307 jaxlib makes no pb of it: Unhandled primitive type F6E2M3FN"):
        converted(text.encode(), Form.TEXT, "pb", "m")


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hlo_opt.evaluate.memory.default_limit", lambda: 3 << 30)
    text = (
        "module {\n  func.func @main() -> tensor<4000000000xi8> {\n    %0 = stablehlo.constant dense<1> : "
        "tensor<4000000000xi8>\n    return %0 : tensor<4000000000xi8>\n  }\n}\n"
    )
    try:
        assert "broadcast" in text_of(text.encode(), "m")
    except UsageError as error:
        assert error.code == "HLO307"


def test_without_jaxlib_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "jaxlib").mkdir()
    (tmp_path / "jaxlib" / "__init__.py").write_text("raise ImportError\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for form, target in ((Form.PROTO, "hlo"), (Form.TEXT, "pb")):
        with pytest.raises(UsageError, match=r"HLO306 .*jaxlib") as caught:
            converted(FORMS[form], form, target, "m")
        assert "pip install" in str(caught.value)
    assert text_of(FORMS[Form.TEXT], "m") == TEXT


def test_a_module_that_jaxlib_never_ends_with_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "SECONDS", 3)
    with pytest.raises(UsageError, match=r"HLO307.*takes more than 3 s"):
        conversion.read(Path(__file__).parents[2] / "testdata" / "forms" / "endless.bin")
