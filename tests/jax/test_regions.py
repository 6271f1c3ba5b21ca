"""Which instructions go together, and regions as modules."""

from __future__ import annotations

import pytest

from hlo_opt.fusion.summary import module_summary
from hlo_opt.jax.regions import (
    Candidate,
    are_apart,
    bodies_of,
    clusters,
    kernels_write,
    layers_of,
    module_of,
    of_known_length,
    pieces,
    simple_form,
    together,
    work_of,
)
from hlo_opt.passes import run
from hlo_opt.text import parse, verify


def regions(text: str) -> list[list[str]]:
    """The names of the members of a text's regions."""
    return [[i.name for i in found.members] for found in clusters(parse(text).entry)]


def region(text: str) -> Candidate:
    (found,) = clusters(parse(text).entry)
    return found


LOOP = """HloModule m
body {
  s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  n = s32[] add(i, one)
  x = f32[64] get-tuple-element(s), index=1
  c = f32[64] copy(x)
  y = f32[64] sine(c)
  ROOT t = (s32[], f32[64]) tuple(n, y)
}
condition {
  s_2 = (s32[], f32[64]) parameter(0)
  i2 = s32[] get-tuple-element(s_2), index=0
  LIMIT
  ROOT less = pred[] compare(i2, most), direction=LT
}
ENTRY e {
  p = f32[64] parameter(0)
  q = s32[] parameter(1)
  zero = s32[] constant(0)
  start = (s32[], f32[64]) tuple(zero, p)
  loop = (s32[], f32[64]) while(start), condition=condition, body=body
  last = f32[64] get-tuple-element(loop), index=1
  ROOT r = f32[64] negate(last)
}
"""
COUNTED = LOOP.replace("LIMIT", "most = s32[] constant(10)")


CALL = """HloModule m
c {
  x = f32[64] parameter(0)
  ROOT y = f32[64] sine(x)
}
d {
  v = f32[64] parameter(0)
  ROOT w = f32[64] cosine(v)
}
ENTRY e {
  p = f32[64] parameter(0)
  n = s32[] parameter(1)
  one = f32[64] call(p), to_apply=cMARK
  ROOT r = f32[64] conditional(n, one, one), branch_computations={c, d}
}
"""


def bodies(text: str) -> list[list[tuple[str, int]]]:
    """The bodies of each instruction of the entry that has some."""
    every = [[(c.name, rounds) for c, rounds in bodies_of(i)] for i in parse(text).entry.instructions]
    return [found for found in every if found]


def test_bodies_have_regions_of_their_own() -> None:
    assert bodies(COUNTED) == [[("body", 10)]]
    assert bodies(CALL.replace("MARK", "")) == [[("c", 1)], [("c", 1), ("d", 1)]]


def test_small_calls_have_no_regions() -> None:
    """XLA compiles them as one function, which cannot call kernels."""
    assert bodies(CALL.replace("MARK", ', frontend_attributes={xla_cpu_small_call="true"}')) == [[("c", 1), ("d", 1)]]


UPDATE = """HloModule m
f {
  a = f32[64,64] parameter(0)
  u = f32[64] parameter(1)
  n = s32[] parameter(2)
  s = f32[64] sine(u)
  b = f32[1,64] bitcast(s)
  z = s32[] constant(0)
  w = f32[64,64] dynamic-update-slice(a, b, n, z)
  ROOT v = f32[4096] bitcast(w)
}
ENTRY e {
  a = f32[64,64] parameter(0)
  u = f32[64] parameter(1)
  n = s32[] parameter(2)
  t = f32[64] tanh(u)
  w = f32[4096] fusion(a, t, n), kind=kLoop, calls=f
  ROOT r = (f32[4096], f32[64]) tuple(w, t)
}
"""


@pytest.mark.parametrize(("is_entry", "expected"), [(True, [["t", "w"]]), (False, [["t"]])])
def test_updates_inside_loops_are_left_in_place(is_entry: bool, expected: list[list[str]]) -> None:
    """A call would copy the whole array in each round."""
    found = clusters(parse(UPDATE).entry, is_entry=is_entry)
    assert [[i.name for i in each.members] for each in found] == expected


def test_a_library_divides() -> None:
    """What is before the product and beside it is one region, and what is behind it another."""
    text = """HloModule m
ENTRY e {
  a = f32[8,8] parameter(0)
  b = f32[8,8] sine(a)
  c = f32[8,8] dot(b, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d = f32[8,8] cosine(b)
  f = f32[8,8] add(c, d)
  ROOT r = f32[8,8] tanh(f)
}
"""
    assert regions(text) == [["b"], ["d", "f", "r"]]


def test_regions_are_convex() -> None:
    """A way out of a region and back would make a call wait for itself."""
    text = """HloModule m
ENTRY e {
  a = f32[8,8] parameter(0)
  b = f32[8,8] sine(a)
  c = f32[8,8] dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[8,8] add(b, c)
}
"""
    assert regions(text) == [["b"], ["r"]]


