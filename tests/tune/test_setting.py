"""The steps from one setting to its neighbours."""

from __future__ import annotations

import pytest

from hlo_opt.passes import Pipeline, parse_pipeline, preset, preset_names
from hlo_opt.tune.setting import (
    Forbid,
    Force,
    LeaveOut,
    SetEverywhere,
    SetOption,
    Setting,
    SettingChange,
    Swap,
    applied,
    option_changes,
    order_changes,
    places,
    switches,
)

START = Setting(parse_pipeline("cse,fixpoint(instruction-fusion{may-duplicate=false},dce),instruction-fusion"))


def spelt(setting: Setting | None) -> str | None:
    return None if setting is None else ",".join(setting.pipeline.spelt())


@pytest.mark.parametrize(
    ("change", "wanted", "told"),
    [
        (
            SetOption((1, 0), "instruction-fusion", "may_duplicate", True),
            "cse,fixpoint(instruction-fusion,dce),instruction-fusion",
            "instruction-fusion{may-duplicate=true} (step 2.1)",
        ),
        (SetOption((1, 1), "instruction-fusion", "may_duplicate", True), None, None),
        (SetOption((2,), "instruction-fusion", "may_duplicate", True), None, None),
        (SetOption((0, 1), "instruction-fusion", "may_duplicate", True), None, None),
        (
            SetEverywhere("instruction-fusion", "max_emissions", 30),
            "cse,fixpoint(instruction-fusion{may-duplicate=false,max-emissions=30},dce),"
            "instruction-fusion{max-emissions=30}",
            "instruction-fusion{max-emissions=30} everywhere",
        ),
        (SetEverywhere("instruction-fusion", "max_emissions", 15), None, None),
        (LeaveOut((1, 1), "dce"), "cse,fixpoint(instruction-fusion{may-duplicate=false}),instruction-fusion", None),
        (LeaveOut((1, 2), "dce"), None, None),
        (
            Swap((0,), "cse"),
            "fixpoint(instruction-fusion{may-duplicate=false},dce),cse,instruction-fusion",
            "cse one step later (step 1)",
        ),
        (Swap((2,), "instruction-fusion"), None, None),
        (Swap((1, 1), "dce"), None, None),
    ],
)
def test_a_change_of_the_passes(change: SettingChange, wanted: str | None, told: str | None) -> None:
    assert spelt(change.apply(START)) == wanted
    assert told is None or str(change) == told


def test_a_group_without_passes_is_left_out() -> None:
    changes = [LeaveOut((1, 1), "dce"), LeaveOut((1, 0), "instruction-fusion")]
    assert spelt(applied(START, changes)) == "cse,instruction-fusion"


def test_an_edge_is_forbidden_or_forced_once() -> None:
    found = applied(START, [Forbid(("a", "b")), Force(("c", "d"))])
    assert found is not None and (found.forbid, found.force) == ((("a", "b"),), (("c", "d"),))
    assert str(Forbid(("a", "b"))) == "forbid a:b" and str(Force(("c", "d"))) == "force c:d"
    for change in (Forbid(("a", "b")), Force(("a", "b")), Forbid(("c", "d")), Force(("c", "d"))):
        assert applied(found, [change]) is None and applied(found, [change, change]) is None


def test_neighbours_differ_in_one_thing() -> None:
    for change in (*option_changes(START), *order_changes(START)):
        found = change.apply(START)
        assert found is None or (found != START and parse_pipeline(spelt(found) or "") == found.pipeline)
    kinds = [type(c) for c in order_changes(START)]
    assert kinds == [Swap, LeaveOut] * 4
    values = {
        (c.name, c.option, c.value) for c in option_changes(START) if isinstance(c, SetOption) and c.place == (2,)
    }
    assert values == {
        ("instruction-fusion", "may_duplicate", False),
        ("instruction-fusion", "max_emissions", 7),
        ("instruction-fusion", "max_emissions", 30),
        ("instruction-fusion", "row_kernels", False),
    }
    assert SetEverywhere("instruction-fusion", "may_duplicate", True) in list(switches(START))


def test_nothing_sets_what_needs_consent() -> None:
    start = Setting(parse_pipeline("algebraic-simplifier,launch-packing"))
    changes = [c for c in option_changes(start) if isinstance(c, SetOption)]
    assert {c.name for c in changes} == {"launch-packing"}
    assert [c.value for c in changes if c.option == "worth"] == [0.49, 0.931, 1.029, 1.96]


def test_places_go_into_groups() -> None:
    assert [(place, step.name) for place, step in places(START.pipeline.steps)] == [
        ((0,), "cse"),
        ((1, 0), "instruction-fusion"),
        ((1, 1), "dce"),
        ((2,), "instruction-fusion"),
    ]


@pytest.mark.parametrize("name", preset_names())
def test_a_pipeline_is_spelt_as_it_is_read(name: str) -> None:
    pipeline = parse_pipeline(preset(name))
    assert parse_pipeline(",".join(pipeline.spelt())) == pipeline
    for way in pipeline.alternatives():
        assert parse_pipeline(",".join(way.spelt())) == way


def test_every_sort_of_value_is_spelt() -> None:
    text = 'while-unroll{factor="full"},while-unroll{factor=4},launch-packing{max-us=1.5,worth=1e-05,max-open=1}'
    assert ",".join(Pipeline(parse_pipeline(text).steps).spelt()) == text
