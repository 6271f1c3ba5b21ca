"""Modules that a rule has to leave as they are: small ones, each of which a condition was forgotten for once."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ir import Module
from hlo_opt.passes.run import run
from hlo_opt.passes.simplified import simplified
from hlo_opt.runtime.check.compare import check

ITERATED = """HloModule m

ENTRY e {
  p = f32[6,4]{1,0} parameter(0)
  k = s32[2,3]{1,0} iota(), iota_dimension=COUNTED
  r = s32[6]{0} reshape(k)
  ROOT g = f32[6,4]{1,0} gather(p, r), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}
}
"""
WAITS = """HloModule m

ENTRY e {
  x = f32[8]{0} parameter(0)
  y = f32[8]{0} parameter(1)
  a = f32[4]{0} slice(x), slice={[0:4]}
  b = f32[4]{0} slice(y), slice={[0:4]}
  s = f32[4]{0} add(a, b)
  t = f32[4]{0} negate(s)
  w = f32[8]{0} add(x, y)WAIT
  ROOT o = (f32[4]{0}, f32[8]{0}) tuple(t, w)
}
"""
WIDENED = """HloModule m

sum {
  a = u8[] parameter(0)
  b = u8[] parameter(1)
  ROOT c = u8[] add(a, b)
}

ENTRY e {
  x = u16[4,3]{1,0} parameter(0)
  zero = u8[] constant(0)
  t = u16[3,4]{1,0} transpose(x), dimensions={1,0}
  b = u8[3,4,2]{2,1,0} bitcast-convert(t)
  ROOT r = u8[4]{0} reduce(b, zero), dimensions={0,2}, to_apply=sum
}
"""
NARROWED = """HloModule m

sum {
  a = u16[] parameter(0)
  b = u16[] parameter(1)
  ROOT c = u16[] add(a, b)
}

ENTRY e {
  x = u8[4,3,2]{2,1,0} parameter(0)
  zero = u16[] constant(0)
  t = u8[3,4,2]{2,1,0} transpose(x), dimensions={1,0,2}
  b = u16[3,4]{1,0} bitcast-convert(t)
  ROOT r = u16[4]{0} reduce(b, zero), dimensions={0}, to_apply=sum
}
"""
REPLICATED = """HloModule m, replica_count=REPLICAS, num_partitions=PARTITIONS

most {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] maximum(a, b)
}

ENTRY e {
  p = s32[4]{0} parameter(0), parameter_replication={true}
  ROOT r = s32[4]{0} all-reduce(p), channel_id=1, use_global_device_ids=true, replica_groups={{0,1}}, to_apply=most
}
"""
COUNTED = """HloModule mHEADER

sum {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b)
}

ENTRY e {
  p = s32[4]{0} parameter(0), parameter_replication={true}
  k = s32[] constant(3)
  n = s32[8]{0} broadcast(k), dimensions={}
  r = s32[4]{0} all-reduce(p), replica_groups={{0,1,2,3}}, to_apply=sum
  s = s32[2]{0} reduce-scatter(n), replica_groups={{0,1,2,3}}, dimensions={0}, to_apply=sum
  ROOT t = (s32[4]{0}, s32[2]{0}) tuple(r, s)
}
"""
EVERYONE = """HloModule m

sum {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b)
}

ENTRY e {
  p = s32[4]{0} parameter(0)
  q = s32[4]{0} OTHER
  r = s32[4]{0} all-reduce(p), replica_groups={}, to_apply=sum
  ROOT t = (s32[4]{0}, s32[4]{0}) tuple(q, r)
}
"""
MET = """HloModule m, replica_count=2

sum {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b)
}

ENTRY e {
  p = s32[4]{0} parameter(0)
  q = s32[4]{0} negate(p)
  r = s32[4]{0} all-reduce(p), replica_groups={{0,1}}, to_apply=sumWAIT
  own = u32[] replica-id()
  two = u32[] constant(2)
  at = u32[] multiply(own, two)
  part = s32[2]{0} dynamic-slice(r, at), dynamic_slice_sizes={2}
  ROOT t = (s32[2]{0}, s32[4]{0}) tuple(part, q)
}
"""
NOTED = """HloModule m

ENTRY e {
  p = f32[8,8]{1,0} parameter(0)
  q = f32[8]{0} parameter(1)
  t = f32[8,8]{1,0} transpose(p), dimensions={1,0}NOTE
  z = f32[8,8]{1,0} transpose(t), dimensions={1,0}
  ROOT r = f32[8]{0} dot(z, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}, frontend_attributes={kept="yes"}
}
"""
LOOP = """HloModule m

cond {
  c = (s32[], f32[8], f32[8]) parameter(0)
  n = s32[] get-tuple-element(c), index=0
  most = s32[] constant(100)
  ROOT less = pred[] compare(n, most), direction=LT
}