@pytest.mark.parametrize(
    "line",
    [
        "s = f32[64] sort(p), dimensions={0}, to_apply=less",
        's = f32[64] custom-call(p), custom_call_target="f"',
        "s = f32[64] all-reduce(p), to_apply=add",
        "s = f32[64] negate(p), control-predecessors={p}",
    ],
)
def test_what_stays_xlas(line: str) -> None:
    text = f"""HloModule m
less {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}}
add {{
  a2 = f32[] parameter(0)
  b2 = f32[] parameter(1)
  ROOT c2 = f32[] add(a2, b2)
}}
ENTRY e {{
  p = f32[64] parameter(0)
  {line}
  ROOT r = f32[64] negate(s)
}}
"""
    assert regions(text) == [["r"]]


def test_a_loop_is_one_with_what_is_around_it() -> None:
    found = region(COUNTED)
    assert [i.name for i in found.members] == ["start", "loop", "last", "r"]
    assert [[i.name for i in side] for side in (found.inputs, found.outputs)] == [["p"], ["r"]]
    assert found.name == "loop"
    assert work_of(found.members[1]) == 10 * (1 + 64 + 64 + 1)


def test_a_loop_that_holds_what_is_xlas_is_xlas() -> None:
    text = COUNTED.replace("y = f32[64] sine(c)", 'y = f32[64] custom-call(c), custom_call_target="f"')
    assert regions(text) == [["r"]]


@pytest.mark.parametrize(
    ("text", "known"), [(COUNTED, True), (LOOP.replace("LIMIT", "most = s32[] get-tuple-element(s_2), index=0"), False)]
)
def test_whether_the_length_is_known(text: str, known: bool) -> None:
    assert of_known_length(region(text).members) is known


def test_what_waits_in_a_loop_is_still_ours() -> None:
    """XLA orders the copies that it puts there; without these there is nothing to order."""
    waiting = COUNTED.replace("y = f32[64] sine(c)", "y = f32[64] sine(c), control-predecessors={c}")
    found = region(waiting)
    assert "loop" in [i.name for i in found.members]
    made = module_of(found)
    assert "control-predecessors" in str(made) and "control-predecessors" not in str(simple_form(made))


@pytest.mark.parametrize(("size", "count"), [(8, 2), (65536, 3)])
def test_small_regions_of_a_layer_are_one_call(size: int, count: int) -> None:
    """What stands behind a product is in another layer, for it needs what stands before."""
    text = f"""HloModule m
ENTRY e {{
  a = f32[8,8] parameter(0)
  b = f32[{size}] parameter(1)
  c = f32[8,8] sine(a)
  d = f32[{size}] cosine(b)
  f = f32[8,8] dot(c, a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  g = f32[8,8] tanh(f)
  h = f32[{size}] negate(d)
  ROOT r = (f32[8,8], f32[8,8], f32[{size}], f32[{size}]) tuple(c, g, d, h)
}}
"""
    found = []
    for layer in layers_of(parse(text).entry):
        alone, one = together(layer)
        found += alone if one is None else [*alone, one]
    assert len(found) == count


def test_pieces_of_a_region() -> None:
    """Each loop and fusion with what it alone needs."""
    text = COUNTED.replace(
        "ENTRY", "f {\n  fp = f32[64] parameter(0)\n  ROOT fr = f32[64] cosine(fp)\n}\nENTRY"
    ).replace(
        "ROOT r = f32[64] negate(last)", "m = f32[64] fusion(last), kind=kLoop, calls=f\n  ROOT r = f32[64] negate(m)"
    )
    assert [[i.name for i in found.members] for found in pieces(region(text))] == [["start", "loop", "last"], ["m"]]


VIEWED = """HloModule m
f {
  fp = f32[64] parameter(0)
  fs = f32[64] sine(fp)
  ROOT ft = (f32[64], f32[64]) tuple(fs, fs)
}
ENTRY e {
  p = f32[64] parameter(0)
  n = f32[64] negate(p)
  v = f32[8,8] bitcast(n)
  w = f32[8,8] cosine(v)
  BEHIND
  ROOT r = (f32[64], f32[8,8], f32[8,8], f32[64], f32[64]) tuple(n, v, w, x, y)
}
"""


def test_two_results_are_two_arrays() -> None:
    """A view of a result is XLA's, and costs it nothing."""
    found = region(VIEWED.replace("BEHIND", "x = f32[64] copy(n)\n  y = f32[64] bitcast(w)"))
    assert [i.name for i in found.outputs] == ["n", "w", "x"] and are_apart(found)
    assert {i.name for i in found.views} == {"v", "y"} and [i.name for i in found.gone] == ["n", "w", "x"]


@pytest.mark.parametrize(("given", "apart"), [("fs, fs", False), ("fs, fp", False), ("fs, fc", True)])
def test_a_call_may_hand_on_one_array_twice(given: str, apart: bool) -> None:
    called = "t = (f32[64], f32[64]) call(n), to_apply=f\n" + "".join(
        f"  {name} = f32[64] get-tuple-element(t), index={k}\n" for k, name in enumerate("xy")
    )
    text = VIEWED.replace("BEHIND", called).replace("tuple(fs, fs)", f"tuple({given})")
    text = text.replace("  ROOT ft", "  fc = f32[64] copy(fp)\n  ROOT ft")
    assert are_apart(region(text)) is apart


