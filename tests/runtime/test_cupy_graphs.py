import types
from collections.abc import Sequence, Set
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_opt
from hlo_opt.diag import EvaluationError
from hlo_opt.evaluate import evaluate, module_inputs
from hlo_opt.runtime.cupy import device
from hlo_opt.runtime.cupy.capture import LaunchAccess, StreamStart, dependencies, starts
from hlo_opt.runtime.cupy.conditional import ConditionError
from hlo_opt.runtime.cupy.graphs import RunGraphs
from hlo_opt.runtime.schedule import in_line

SPANS = st.tuples(st.integers(0, 12), st.integers(1, 4)).map(lambda pair: (pair[0], pair[0] + pair[1]))
ACCESSES = st.lists(
    st.builds(
        LaunchAccess,
        st.lists(SPANS, max_size=3).map(tuple),
        st.lists(SPANS, min_size=1, max_size=2).map(tuple),
    ),
    max_size=14,
)


def meet(one: LaunchAccess, other: LaunchAccess) -> bool:
    """Whether the two must not change places, by every byte."""

    def bytes_of(spans: Sequence[tuple[int, int]]) -> set[int]:
        return {b for first, last in spans for b in range(first, last)}

    a, b = (bytes_of(x.reads) for x in (one, other))
    v, w = (bytes_of(x.writes) for x in (one, other))
    return bool(v & w or v & b or a & w)


def behind(order: Sequence[StreamStart]) -> list[Set[int]]:
    """What each launch comes after, as streams and events have it."""
    found: list[Set[int]] = []
    last: dict[int, int] = {}
    for number, start in enumerate(order):
        direct = {*start.waits, *([last[start.stream]] if start.stream in last else [])}
        found.append(direct.union(*(found[n] for n in direct)))
        last[start.stream] = number
    return found


@settings(max_examples=200, deadline=None)
@given(ACCESSES, st.integers(1, 4))
def test_launches_that_touch_the_same_bytes_are_ordered(accesses: list[LaunchAccess], streams: int) -> None:
    order = starts(dependencies(accesses), streams)
    after = behind(order)
    assert all(0 <= s.stream < streams for s in order)
    for later, access in enumerate(accesses):
        for earlier in range(later):
            assert not meet(accesses[earlier], access) or earlier in after[later], (earlier, later)


@settings(max_examples=200, deadline=None)
@given(ACCESSES)
def test_with_enough_streams_nothing_else_is_ordered(accesses: list[LaunchAccess]) -> None:
    after = behind(starts(dependencies(accesses), len(accesses) + 1))
    wanted: list[set[int]] = []
    for later, access in enumerate(accesses):
        direct = {n for n in range(later) if meet(accesses[n], access)}
        wanted.append(direct.union(*(wanted[n] for n in direct)))
    assert after == wanted


def test_what_follows_from_other_waits_is_left_out() -> None:
    reads = [LaunchAccess((), ((0, 1),)), LaunchAccess(((0, 1),), ((1, 2),)), LaunchAccess(((0, 1),), ((2, 3),))]
    join = LaunchAccess(((0, 1), (1, 2), (2, 3)), ((3, 4),))
    assert starts(dependencies([*reads, join]), 4) == [
        StreamStart(0, ()),
        StreamStart(0, ()),
        StreamStart(1, (0,)),
        StreamStart(1, (1,)),
    ]


def test_a_place_that_is_used_again_waits_for_its_readers() -> None:
    accesses = [
        LaunchAccess((), ((0, 8),)),
        LaunchAccess(((0, 8),), ((8, 9),)),
        LaunchAccess(((0, 4),), ((9, 10),)),
        LaunchAccess((), ((2, 6),)),
    ]
    assert dependencies(accesses) == [set(), {0}, {0}, {0, 1, 2}]


DUMPS = Path(__file__).parents[2] / "testdata" / "dumps"