body {
  b = (s32[], f32[8], f32[8]) parameter(0)
  n.1 = s32[] get-tuple-element(b), index=0
  one = s32[] constant(1)
  next = s32[] add(n.1, one)
  v = f32[8]{0} get-tuple-element(b), index=1
  w = f32[8]{0} sine(v)
  x = f32[8]{0} get-tuple-element(b), index=2
  ROOT t = (s32[], f32[8], f32[8]) tuple(next, w, x)
}

ENTRY e {
  x.1 = f32[8]{0} parameter(0)
  z = s32[] constant(0)
  start = (s32[], f32[8], f32[8]) tuple(z, x.1, x.1)
  loop = (s32[], f32[8], f32[8]) while(start), condition=cond, body=bodySHARDED
  ROOT r = f32[8]{0} get-tuple-element(loop), index=1
}
"""


def simpler(text: str) -> tuple[Module, Module, set[str]]:
    """A module, what the stage makes of it, and the rules that took something."""
    module = hlo_opt.parse(text)
    hlo_opt.verify(module)
    outcome = simplified(module)
    hlo_opt.verify(outcome.module)
    return module, outcome.module, {step.rule for steps in outcome.context.simplified for step in steps}


@pytest.mark.parametrize(("counted", "in_order"), [(0, False), (1, False)])
def test_an_iota_that_counts_again_is_no_order_of_rows(counted: int, in_order: bool) -> None:
    module, made, fired = simpler(ITERATED.replace("COUNTED", str(counted)))
    assert ("gather-rows-in-order" in fired) == in_order
    rows = np.arange(24, dtype=np.float32).reshape(6, 4)
    (want,), (got,) = hlo_opt.evaluate(module, [rows]), hlo_opt.evaluate(made, [rows])
    assert want.tobytes() == got.tobytes()


def test_rows_in_order_are_the_array() -> None:
    text = ITERATED.replace("s32[2,3]{1,0} iota(), iota_dimension=COUNTED", "s32[6,1]{1,0} iota(), iota_dimension=0")
    assert "gather-rows-in-order" in simpler(text)[2]


GATHERED = """HloModule m

