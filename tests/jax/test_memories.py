"""What calls may do with memory that is written again."""

from __future__ import annotations

import pytest

from hlo_opt.jax.memories import Memories
from hlo_opt.jax.regions import Candidate, module_of
from hlo_opt.text import parse
from hlo_opt.text.aliases import aliased_leaves

HEADER = "HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }"


def pairs_of(text: str, *names: str, header: str = HEADER) -> list[tuple[int, int]] | None:
    """The pairs of the region with these members."""
    module = parse(f"{header}\n{text}")
    members = tuple(i for i in module.entry.instructions if i.name in names)
    return Memories(module).pairs(Candidate(module.entry, members))


APART = """
ENTRY e {
  p = f32[64] parameter(0)
  q = f32[64] parameter(1)
  a = f32[64] sine(q)
  b = f32[64] negate(q)
  ROOT r = (f32[64], f32[64]) tuple(a, b)
}
"""
IN_PLACE = """
ENTRY e {
  p = f32[64] parameter(0)
  q = f32[64] parameter(1)
  a = f32[64] subtract(p, q)
  b = f32[64] negate(p)
  v = f32[8,8] bitcast(b)
  ROOT r = (f32[64], f32[8,8]) tuple(a, v)
}
"""
UPDATE = """
ENTRY e {
  p = f32[64] parameter(0)
  q = f32[64] parameter(1)
  i = s32[] parameter(2)
  n = f32[8] slice(q), slice={[0:8]}
  s = f32[64] sine(p)
  u = f32[64] dynamic-update-slice(p, n, i)
  c = f32[64] cosine(u)
  ROOT r = (f32[64], f32[64], f32[64]) tuple(u, s, c)
}
"""


FUSED = """
f {
  x = f32[64] parameter(0)
  y = f32[64] parameter(1)
  u = f32[64] add(x, y)
  v = f32[64] subtract(x, y)
  ROOT t = (f32[64], f32[64]) tuple(u, v)
}
ENTRY e {
  p = f32[64] parameter(0)
  q = f32[64] parameter(1)
  ROOT a = (f32[64], f32[64]) fusion(p, q), kind=kLoop, calls=f
}
"""
BOTH = "HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }"


def test_each_array_of_a_fusion_that_is_the_root_has_a_memory() -> None:
    assert pairs_of(FUSED, "a", header=BOTH) == [(0, 0), (1, 1)]
    module = parse(f"{BOTH}\n{FUSED}")
    own = module_of(Candidate(module.entry, (module.entry.root,)), [(0, 0), (1, 1)])
    assert aliased_leaves(own) == {0: 0, 1: 1}


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        (APART, "a b", []),
        (IN_PLACE, "a b v", [(0, 0)]),
        (IN_PLACE, "b v", None),  # the subtraction writes what it reads, and only the schedule has it later
        (IN_PLACE, "a", None),  # and the other way round
        (IN_PLACE.replace("tuple(a, v)", "tuple(a, w)").replace("v =", "w ="), "a b", [(0, 0)]),
        (UPDATE, "n", []),
        (UPDATE, "n u", None),  # the sine reads what the call would overwrite
        (UPDATE, "n s u c", [(1, 1)]),
        (UPDATE, "c", []),  # reads what was written, behind it
        (UPDATE, "s", None),  # the update stays XLA's, which the sine must not follow
        (UPDATE, "s c", None),  # the old value and the new one
    ],
)
def test_inputs_and_outputs_in_one_memory(text: str, names: str, expected: list[tuple[int, int]] | None) -> None:
    found = pairs_of(text, *names.split())
    assert found == expected


def test_updates_of_what_is_no_parameter_count_too() -> None:
    text = UPDATE.replace("s = f32[64] sine(p)", "x = f32[64] tanh(p)\n  s = f32[64] sine(x)").replace(
        "e(p, n", "e(x, n"
    )
    header = "HloModule m, is_scheduled=true"
    assert pairs_of(text, "s", header=header) is None
    assert pairs_of(text, "x", header=header) == []
    assert pairs_of(text, "n", "x", "s", "u", "c", header=header) == [], "the call's own results are new arrays"


def test_without_a_schedule_xla_orders_what_it_compiles() -> None:
    assert pairs_of(UPDATE, "s", header="HloModule m") == []


WHILE = """
body {
  s = (s32[], f32[64]) parameter(0)
  k = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  n = s32[] add(k, one)
  x = f32[64] get-tuple-element(s), index=1
  y = f32[64] sine(x)
  ROOT t = (s32[], f32[64]) tuple(n, y)
}
condition {
  s_2 = (s32[], f32[64]) parameter(0)
  k_2 = s32[] get-tuple-element(s_2), index=0
  most = s32[] constant(10)
  ROOT less = pred[] compare(k_2, most), direction=LT
}
ENTRY e {
  p = f32[64] parameter(0)
  zero = s32[] constant(0)
  i = s32[] copy(zero)
  start = (s32[], f32[64]) tuple(i, p)
  loop = (s32[], f32[64]) while(start), condition=condition, body=body
  last = f32[64] get-tuple-element(loop), index=1
  a = f32[64] negate(last)
  b = f32[64] cosine(last)
  ROOT r = (f32[64], f32[64]) tuple(a, b)
}
"""


@pytest.mark.parametrize(("names", "expected"), [("a b", None), ("b", None), ("i", [])])
def test_a_loops_state_is_in_the_memory_of_what_it_begins_with(names: str, expected: list[object] | None) -> None:
    assert pairs_of(WHILE, *names.split()) == expected


def test_memory_through_the_halves_of_a_copy() -> None:
    text = """
ENTRY e {
  p = f32[64] parameter(0)
  a = f32[64] negate(p)
  start = (f32[64], f32[64], u32[]) copy-start(a)
  done = f32[64] copy-done(start)
  b = f32[64] sine(a)
  ROOT r = (f32[64], f32[64]) tuple(done, b)
}
"""
    assert pairs_of(text, "a", "b") == [(0, 0)]