LOOP = """HloModule m
body {{
  s = (s32[], f32[4]{{0}}, f32[4]{{0}}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4]{{0}} get-tuple-element(s), index=1
  w = f32[4]{{0}} get-tuple-element(s), index=2
  one = s32[] constant(1)
  n = s32[] add(i, one)
  y = f32[4]{{0}} multiply(x, w)
  half = f32[] constant(0.5)
  h = f32[4]{{0}} broadcast(half), dimensions={{}}
  z = f32[4]{{0}} add(y, h)
  ROOT r = (s32[], f32[4]{{0}}, f32[4]{{0}}) tuple(n, {first}, {second})
}}
condition {{
  s = (s32[], f32[4]{{0}}, f32[4]{{0}}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] {limit}
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  a = f32[4]{{0}} parameter(0)
  b = f32[4]{{0}} parameter(1)
  m = s32[] parameter(2)
  zero = s32[] constant(0)
  t = (s32[], f32[4]{{0}}, f32[4]{{0}}) tuple({start}, a, b)
  l = (s32[], f32[4]{{0}}, f32[4]{{0}}) while(t), condition=condition, body=body{config}
  o = f32[4]{{0}} get-tuple-element(l), index=1
  p = f32[4]{{0}} get-tuple-element(l), index=2
  ROOT r = (f32[4]{{0}}, f32[4]{{0}}, f32[4]{{0}}) tuple(o, p, a)
}}
"""


def loop(first: str = "z", second: str = "w", limit: str = "constant(5)", start: str = "zero", config: str = "") -> str:
    return LOOP.format(first=first, second=second, limit=limit, start=start, config=config)


@pytest.fixture
def long_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """No loop comes in line, as if all were too long."""
    monkeypatch.setattr(in_line, "MOST_IN_LINE", 0)


def inputs(start: int) -> list[np.ndarray]:
    return [np.arange(4, dtype=np.float32), np.array([0.5, 1, -1, 2], np.float32), np.array(start, np.int32)]


@pytest.fixture
def halves(monkeypatch: pytest.MonkeyPatch, fake: types.ModuleType, long_loops: None) -> None:
    """The driver has no conditional nodes, so that each iteration of a loop is a graph."""

    def refuse() -> None:
        raise ConditionError("the driver has no conditional nodes")

    monkeypatch.setattr(device, "driver_of", refuse)


