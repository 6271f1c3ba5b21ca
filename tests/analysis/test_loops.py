import pytest

import hlo_opt
from hlo_opt.analysis.graph.loops import trip_count
from hlo_opt.analysis.targets import target
from hlo_opt.diag import UsageError
from hlo_opt.fusion.summary import module_summary
from hlo_opt.passes import run

LOOP = """\
HloModule m

cond {{
  s = (s32[], f32[8]{{0}}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({limit})
  ROOT t = pred[] compare(i, n), direction={direction}
}}

body {{
  s = (s32[], f32[8]{{0}}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8]{{0}} get-tuple-element(s), index=1
  step = s32[] constant({step})
  j = s32[] add(i, step)
  y = f32[8]{{0}} negate(x)
  ROOT r = (s32[], f32[8]{{0}}) tuple(j, y)
}}

ENTRY e {{
  zero = s32[] constant({start})
  x = f32[8]{{0}} parameter(0)
  s = (s32[], f32[8]{{0}}) tuple(zero, x)
  ROOT w = (s32[], f32[8]{{0}}) while(s), condition=cond, body=body{config}
}}
"""


def loop(start: int, limit: int, step: int, direction: str, config: str = "") -> hlo_opt.ir.Module:
    return hlo_opt.parse(LOOP.format(start=start, limit=limit, step=step, direction=direction, config=config))


@pytest.mark.parametrize(
    ("start", "limit", "step", "direction", "count"),
    [
        (0, 10, 1, "LT", 10),
        (0, 10, 3, "LT", 4),
        (0, 10, 1, "LE", 11),
        (10, 0, -1, "GT", 10),
        (10, 0, -3, "GE", 4),
        (5, 5, 1, "LT", 0),
        (0, 6, 2, "NE", 3),
        (0, 7, 2, "NE", None),
        (0, 10, -1, "LT", None),
        (0, 10, 0, "LT", None),
    ],
)
def test_counted_loops(start: int, limit: int, step: int, direction: str, count: int | None):
    assert trip_count(loop(start, limit, step, direction).entry.root) == count
    # what Python itself counts, where it ends
    if count is not None:
        holds = {"LT": int.__lt__, "LE": int.__le__, "GT": int.__gt__, "GE": int.__ge__, "NE": int.__ne__}[direction]
        i, runs = start, 0
        while holds(i, limit):
            i, runs = i + step, runs + 1
        assert runs == count


def test_the_backend_config_wins():
    module = loop(0, 10, 1, "LT", ', backend_config={"known_trip_count":{"n":"7"}}')
    assert trip_count(module.entry.root) == 7


def test_fused_loops_are_counted_too():
    module = loop(0, 100, 1, "LT")
    fused, _ = hlo_opt.fuse(module, preset="xla-2026")  # which leaves the loop
    loops = [i for i in fused.entry.instructions if i.opcode == "while"]
    assert [trip_count(w) for w in loops] == [100]


def test_launches_count_trips():
    found = module_summary(loop(0, 10, 1, "LT"), target("h100_sxm"))
    assert (found.kernels, found.launches, found.unknown_trips) == (3, 30, 0)
    unknown = module_summary(loop(0, 10, 0, "LT"), target("h100_sxm"))
    assert (unknown.kernels, unknown.launches, unknown.unknown_trips, unknown.unknown_loops) == (3, 3, 1, ("w",))


def test_counts_that_the_user_tells_stand_for_those_that_the_text_does_not():
    told = module_summary(loop(0, 10, 0, "LT"), target("h100_sxm"), trip_counts={"w": 7})
    assert (told.launches, told.unknown_loops) == (21, ())
    assert trip_count(loop(0, 10, 1, "LT").entry.root, {"w": 7}) == 10


@pytest.mark.parametrize(
    ("step", "name", "message", "hint"),
    [
        (0, "ww", "there is no loop 'ww'", "did you mean w?"),
        (0, "far off", "there is no loop 'far off'", "loops of an unknown trip count: w"),
        (1, "far off", "there is no loop 'far off'", "loops of an unknown trip count: none"),
        (1, "w", "the loop 'w' has the known trip count 10", None),
    ],
)
def test_a_count_is_told_of_a_loop_that_needs_one(step: int, name: str, message: str, hint: str | None):
    with pytest.raises(UsageError) as caught:
        run(loop(0, 10, step, "LT"), trip_counts={name: 3})
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_a_counter_that_leaves_its_type_is_not_counted() -> None:
    text = LOOP.format(start=120, limit=127, step=10, direction="LT", config="")
    narrow = text.replace("s32[]", "s8[]")
    assert trip_count(hlo_opt.parse(text).entry.root) == 1
    assert trip_count(hlo_opt.parse(narrow).entry.root) is None


def test_a_bitcast_of_a_number_to_another_type_is_another_number() -> None:
    start = "  zero = u32[] constant(4294967295)\n  first = s32[] bitcast(zero)\n"
    text = LOOP.format(start=0, limit=3, step=-1, direction="GT", config="")
    text = text.replace("  zero = s32[] constant(0)\n", start).replace("tuple(zero, x)", "tuple(first, x)")
    module = hlo_opt.parse(text)
    assert trip_count(module.entry.root) is None  # it starts at -1 and ends there
    same = text.replace("u32[] constant(4294967295)", "s32[] constant(5)")
    assert trip_count(hlo_opt.parse(same).entry.root) == 2
