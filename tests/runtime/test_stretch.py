import hlo_opt
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.schedule.lifetimes import buffer_bytes
from hlo_opt.runtime.schedule.ops import made_by
from hlo_opt.runtime.schedule.stretch import ALIGNMENT, Stretch, first_decision, stretches

CHAIN = """HloModule m
ENTRY e {
  a = f32[100]{0} parameter(0)
  m = f32[10,10]{1,0} parameter(1)
  b = f32[100]{0} negate(a)
  v = f32[10,10]{1,0} bitcast(b)
  c = f32[10,10]{1,0} abs(v)
  d = f32[10,10]{1,0} add(c, v)
  w = f32[100]{0} bitcast(d)
  f = f32[100]{0} multiply(w, a)
  g = f32[10,10]{1,0} dot(d, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  h = f32[10,10]{1,0} negate(g)
  i = f32[10,10]{1,0} abs(h)
  j = f32[10,10]{1,0} add(i, h)
  ROOT r = (f32[100]{0}, f32[10,10]{1,0}) tuple(f, j)
}
"""


def found(least: int, most: int) -> list[Stretch]:
    return list(stretches(build_schedule(hlo_opt.parse(CHAIN)).entry, least, most))


def names(stretch: Stretch, buffers: object) -> list[str]:
    made = {b: op.instruction.name for op in stretch.routine.ops for b in made_by(op)}
    parameters = {
        b: p.name for b, p in zip(stretch.routine.inputs, stretch.routine.computation.parameters, strict=True)
    }
    return [made.get(b) or parameters[b] for b in buffers]  # type: ignore[attr-defined]


def test_library_calls_part_stretches() -> None:
    first, second = found(3, 100)
    assert (first.launches, second.launches) == (4, 3)
    assert names(first, first.taken) == ["a"] and names(first, first.kept) == ["d", "f"]
    assert names(first, first.offsets) == ["b", "c"] and names(first, first.seen) == ["d", "f"]
    assert names(second, second.taken) == ["g"] and names(second, second.kept) == ["j"]
    assert [s.launches for s in found(4, 100)] == [4] and [s.launches for s in found(1, 2)] == [2, 2, 2, 1]


def test_what_is_alive_together_lies_apart_and_the_rest_shares() -> None:
    first, _ = found(3, 100)
    spans = {b: range(o, o + buffer_bytes(first.routine.shapes[b])) for b, o in first.offsets.items()}
    b, c = spans.values()
    assert not set(b) & set(c) and first.bytes == 1024 and all(o % ALIGNMENT == 0 for o in first.offsets.values())
    assert first.held == first.bytes + 800
    text = (
        CHAIN[: CHAIN.index("  g = ")] + "  e = f32[100]{0} tanh(f)\n  ROOT h = f32[1]{0} slice(e), slice={[0:1]}\n}\n"
    )
    (whole,) = stretches(build_schedule(hlo_opt.parse(text)).entry, 3, 100)
    assert names(whole, whole.offsets) == ["b", "c", "d", "f", "e"]
    assert list(whole.offsets.values()) == [0, 512, 1024, 0, 512]  # f lies where b did, and e where c did
    assert whole.bytes == 1536 and names(whole, whole.kept) == ["h"]


def test_a_routine_with_a_library_call_decides_something() -> None:
    entry = build_schedule(hlo_opt.parse(CHAIN)).entry
    decision = first_decision(entry)
    assert decision is not None and decision.instruction.name == "g"
    alone = hlo_opt.parse("HloModule m\nENTRY e {\n  a = f32[9]{0} parameter(0)\n  ROOT r = f32[9]{0} negate(a)\n}\n")
    assert first_decision(build_schedule(alone).entry) is None
