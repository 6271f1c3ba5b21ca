"""Traces in JSON: those that name instructions, and any other."""

from __future__ import annotations

import gzip
import json

import pytest

from hlo_opt.report.measured.chrome import read, unpacked


def test_events_that_name_an_instruction_count_alone() -> None:
    named = {"ph": "X", "name": "x", "dur": 2.5, "args": {"hlo_op": "add.1", "hlo_module": "m", "run_id": "-4"}}
    trace = {"traceEvents": [named, named, {"ph": "X", "name": "gc", "dur": 9}, {"ph": "M", "name": "meta"}, 3]}
    events, executions = read(json.dumps(trace).encode()).of("m")
    assert {n: (r.count, r.us) for n, r in events.items()} == {"add.1": (2, 5.0)} and executions == 1


def test_other_traces_go_by_the_names_of_events() -> None:
    events, executions = read(b'[{"ph": "X", "name": "loop_add_fusion_1", "dur": 3}, {"ph": "B", "name": "y"}]').of(
        "any"
    )
    assert events["loop_add_fusion_1"].us == 3.0 and len(events) == 1 and executions == 0


@pytest.mark.parametrize("data", [b"{", b"{}", b'{"traceEvents": 3}', b"[" * 100_000, b"\xff"])
def test_what_is_no_trace_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|list"):
        read(data)


def test_gzip() -> None:
    assert unpacked(gzip.compress(b"[]")) == b"[]"
    for wrong in (b"\x1f\x8bxx", gzip.compress(b"[]" * 100)[:-9]):
        with pytest.raises(ValueError, match="gzip"):
            unpacked(wrong)