@pytest.mark.usefixtures("halves")
@pytest.mark.parametrize("trips", [4, 5])
def test_a_known_number_of_iterations_reads_the_predicate_once(
    trips: int, fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = hlo_opt.parse(loop(limit=f"constant({trips})"))
    executable = hlo_opt.compile(module, "cupy")
    read: list[int] = []
    download = fake.asnumpy
    monkeypatch.setattr(fake, "asnumpy", lambda a: read.append(a.size) or download(a))
    given = inputs(0)
    # each half runs once without its graph, and so does the condition at the end; the second call replays those of the
    # first
    for graphs in (trips - 2, 2 * trips - 1):
        read.clear()
        fake.launched.clear()
        for got, want in zip(executable(*given), evaluate(module, given), strict=True):
            assert np.array_equal(got, want)
        assert read == [1, 4, 4, 4] and len(fake.graphs) == graphs
        assert executable.report()["launches"] == len(fake.launched)
    assert np.array_equal(given[0], np.arange(4))


@pytest.mark.usefixtures("halves")
@pytest.mark.parametrize("start", [0, 2, 5, 9])
def test_an_unknown_number_of_iterations_reads_one_byte_each(
    start: int, fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = hlo_opt.parse(loop(start="m"))
    given = inputs(start)
    executable = hlo_opt.compile(module, "cupy")
    read: list[int] = []
    download = fake.asnumpy
    monkeypatch.setattr(fake, "asnumpy", lambda a: read.append(a.size) or download(a))
    for graphs in (max(0, 5 - start - 2), 1 + max(0, 5 - start)):  # in the second call the condition alone has one, too
        read.clear()
        fake.graphs.clear()
        for got, want in zip(executable(*given), evaluate(module, given), strict=True):
            assert np.array_equal(got, want)
        assert len(fake.graphs) == graphs and read.count(1) == 1 + max(0, 5 - start)


def test_a_count_that_a_config_only_states_is_not_believed(fake: types.ModuleType) -> None:
    stated = ', backend_config={"known_trip_count":{"n":"2"}}'
    module = hlo_opt.parse(loop(config=stated, start="m"))
    given = inputs(1)
    assert np.array_equal(hlo_opt.compile(module, "cupy")(*given)[0], evaluate(module, given)[0])


@pytest.mark.usefixtures("long_loops")
@pytest.mark.parametrize(("first", "second"), [("w", "x"), ("z", "z"), ("x", "w")])
def test_states_that_change_places_or_stay(first: str, second: str, fake: types.ModuleType) -> None:
    root = "ROOT r = (f32[4]{0}, f32[4]{0}, f32[4]{0}"
    text = loop(first, second).replace(f"{root}) tuple(o, p, a", f"{root}, s32[]) tuple(o, p, a, q")
    text = text.replace(
        "  o =", "  q = s32[] get-tuple-element(l), index=0\n  o ="
    )  # who reads nothing that changes has no loop
    module = hlo_opt.parse(text)
    given = inputs(0)
    executable = hlo_opt.compile(module, "cupy")
    for got, want in zip(executable(*given), evaluate(module, given), strict=True):
        assert np.array_equal(got, want)
    assert executable.report()["graphs"]["loops"] == (first == "x")


@pytest.mark.usefixtures("long_loops")
def test_a_loop_that_cuda_does_not_capture_runs_step_by_step(
    fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = fake.Stream.end_capture

    def refuse(self: object) -> None:
        end(self)
        raise fake.cuda.runtime.CUDARuntimeError("cudaErrorStreamCaptureInvalidated")

    monkeypatch.setattr(fake.Stream, "end_capture", refuse)
    module = hlo_opt.parse(loop())
    executable = hlo_opt.compile(module, "cupy")
    assert np.array_equal(executable(*inputs(0))[0], evaluate(module, inputs(0))[0])
    graphs = executable._executor.graphs
    assert isinstance(graphs, RunGraphs) and "Invalidated" in next(iter(graphs.capturer.refused.values()))
    assert not fake.graphs and len(fake.captured) == 1
    assert "Invalidated" in executable.report()["graphs"]["refused"][0]
    assert np.array_equal(executable(*inputs(0))[0], evaluate(module, inputs(0))[0]) and not fake.graphs


STILL = """HloModule m
body {{
  s = (s32[], f32[4]{{0}}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4]{{0}} get-tuple-element(s), index=1
  most = s32[] constant({most})
  one = s32[] constant(1)
  more = s32[] add(i, one)
  n = s32[] minimum(more, most)
  y = f32[4]{{0}} abs(x)
  ROOT r = (s32[], f32[4]{{0}}) tuple(n, y)
}}
condition {{
  s = (s32[], f32[4]{{0}}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(100)
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  a = f32[4]{{0}} parameter(0)
  m = s32[] parameter(1)
  t = (s32[], f32[4]{{0}}) tuple(m, a)
  ROOT l = (s32[], f32[4]{{0}}) while(t), condition=condition, body=body
}}
"""


def test_a_captured_loop_whose_state_stands_still_goes_on(fake: types.ModuleType) -> None:
    module = hlo_opt.parse(STILL.format(most=9))
    given = [np.array([-1, 2, -3, 4], np.float32), np.array(0, np.int32)]
    executable = hlo_opt.compile(module, "cupy", max_steps=200)
    for _ in range(2):
        with pytest.raises(EvaluationError, match="goes on after 200 iterations"):
            executable(*given)
    assert executable.report()["graphs"]["loops"] == 1


@pytest.mark.parametrize(("most", "steps", "fails"), [(200, 100, False), (200, 99, True), (50, 40, True)])
def test_captured_iterations_count(most: int, steps: int, fails: bool, fake: types.ModuleType) -> None:
    module = hlo_opt.parse(STILL.format(most=most))
    given = [np.array([-1, 2, -3, 4], np.float32), np.array(0, np.int32)]
    executable = hlo_opt.compile(module, "cupy", max_steps=steps)
    for _ in range(2):
        if fails:
            with pytest.raises(EvaluationError, match=f"HLO402.*{steps}"):
                executable(*given)
        else:
            assert executable(*given)[0] == 100
        assert executable.report()["graphs"]["loops"] == 1
    assert fake.graphs


@pytest.mark.usefixtures("long_loops")
def test_a_loop_does_not_hold_what_it_was_given_and_finds_it_again(fake: types.ModuleType) -> None:
    module = hlo_opt.parse(loop(limit="constant(8)"))
    executable = hlo_opt.compile(module, "cupy")
    replayed = []
    for _ in range(4):
        assert np.array_equal(executable(*inputs(0))[0], evaluate(module, inputs(0))[0])
        replayed.append(executable.report()["graphs"]["replayed"])
    assert replayed[1:] == [executable.report()["launches"]] * 3 and 0 < replayed[0] < replayed[1]


@pytest.mark.parametrize("name", ["mandelbrot", "nested", "power_iteration", "newton_sqrt"])
def test_loops_of_dumps(name: str, fake: types.ModuleType) -> None:
    module, _ = hlo_opt.fuse(hlo_opt.parse((DUMPS / f"{name}.hlo").read_text()))
    given = module_inputs(module, 0)
    executable = hlo_opt.compile(module, "cupy")
    for _ in range(2):
        for got, want in zip(executable(*given), hlo_opt.compile(module, "host")(*given), strict=True):
            assert np.allclose(got, want, rtol=1e-4, atol=1e-5)
