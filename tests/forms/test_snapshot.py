"""Inputs of snapshots, bit by bit, as XLA writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from form_samples import apart, dumped, forms, literal

from hlo_opt.forms.kinds import Form, form_of
from hlo_opt.forms.snapshot import arrays_of, recorded_inputs
from hlo_opt.forms.wire import of_bytes, of_number
from hlo_opt.text import parse

VALUES = {
    **dict.fromkeys(("s2", "u2"), "{{0, 1, 1}, {1, 0, 1}}"),
    **dict.fromkeys(("s4", "s8", "s16", "s32", "s64"), "{{0, 1, -8}, {7, -1, 3}}"),
    **dict.fromkeys(("u4", "u8", "u16", "u32", "u64"), "{{0, 1, 15}, {7, 9, 3}}"),
    **dict.fromkeys(("f16", "bf16", "f32", "f64"), "{{0, -0.0, inf}, {-inf, nan, 0.375}}"),
    **dict.fromkeys(
        ("f8e5m2", "f8e4m3fn", "f8e4m3", "f8e3m4", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz", "f4e2m1fn"),
        "{{0, 1, 2}, {-1, 0.5, 1.5}}",
    ),
    "f8e8m0fnu": "{{1, 2, 4}, {0.5, 0.25, 8}}",
    "pred": "{{true, false, true}, {false, false, true}}",
    **dict.fromkeys(("c64", "c128"), "{{(1, 2), (0, -0.0), (inf, nan)}, {(3, 4), (5, 6), (7, 8)}}"),
}


@pytest.mark.parametrize("layout", ["{1,0}", "{0,1}"])
@pytest.mark.parametrize("kind", VALUES)
def test_arrays_are_those_of_the_text(kind: str, layout: str) -> None:
    text = f"{kind}[2,3]{layout} constant({VALUES[kind]})"
    (found,) = arrays_of(literal(text))
    read = parse(f"HloModule m\n\nENTRY e {{\n  ROOT c = {text}\n}}\n").entry.root.literal
    assert read is not None and isinstance(read.value, np.ndarray)
    assert found.dtype == read.value.dtype and found.tobytes() == np.ascontiguousarray(read.value).tobytes()


@pytest.mark.parametrize("form", [Form.SNAPSHOT, Form.PARTITIONS])
def test_inputs_of_both_kinds_of_snapshots(form: Form) -> None:
    ((first, second),) = recorded_inputs(forms()[form], form)
    assert first.dtype == np.float32 and first.tolist() == [[1, 2, 3], [4, 5, 6]] and first.flags.c_contiguous
    assert second.dtype == np.int32 and second.tolist() == [[1, -2, 3], [4, 5, 6]]


@pytest.mark.parametrize("form", [Form.TEXT, Form.MODULE, Form.PROTO, Form.BYTECODE])
def test_other_forms_hold_none(form: Form) -> None:
    assert recorded_inputs(forms()[form], form) == []


def test_tuples_are_flattened() -> None:
    one, two = literal("f32[] constant(3)"), literal("s32[2] constant({4, 5})")
    shape = of_bytes(1, of_number(2, 13))
    found = arrays_of(shape + of_bytes(10, one) + of_bytes(10, shape + of_bytes(10, two)))
    assert [a.tolist() for a in found] == [3, [4, 5]]


@pytest.mark.parametrize(
    "data",
    [
        of_bytes(1, of_number(2, 11) + of_number(3, 4)) + of_bytes(8, bytes(12)),
        of_bytes(1, of_number(2, 11) + of_number(3, 4)) + of_bytes(8, bytes(15)),
        of_bytes(1, of_number(2, 99)),
        of_bytes(1, of_number(2, 31) + of_number(3, 1)) + of_bytes(31, b"\1"),
        of_bytes(1, of_number(2, 11) + of_number(3, 1 << 40)),
        of_bytes(1, of_number(2, 11) + of_number(3, 1) + of_bytes(5, of_number(1, 3))) + of_bytes(8, bytes(4)),
    ],
)
def test_what_is_no_literal(data: bytes) -> None:
    with pytest.raises(ValueError):
        arrays_of(data)


@pytest.mark.parametrize("wrap", [lambda inner: of_bytes(10, inner), lambda inner: of_bytes(4, inner)])
def test_messages_in_messages_are_bounded(wrap: Callable[[bytes], bytes]) -> None:
    """Tuples of literals, and shapes of tuples."""
    data = b""
    for _ in range(5000):
        data = wrap(data)
    with pytest.raises(ValueError, match="100 deep"):
        arrays_of(data if wrap(b"")[0] >> 3 == 10 else of_bytes(1, data))


def test_arrays_behind_a_snapshot_that_are_cut_off() -> None:
    shape = of_number(2, 11) + of_number(3, 4)
    array = len(shape).to_bytes(8, "little") + shape + bytes(16)
    ((found,),) = recorded_inputs(apart([len(array)], array), Form.PARTITIONS)
    assert found.tolist() == [0, 0, 0, 0]
    for cut in (array[:-1], array[:-8]):
        with pytest.raises(ValueError, match="cut off"):
            recorded_inputs(apart([len(array)], cut), Form.PARTITIONS)
        with pytest.raises(ValueError, match="cut off"):
            recorded_inputs(apart([len(cut)], cut), Form.PARTITIONS)


NAMES = (
    *("bool", "int2", "uint2", "int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16"),
    *("bfloat16", "float32", "complex64", "float8_e4m3fn", "float8_e5m2"),
)


@pytest.mark.parametrize(
    "flags",
    [
        "--xla_dump_hlo_snapshots",
        "--xla_dump_hlo_unoptimized_snapshots",
        "--xla_dump_hlo_unoptimized_snapshots --xla_dump_hlo_as_proto",
    ],
)
def test_what_xla_dumps_is_what_the_program_was_given(flags: str, tmp_path: Path) -> None:
    dumped(flags, NAMES, tmp_path)
    (file,) = tmp_path.glob("*lambda*snapshot*.pb")
    data = file.read_bytes()
    form = form_of(data)
    assert form in (Form.SNAPSHOT, Form.PARTITIONS)
    (found,) = recorded_inputs(data, form)
    with np.load(tmp_path / "given.npz") as given:
        assert [a.tobytes() for a in found] == [given[f"arr_{n}"].tobytes() for n in range(len(NAMES))]
