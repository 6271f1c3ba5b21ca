"""Modules as bytes: what is not replaced stays what it was, and what is put in is what XLA reads."""

from __future__ import annotations

import pytest
from jaxlib import _hlo

from hlo_opt.forms.wire import fields, of_bytes, of_number, varint, written
from hlo_opt.jax.calls import call_nodes, call_text
from hlo_opt.jax.wire import ModuleBytes, Replacement
from hlo_opt.text import parse

TEXT = """HloModule m

inner {
  a = f32[4] parameter(0)
  ROOT b = f32[4] sine(a)
}

used {
  a2 = f32[4] parameter(0)
  ROOT b2 = f32[4] call(a2), to_apply=inner
}

ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] negate(x), metadata={op_name="y"}
  z = f32[4] call(y), to_apply=used
  w = f32[4] cosine(y)
  u = f32[4] add(z, w)
  ROOT t = (f32[4], f32[4], f32[4]) tuple(u, w, y)
}
"""


def message(text: str) -> bytes:
    return _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()


def text_of(found: bytes) -> str:
    return _hlo.HloModule.from_serialized_hlo_module_proto(found).to_string()


def replaced(gone: tuple[str, ...], inputs: tuple[str, ...], outputs: tuple[str, ...], text: str = TEXT) -> str:
    """The text of the module with a call in the place of instructions."""
    return text_of(module_with_a_call(gone, inputs, outputs, text).message())


def module_with_a_call(
    gone: tuple[str, ...], inputs: tuple[str, ...], outputs: tuple[str, ...], text: str
) -> ModuleBytes:
    by_name = {i.name: i for i in parse(text).entry.instructions}
    call = call_text([by_name[i].shape for i in inputs], [by_name[o].shape for o in outputs], "abc")
    module = ModuleBytes(message(text))
    change = Replacement("e", gone, inputs, outputs, call, "abc")
    module.replace(change, call_nodes(change))
    return module


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**32, 2**63])
def test_numbers(value: int) -> None:
    assert varint(written(value), 0) == (value, len(written(value)))


def test_fields_of_every_kind() -> None:
    data = of_number(1, 300) + of_bytes(2, b"abc") + written(3 << 3 | 1) + bytes(8) + written(4 << 3 | 5) + bytes(4)
    found = [(f.number, f.value, f.data) for f in fields(data)]
    assert found == [(1, 300, b""), (2, 0, b"abc"), (3, 0, bytes(8)), (4, 0, bytes(4))]


@pytest.mark.parametrize("data", [b"\x0a\x05ab", b"\x0b", b"\xff"])
def test_what_is_no_message(data: bytes) -> None:
    with pytest.raises(ValueError):
        ModuleBytes(data)


def test_nothing_changes_by_itself() -> None:
    module = ModuleBytes(message(TEXT))
    for body in module.bodies:
        assert body.size == len(body.nodes)
    assert text_of(module.message()) == text_of(message(TEXT))
    assert module.name == "m" and not module.donates


def test_donation_is_seen() -> None:
    header = "HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }"
    assert ModuleBytes(message(TEXT.replace("HloModule m", header))).donates


def test_the_fingerprint_knows_what_is_computed() -> None:
    first = ModuleBytes(message(TEXT)).fingerprint()
    assert ModuleBytes(message(TEXT)).fingerprint() == first
    assert ModuleBytes(message(TEXT.replace("cosine", "tanh"))).fingerprint() != first


def test_one_result() -> None:
    text = replaced(("z",), ("y",), ("z",))
    assert "sine(" not in text.replace("cosine(", ""), "what only the call ran is gone"
    (line,) = (line for line in text.splitlines() if "custom-call" in line)
    assert "%hlo_opt.z = f32[4]" in line and "custom-call(%y)" in line and 'key = "abc"' in line
    assert "add(%hlo_opt.z, %w)" in text


def test_several_results() -> None:
    text = replaced(("y", "z", "w", "u"), ("x",), ("y", "w", "u"))
    assert "custom-call(%x)" in text and "negate" not in text
    assert [f"get-tuple-element(%hlo_opt.y), index={n}" in text for n in range(3)] == [True] * 3
    assert "tuple(%u, %w, %y)" in text


def test_a_call_stands_behind_what_it_reads() -> None:
    text = replaced(("u",), ("z", "w"), ("u",))
    entry = text[text.index("ENTRY") :]
    assert entry.index("%w = ") < entry.index("%hlo_opt.u = ") < entry.index("ROOT")


def test_a_schedule_has_the_call_where_its_first_reader_needs_it() -> None:
    scheduled = TEXT.replace("HloModule m", "HloModule m, is_scheduled=true")
    text = replaced(("z",), ("y",), ("z",), scheduled)
    assert "is_scheduled=true" in text and "%used" not in text
    lines = text[text.index("ENTRY") :].splitlines()[1:-2]
    assert [line.split(" = ")[0].split("%")[1] for line in lines] == ["x", "y", "w", "hlo_opt.z", "u", "t"]


MOVED = """HloModule m, is_scheduled=true
ENTRY e {
  x = f32[4] parameter(0)
  a = f32[4] sine(x)
  r = f32[4] negate(a)
  h = f32[4] cosine(x)
  b = f32[4] tanh(h)
  ROOT t = (f32[4], f32[4]) tuple(r, b)
}
"""


@pytest.mark.parametrize(
    ("text", "gone", "inputs", "moves"),
    [
        (MOVED, ("a", "b"), ("x", "h"), True),  # the cosine goes before the negation, which the call's result is for
        (MOVED.replace(", is_scheduled=true", ""), ("a", "b"), ("x", "h"), False),
        (MOVED, ("a",), ("x",), False),
        (MOVED.replace("cosine(", "bitcast("), ("a", "b"), ("x", "h"), False),  # that reads no memory
    ],
)
def test_whether_a_call_moves_others(text: str, gone: tuple[str, ...], inputs: tuple[str, ...], moves: bool) -> None:
    assert module_with_a_call(gone, inputs, gone, text).is_reordered is moves


def test_a_schedule_changes_nothing_by_itself() -> None:
    scheduled = message(TEXT.replace("HloModule m", "HloModule m, is_scheduled=true"))
    assert text_of(ModuleBytes(scheduled).message()) == text_of(scheduled)


def test_the_name_of_the_entry() -> None:
    assert ModuleBytes(message(TEXT)).entry_name == "e"
    assert ModuleBytes(b"").entry_name == ""


def test_a_name_that_there_is_not() -> None:
    with pytest.raises(KeyError):
        ModuleBytes(message(TEXT)).replace(Replacement("e", ("nothing",), ("x",), ("y",), "", ""), [])
