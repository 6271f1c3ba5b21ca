"""Which concatenates an output is taken apart at."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.price import price
from tests.small_modules import H100


def pieces(body: str, shape: str = "f32[8192]") -> Plan:
    module = hlo_opt.parse(f"""HloModule m

f {{
  p = f32[4096] parameter(0)
  q = f32[4096] parameter(1)
  {body}
}}

ENTRY e {{
  p = f32[4096] parameter(0)
  q = f32[4096] parameter(1)
  ROOT r = {shape} fusion(p, q), kind=kLoop, calls=f
}}
""")
    found = plan(region_of(module, module.entry.root), H100)
    assert isinstance(found, Plan)
    return found


def test_both_halves_are_written_by_one_launch() -> None:
    made = pieces("c = f32[8192] concatenate(p, q), dimensions={0} ROOT r = f32[8192] negate(c)")
    assert {s.kind for s in made.segments} == {"concatenate"}


def test_a_concatenate_that_is_read_elsewhere_than_at_the_place_of_the_output_does_not_count() -> None:
    turned = pieces("c = f32[8192] concatenate(p, q), dimensions={0} ROOT r = f32[8192] reverse(c), dimensions={0}")
    assert {s.kind for s in turned.segments} == {"loop"}
    both = pieces(
        "c = f32[8192] concatenate(p, q), dimensions={0} d = f32[8192] concatenate(q, p), dimensions={0}\n"
        "  t = f32[8192] reverse(d), dimensions={0} ROOT r = f32[8192] add(c, t)"
    )
    (segment,) = {s.hero.name: s for s in both.segments}.values()
    assert segment.kind == "concatenate" and segment.hero.name == "c"


def test_nothing_is_taken_apart_that_has_no_element() -> None:
    made = pieces(
        "a = f32[0] slice(p), slice={[0:0]} b = f32[0] slice(q), slice={[0:0]} ROOT c = f32[0] concatenate(a, b), "
        "dimensions={0}",
        "f32[0]",
    )
    assert {s.kind for s in made.segments} == {"loop"}


def test_as_many_neighbours_are_moved_together_as_leave_the_device_full() -> None:
    small = pieces("c = f32[8192] concatenate(p, q), dimensions={0} ROOT r = f32[8192] negate(c)")
    wide = "a = f32[4096,1024] broadcast(p), dimensions={0} b = f32[4096,1024] broadcast(q), dimensions={0}"
    large = pieces(f"{wide} ROOT c = f32[4096,2048] concatenate(a, b), dimensions={{1}}", "f32[4096,2048]")
    assert [made.segments[0].vector for made in (small, large)] == [1, 4]


def test_narrow_pieces_move_16_bytes_at_a_time() -> None:
    wide = "a = bf16[8192,1024] broadcast(s), dimensions={0} b = bf16[8192,1024] broadcast(t), dimensions={0}"
    made = narrow(f"{wide} ROOT c = bf16[8192,2048] concatenate(a, b), dimensions={{1}}", "bf16[8192,2048]")
    assert [(s.kind, s.vector) for s in made.segments] == [("concatenate", 8)]


def test_pieces_of_odd_sizes_are_a_loop_that_writes_16_bytes_at_a_time() -> None:
    wide = "a = bf16[8192,1023] broadcast(s), dimensions={0} b = bf16[8192,1026] broadcast(t), dimensions={0}"
    made = narrow(f"{wide} ROOT c = bf16[8192,2049] concatenate(a, b), dimensions={{1}}", "bf16[8192,2049]")
    assert [(s.kind, s.vector) for s in made.segments] == [("loop", 8)]
    floats = wide.replace("bf16", "f32").replace("(s)", "(p2)").replace("(t)", "(q2)")
    kept = "p2 = f32[8192] convert(s) q2 = f32[8192] convert(t)"
    made = narrow(f"{kept} {floats} ROOT c = f32[8192,2049] concatenate(a, b), dimensions={{1}}", "f32[8192,2049]")
    assert [(s.kind, s.vector) for s in made.segments] == [("loop", 4)]


def test_many_pieces_of_odd_sizes_are_written_one_by_one() -> None:
    given = "p2 = f32[8192] convert(s) " + " ".join(
        f"a{n} = f32[8192,{401 + 2 * n}] broadcast(p2), dimensions={{0}}" for n in range(5)
    )
    pieces = ", ".join(f"a{n}" for n in range(5))
    made = narrow(f"{given} ROOT c = f32[8192,2025] concatenate({pieces}), dimensions={{1}}", "f32[8192,2025]")
    assert [(s.kind, s.vector) for s in made.segments] == [("concatenate", 1)] * 5


@pytest.mark.parametrize(("dtype", "pieces", "vector"), [("f32", 2, 2), ("bf16", 2, 4), ("f32", 3, 4), ("f32", 4, 1)])
def test_elements_that_interlace_are_written_together(dtype: str, pieces: int, vector: int) -> None:
    parts = " ".join(f"a{n} = {dtype}[8192,512,1] reshape(m{n})" for n in range(pieces))
    values = " ".join(
        f"c{n} = {dtype}[] constant({n}) k{n} = {dtype}[8192,512] broadcast(c{n}), dimensions={{}} "
        f"m{n} = {dtype}[8192,512] multiply(x, k{n})"
        for n in range(pieces)
    )
    names, row = ", ".join(f"a{n}" for n in range(pieces)), f"{dtype}[8192,{512 * pieces}]"
    made = narrow(
        f"e = {dtype}[8192] convert(s) x = {dtype}[8192,512] broadcast(e), dimensions={{0}} {values} {parts} "
        f"c = {dtype}[8192,512,{pieces}] concatenate({names}), dimensions={{2}} ROOT r = {row} reshape(c)",
        row,
    )
    assert [(s.kind, s.vector) for s in made.segments] == [("concatenate", vector)]
    assert price(made, H100).stores == (128, 128)


def narrow(body: str, shape: str) -> Plan:
    """As `pieces`, of two rows of bf16."""
    module = hlo_opt.parse(
        f"HloModule m\n\nf {{\n  s = bf16[8192] parameter(0)\n  t = bf16[8192] parameter(1)\n  {body}\n}}\n\nENTRY e "
        f"{{\n"
        f"  s = bf16[8192] parameter(0)\n  t = bf16[8192] parameter(1)\n  ROOT r = {shape} fusion(s, t), kind=kLoop, "
        f"calls=f\n}}\n"
    )
    found = plan(region_of(module, module.entry.root), H100)
    assert isinstance(found, Plan)
    return found
