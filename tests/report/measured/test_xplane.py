"""`*.xplane.pb`, field by field: which events count, and that broken bytes are told."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hlo_opt.forms.wire import fields
from hlo_opt.report.measured.xplane import read

PROFILE = Path(__file__).resolve().parents[3] / "testdata" / "profiles" / "mlp_train_step.xplane.pb"


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def entry(number: int, key: int, name: str) -> bytes:
    return field(number, field(1, key) + field(2, field(1, key) + field(2, name)))


def event(name: int, picoseconds: int, *stats: bytes, count: int | None = None) -> bytes:
    data = field(1, name) + field(2, 5) + field(3, picoseconds) + b"".join(field(4, s) for s in stats)
    return field(4, data + (field(5, count) if count is not None else b""))


def space(
    *lines: bytes,
    names: tuple[str, ...] = ("add.1", "dot"),
    statistics: tuple[str, ...] = ("hlo_op", "hlo_module", "run_id", "f"),
) -> bytes:
    tables = b"".join(entry(4, n, name) for n, name in enumerate(names)) + b"".join(
        entry(5, n, s) for n, s in enumerate(statistics)
    )
    return field(1, field(2, "/host:CPU") + tables + b"".join(field(3, line) for line in lines))


def op(name: str, module: str = "m", run: int = 7) -> tuple[bytes, ...]:
    return field(1, 0) + field(5, name), field(1, 1) + field(5, module), field(1, 2) + field(4, run)


def test_events_are_added_up_by_module_and_instruction() -> None:
    line = (
        field(2, "thread")
        + event(0, 2_000_000, *op("add.1"))
        + event(0, 1_000_000, *op("add.1", run=8))
        + event(1, 500_000, *op("dot", "other"), count=3)
    )
    found = read(space(line))
    events, executions = found.of("m")
    assert {n: (r.count, r.us) for n, r in events.items()} == {"add.1": (2, 3.0)} and executions == 2
    assert found.of("other")[0]["dot"].count == 3 and sorted(found.modules) == ["m", "other"]
    assert found.of("elsewhere") == ({}, 0)


def test_an_instruction_may_be_named_by_reference() -> None:
    line = event(1, 1_000_000, field(1, 0) + field(7, 3))
    assert read(space(line)).of("")[0]["f"].us == 1.0


def test_what_names_no_instruction_does_not_count() -> None:
    assert not read(space(event(0, 9), names=("gc",))).events
    assert not read(space(event(0, 9, *op("add.1")), statistics=("x", "y", "z"))).events


def test_streams_are_not_counted_beside_the_operations_of_a_device() -> None:
    stream, operations = (field(2, title) + event(0, 1_000_000, *op("add.1")) for title in ("Stream #1", "XLA Ops"))
    assert read(space(stream, operations)).of("m")[0]["add.1"].count == 1


def test_a_profile_of_jax_is_read() -> None:
    events, executions = read(PROFILE.read_bytes()).of("jit_train_step")
    assert executions == 3 and len(events) == 27 and all(r.us > 0 for r in events.values())


def test_what_is_no_profile_is_a_value_error() -> None:
    data = PROFILE.read_bytes()[:4000]
    for wrong in (b"\xff" * 40, b"", b"\x0b\x01", field(2, "x"), field(1, 7), data[:-1]):
        with pytest.raises(ValueError, match=r"\w"):
            read(wrong)
    chance = random.Random(1)
    for _ in range(300):
        broken = bytearray(data)
        for _ in range(3):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        try:
            read(bytes(broken))
        except ValueError:
            continue


def test_fixed_fields_are_passed_over() -> None:
    data = varint(1 << 3 | 1) + (3).to_bytes(8, "little") + varint(2 << 3 | 5) + (4).to_bytes(4, "little") + field(3, 5)
    assert [(f.number, f.value) for f in fields(data)] == [(1, 3), (2, 4), (3, 5)]