ENTRY e {
  x = f32[3,7,2]{2,1,0} parameter(0)
  i = s32[COUNT,1]{1,0} constant({PLACES})
  ROOT g = f32[3,COUNT,2]{2,1,0} gather(x, i), offset_dims={0,2}, collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=1, slice_sizes={3,1,2}
}
"""  # fmt: skip


@pytest.mark.parametrize(
    ("places", "taken"),
    [
        ([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6], True),
        ([0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6], True),
        ([1, 1, 3, 3, 5, 5, 1, 1, 3, 3, 5, 5], True),
        ([2, 5], True),
        ([5, 6, 7], False),  # moved inside: 5, 6, 6
        ([6, 9, 100], True),
        ([3, 2, 1], True),
        ([1, 0, 3, 2, 5, 4], True),  # i ^ 1
        ([5, 4, 3, 2, 1, 0], True),
        ([0, 2, 4, 1, 3, 5], True),  # (i % 3) * 2 + i // 3
        ([0, 3, 1, 4, 2, 5, 0, 3, 1, 4, 2, 5], True),
        ([5, 5, 3, 3, 1, 1], True),
        ([3, 4, 5, 6, 0, 1, 2], True),  # (i + 3) % 7
        ([6, 0, 1, 2, 3, 4, 5], True),
        ([3, 4, 5, 0, 1, 2], True),
        ([2, 3, 4, 0, 1], False),
        ([0, 1, 4, 5], False),
        ([0, 1, 2, 4, 3, 5], False),
        ([0, 1, 1, 2, 2, 3], False),
        ([0, 0, 1], False),
        ([0, 1, 1, 2], False),
        ([0, 1, 0, 1, 0], False),
        ([0, 1, 0, 2], False),
    ],
)
def test_places_that_are_digits_with_steps_are_no_gather(places: list[int], taken: bool) -> None:
    listed = ",".join(f"{{{p}}}" for p in places)
    module, made, fired = simpler(GATHERED.replace("COUNT", str(len(places))).replace("PLACES", listed))
    assert ("gather-at-known-places" in fired) == taken == all(i.opcode != "gather" for i in made.entry.instructions)
    values = np.arange(42, dtype=np.float32).reshape(3, 7, 2)
    (want,), (got,) = hlo_opt.evaluate(module, [values]), hlo_opt.evaluate(made, [values])
    assert want.tobytes() == got.tobytes()


@pytest.mark.parametrize(("wait", "taken"), [("", True), (", control-predecessors={t}", False)])
def test_what_waits_for_a_reader_is_not_read_instead(wait: str, taken: bool) -> None:
    assert ("operation-on-slices" in simpler(WAITS.replace("WAIT", wait))[2]) == taken


@pytest.mark.parametrize(("replicas", "partitions", "taken"), [(2, 1, True), (1, 2, False)])
def test_what_is_the_same_on_replicas_may_differ_between_partitions(
    replicas: int, partitions: int, taken: bool
) -> None:
    text = REPLICATED.replace("REPLICAS", str(replicas)).replace("PARTITIONS", str(partitions))
    assert ("all-reduce-of-replicated" in simpler(text)[2]) == taken


@pytest.mark.parametrize("header", ["", ", replica_count=4"])
def test_a_header_of_one_device_leaves_the_number_of_devices_open(header: str) -> None:
    """Many dumps say nothing of devices, and their groups name all of them."""
    module, made, fired = simpler(COUNTED.replace("HEADER", header))
    assert {"sum-of-replicated", "all-reduce-of-same"} <= fired
    assert check(module, made, backend="numpy").ok
    own = np.arange(4, dtype=np.int32)
    sums, parts = hlo_opt.evaluate(made, [own])
    assert sums.tolist() == (own * 4).tolist() and parts.tolist() == [12, 12]


@pytest.mark.parametrize(
    ("other", "taken"), [("copy(p)", True), ("collective-permute(p), source_target_pairs={{0,1},{1,0}}", False)]
)
def test_a_collective_without_groups_is_of_all_devices_that_others_name(other: str, taken: bool) -> None:
    text = EVERYONE.replace("OTHER", other)
    module, made, fired = simpler(text)
    assert ("collective-of-one" in fired) == taken
    assert check(module, made, backend="numpy").ok


@pytest.mark.parametrize(("wait", "taken"), [("", True), (", control-predecessors={q}", False)])
def test_devices_do_not_meet_twice(wait: str, taken: bool) -> None:
    _, made, fired = simpler(MET.replace("WAIT", wait))
    assert ("own-part-of-all-reduce" in fired) == taken
    assert sum(i.opcode in ("all-reduce", "reduce-scatter") for i in made.entry.instructions) == 1


def test_what_is_said_of_an_operation_goes_to_what_stands_for_it() -> None:
    _, made, fired = simpler(NOTED.replace("NOTE", ""))
    assert fired
    assert 'kept="yes"' in str(made)


@pytest.mark.parametrize(("said", "left"), [("", 2), (", sharding={{replicated}, {replicated}, {replicated}}", 3)])
def test_a_loop_of_whose_elements_something_is_said_keeps_them(said: str, left: int) -> None:
    module = hlo_opt.parse(LOOP.replace("SHARDED", said))
    made = run(module, passes="while-loop-simplifier").module
    (loop,) = [i for i in made.entry.instructions if i.opcode == "while"]
    assert len(loop.shape.elements or ()) == left


@pytest.mark.parametrize("text", [WIDENED, NARROWED])
def test_bits_of_a_type_of_another_size_are_not_moved(text: str) -> None:
    """Their dimensions are not those of what was transposed."""
    module, made, fired = simpler(text)
    assert "reduce-of-moved" not in fired
    shape = module.entry.parameters[0].shape
    x = np.arange(shape.element_count).reshape(shape.dimensions).astype(shape.type.dtype)
    (want,), (got,) = hlo_opt.evaluate(module, [x]), hlo_opt.evaluate(made, [x])
    assert want.tobytes() == got.tobytes()


OWN = """HloModule m

ENTRY e {
  p = f32[2]{0} parameter(0)
  places = s32[4]{0} constant({0, 2, 4, 6})
  g = f32[8]{0} all-gather(p), channel_id=1, use_global_device_ids=true, replica_groups={{0,1,2,3}}, dimensions={0}
  own = u32[] replica-id()
  other = u32[] partition-id()
  number = u32[] NUMBER
  place = s32[1]{0} dynamic-slice(places, number), dynamic_slice_sizes={1}
  at = s32[] reshape(place)
  part = f32[2]{0} dynamic-slice(g, at), dynamic_slice_sizes={2}
  ROOT n = f32[2]{0} negate(part)
}
"""


@pytest.mark.parametrize(("number", "taken"), [("copy(own)", True), ("copy(other)", True), ("add(own, other)", False)])
def test_the_number_that_a_module_asks_for_says_what_its_devices_are(number: str, taken: bool) -> None:
    text = OWN.replace("NUMBER", number)
    for name in ("own", "other"):
        text = text if name in number else "\n".join(x for x in text.splitlines() if f"  {name} =" not in x)
    module, made, fired = simpler(text)
    assert ("own-part-of-all-gather" in fired) == taken
    assert check(module, made, backend="numpy").ok
