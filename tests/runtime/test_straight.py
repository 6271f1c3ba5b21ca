import hlo_opt
from hlo_opt.runtime.host_words import buffer_bytes
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.straight import ALIGNMENT, StraightLine, is_straight, straight_line, straight_lines

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


def lines(least: int, most: int) -> list[StraightLine]:
    return list(straight_lines(build_schedule(hlo_opt.parse(CHAIN)).entry, least, most))


def names(line: StraightLine, buffers: object) -> list[str]:
    made = {b: s.instruction.name for s in line.routine.steps for b in s.outputs}
    parameters = {b: p.name for b, p in zip(line.routine.inputs, line.routine.computation.parameters, strict=True)}
    return [made.get(b) or parameters[b] for b in buffers]  # type: ignore[attr-defined]


def test_library_calls_part_lines() -> None:
    first, second = lines(3, 100)
    assert (first.launches, second.launches) == (4, 3)
    assert names(first, first.taken) == ["a"] and names(first, first.kept) == ["d", "f"]
    assert names(first, first.offsets) == ["b", "c"] and names(first, first.seen) == ["d", "f"]
    assert names(second, second.taken) == ["g"] and names(second, second.kept) == ["j"]
    assert [line.launches for line in lines(4, 100)] == [4] and [line.launches for line in lines(1, 2)] == [2, 2, 2, 1]


def test_what_is_alive_together_lies_apart_and_the_rest_shares() -> None:
    first, _ = lines(3, 100)
    spans = {b: range(o, o + buffer_bytes(first.routine.shapes[b])) for b, o in first.offsets.items()}
    b, c = spans.values()
    assert not set(b) & set(c) and first.bytes == 1024 and all(o % ALIGNMENT == 0 for o in first.offsets.values())
    assert first.held == first.bytes + 800
    whole = straight_line(first.routine, first.first, first.last, needed=set())
    assert names(whole, whole.offsets) == ["b", "c", "d", "f"] and list(whole.offsets.values()) == [0, 512, 1024, 0]
    assert whole.bytes == 1536 and not whole.kept  # f lies where b did


def test_a_routine_with_a_library_call_is_not_straight() -> None:
    entry = build_schedule(hlo_opt.parse(CHAIN)).entry
    assert not is_straight(entry) and is_straight(entry, 0, 5)