def test_a_region_is_a_module() -> None:
    made = module_of(region(COUNTED))
    verify(made)
    assert len(made.computations) == 3 and len(made.entry.parameters) == 1


def test_names_say_nothing() -> None:
    renamed = COUNTED.replace("loop", "other").replace("last", "end")
    assert str(module_of(region(COUNTED))) == str(module_of(region(renamed)))
    assert str(module_of(region(COUNTED))) != str(module_of(region(COUNTED.replace("sine", "cosine"))))


def test_arrays_are_given_row_by_row() -> None:
    text = """HloModule m
ENTRY e {
  p = f32[4,6]{0,1} parameter(0)
  n = f32[4,6]{0,1} sine(p)
  ROOT r = f32[4,6]{0,1} negate(n)
}
"""
    made = module_of(region(text))
    assert str(made.entry.parameters[0].shape) == str(made.entry.root.shape) == "f32[6,4]{1,0}"
    verify(made)


def test_large_constants_are_given() -> None:
    numbers = ", ".join(map(str, range(64)))
    text = f"HloModule m\nENTRY e {{\n  p = f32[64] parameter(0)\n  c = f32[64] constant({{{numbers}}})\n  ROOT r = f32[64] add(p, c)\n}}\n"
    assert [i.name for i in region(text).inputs] == ["p", "c"]


def test_copies_that_move_nothing_are_left_out() -> None:
    made = simple_form(module_of(region(COUNTED)))
    assert all(i.opcode != "copy" for c in made.computations for i in c.instructions)
    verify(made)


def test_passes_split_reductions_that_xla_has_in_fusions() -> None:
    """The variance of groups of channels: with both reductions in one kernel of eight threads, each element had the
    mean computed anew."""
    text = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
sum {
  x = f32[2,32,32,4,4] parameter(0)
  zero = f32[] constant(0)
  ROOT s = f32[2,4] reduce(x, zero), dimensions={1,2,4}, to_apply=add
}
centred {
  s = f32[2,4] parameter(0)
  x = f32[2,32,32,4,4] parameter(1)
  m = f32[2,32,32,4,4] broadcast(s), dimensions={0,3}
  ROOT d = f32[2,32,32,4,4] subtract(x, m)
}
ENTRY e {
  x = f32[2,32,32,4,4] parameter(0)
  s = f32[2,4] fusion(x), kind=kCustom, calls=sum, backend_config={"fusion_config":{"kind":"__ynn_fusion"}}
  d = f32[2,32,32,4,4] fusion(s, x), kind=kLoop, calls=centred
  ROOT v = f32[2,4] fusion(d), kind=kCustom, calls=sum, backend_config={"fusion_config":{"kind":"__ynn_fusion"}}
}
"""
    made = simple_form(module_of(region(text)))
    verify(made)
    outcome = run(made)
    assert module_summary(outcome.module, outcome.target).est_us < 20


def test_bytes_that_kernels_write() -> None:
    assert kernels_write(parse(COUNTED).entry) == 10 * (4 + 256 + 256 + 1) + 256


def test_all_that_is_read_of_a_tuple_is_in_its_region() -> None:
    """One result is needed before the product, the other behind it."""
    text = """HloModule m
f {
  x = f32[64,64] parameter(0)
  u = f32[64,64] sine(x)
  v = f32[64,64] cosine(x)
  ROOT t = (f32[64,64], f32[64,64]) tuple(u, v)
}
ENTRY e {
  p = f32[64,64] parameter(0)
  a = (f32[64,64], f32[64,64]) fusion(p), kind=kLoop, calls=f
  b = f32[64,64] get-tuple-element(a), index=0
  c = f32[64,64] get-tuple-element(a), index=1
  d = f32[64,64] dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[64,64] multiply(c, d)
}
"""
    assert sorted(regions(text)) == [["a", "b", "c"], ["r"]]
    assert all(are_apart(found) for found in clusters(parse(text).entry))


def test_where_a_loop_begins_to_count_is_no_input() -> None:
    """XLA copies the constant to the memory of the state, in an order of its own. Drawn data would end the loop
    elsewhere, and the stated trip count would be another one."""
    text = LOOP.replace("LIMIT", "most = s32[] constant(9)").replace("start = ", "k = s32[] copy(zero)\n  start = ")
    text = text.replace("(zero, p)", "(k, p)").replace(
        "loop = ", "v = s32[] negate(k), control-predecessors={k}\n  loop = "
    )
    text = text.replace("k = s32[] copy(zero)", "k = s32[] copy(zero), control-predecessors={q}")
    own = next(found for found in clusters(parse(text).entry) if any(i.name == "loop" for i in found.members))
    assert [i.name for i in own.inputs] == ["p"]
    made = module_of(own)
    verify(made)
    assert of_known_length(list(made.entry.instructions)) and "constant(0)" in str(made)
