import types
from pathlib import Path

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate import module_inputs
from hlo_opt.ir import Module
from hlo_opt.report.runs import run_page
from hlo_opt.runtime.cupy import graphs as cupy_graphs
from hlo_opt.runtime.cupy import graphs as cupy_stretches
from hlo_opt.runtime.cupy import products as cupy_products
from hlo_opt.runtime.executable import Executable
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.schedule.executor import Executor
from hlo_opt.runtime.schedule.lifetimes import buffer_bytes
from hlo_opt.runtime.schedule.ops import outputs_of
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
    made = {b: op.instruction.name for op in stretch.routine.ops for b in outputs_of(op)}
    parameters = {
        b: p.name for b, p in zip(stretch.routine.inputs, stretch.routine.computation.parameters, strict=True)
    }
    return [made.get(b) or parameters[b] for b in buffers]  # type: ignore[attr-defined]


def test_library_calls_part_stretches() -> None:
    first, second = found(3, 100)
    assert (first.launches, second.launches) == (4, 3)
    assert names(first, first.existing) == ["a"] and names(first, first.kept) == ["d", "f"]
    assert names(first, first.offsets) == ["b", "c"] and names(first, first.seen) == ["d", "f"]
    assert names(second, second.existing) == ["g"] and names(second, second.kept) == ["j"]
    assert [s.launches for s in found(4, 100)] == [4] and [s.launches for s in found(1, 2)] == [2, 2, 2, 1]


def test_what_is_alive_together_lies_apart_and_the_rest_shares() -> None:
    first, _ = found(3, 100)
    spans = {b: range(o, o + buffer_bytes(first.routine.shapes[b])) for b, o in first.offsets.items()}
    b, c = spans.values()
    assert not set(b) & set(c) and first.bytes == 1024 and all(o % ALIGNMENT == 0 for o in first.offsets.values())
    assert first.allocated_bytes == first.bytes + 800
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


DUMPS = Path(__file__).parents[2] / "testdata" / "dumps"

FORK = """HloModule m
ENTRY e {
  a = f32[64]{0} parameter(0)
  b = f32[64]{0} parameter(1)
  left = f32[64]{0} add(a, b)
  right = f32[64]{0} multiply(a, b)
  left2 = f32[64]{0} negate(left)
  right2 = f32[64]{0} abs(right)
  left3 = f32[64]{0} subtract(left2, a)
  right3 = f32[64]{0} subtract(right2, b)
  both = f32[64]{0} maximum(left3, right3)
  whole = f32[8,8]{1,0} bitcast(both)
  ROOT r = (f32[8,8]{1,0}, f32[64]{0}) tuple(whole, right2)
}
"""


def given_inputs(seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(64).astype(np.float32) for _ in range(2)]


def same_as_on_the_host(executable: Executable, module: Module, given: list[np.ndarray]) -> None:
    for got, want in zip(executable(*given), hlo_opt.compile(module, "host", form="plain")(*given), strict=True):
        assert got.tobytes() == want.tobytes()


def test_a_stretch_is_captured_when_its_addresses_come_again(fake: types.ModuleType) -> None:
    module = hlo_opt.parse(FORK)
    executable = hlo_opt.compile(module, "cupy")
    for run in range(5):
        same_as_on_the_host(executable, module, given_inputs(run))
        report = executable.report()
        assert report["launches"] == 7 and report["graphs"]["replayed"] == (7 if run else 0)
        assert report["graphs"]["stretches"] == (1 if run else 0)
    assert len(fake.captured) == 1 and fake.graphs == [7] * 4 and len(fake.launched) == 35
    page = str(run_page(executable))
    assert "CUDA graphs of 0 loops and 1 straight line made 7 of these, on 2 streams" in page


def test_what_is_independent_runs_side_by_side_and_the_rest_in_order(fake: types.ModuleType) -> None:
    executable = hlo_opt.compile(hlo_opt.parse(FORK), "cupy")
    for run in range(2):
        executable(*given_inputs(run))
    (graph,) = fake.captured
    left, right, left2, right2, left3, right3, both = graph.ancestors
    assert executable.report()["graphs"]["streams"] == graph.streams == 2
    assert (left, right, left2, right2) == (set(), set(), {0}, {1})
    assert both == {0, 1, 2, 3, 4, 5} and 2 in left3 and 3 in right3
    assert not left3 & {1, 3, 5} or not right3 & {0, 2, 4}  # a place that is used again orders one of them at most


def test_long_stretches_are_divided(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy_graphs, "LEAST_LAUNCHES", 2)
    monkeypatch.setattr(cupy_graphs, "MOST_LAUNCHES", 3)
    module = hlo_opt.parse(FORK)
    executable = hlo_opt.compile(module, "cupy")
    for run in range(3):
        same_as_on_the_host(executable, module, given_inputs(run))
    assert fake.graphs == [3, 3] * 2 and executable.report()["graphs"]["replayed"] == 6  # the seventh is one alone


def test_stretches_that_make_much_are_not_captured(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy_graphs, "MOST_BYTES", 600)
    module = hlo_opt.parse(FORK)
    executable = hlo_opt.compile(module, "cupy")
    for run in range(3):
        same_as_on_the_host(executable, module, given_inputs(run))
    assert not fake.captured


def test_new_addresses_are_launched_one_by_one_and_captured_when_they_come_again(fake: types.ModuleType) -> None:
    module = hlo_opt.parse(FORK)
    executable = hlo_opt.compile(module, "cupy")
    for _ in range(2):
        same_as_on_the_host(executable, module, given_inputs(0))
    held = fake.empty(64, "float32")  # takes the place of an input
    for replayed in (0, 7, 7):
        same_as_on_the_host(executable, module, given_inputs(1))
        assert executable.report()["graphs"]["replayed"] == replayed
    del held
    same_as_on_the_host(executable, module, given_inputs(2))
    assert executable.report()["graphs"]["replayed"] == 7 and len(fake.captured) == 2


def test_addresses_that_never_repeat_are_not_captured_on_and_on(
    fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cupy_stretches, "MOST_KNOWN", 2)
    monkeypatch.setattr(cupy_stretches, "MOST_CAPTURES", 3)
    module = hlo_opt.parse(FORK)
    executable = hlo_opt.compile(module, "cupy")
    held = []
    for run in range(12):
        held.append(fake.empty(64, "float32")) if run % 2 == 0 else None
        same_as_on_the_host(executable, module, given_inputs(run))
    assert len(fake.captured) == 3


def test_results_that_somebody_holds_are_not_overwritten(fake: types.ModuleType) -> None:
    module = hlo_opt.parse(FORK)
    executable = hlo_opt.compile(module, "cupy")
    executor = executable._executor
    assert executor is not None
    memory = executor.upload(given_inputs(3))  # type: ignore[union-attr]
    held = [executor.run_resident(memory) for _ in range(6)]  # type: ignore[union-attr]
    want = [a.reshape(-1) for a in hlo_opt.compile(module, "host")(*given_inputs(3))]
    other = executor.upload(given_inputs(4))  # type: ignore[union-attr]
    executor.run_resident(other)  # type: ignore[union-attr]
    for results in held:
        assert all(np.array_equal(got, array) for got, array in zip(results, want, strict=True))


def test_graphs_can_be_switched_off(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    module = hlo_opt.parse(FORK)
    plain = hlo_opt.compile(module, "cupy", graphs=False)
    monkeypatch.setenv("HLO_OPT_STREAMS", "0")
    asked = hlo_opt.compile(module, "cupy")
    monkeypatch.setenv("HLO_OPT_STREAMS", "1")
    one = hlo_opt.compile(module, "cupy")
    for run in range(3):
        for executable in (plain, asked, one):
            same_as_on_the_host(executable, module, given_inputs(run))
    assert "graphs" not in plain.report() and "graphs" not in asked.report()
    assert one.report()["graphs"]["streams"] == 1 and fake.captured[0].ancestors[-1] == set(range(6))


def test_the_block_is_no_more_than_the_limit_of_memory_allows(fake: types.ModuleType) -> None:
    from hlo_opt.runtime.schedule import build_schedule
    from hlo_opt.runtime.schedule.lifetimes import peak_of

    module = hlo_opt.parse(FORK)
    peak = peak_of(build_schedule(module)).bytes
    for limit, graphs in ((peak, 0), (2 * peak + 4096, 1)):
        executable = hlo_opt.compile(module, "cupy", memory_limit=limit)
        for run in range(2):
            same_as_on_the_host(executable, module, given_inputs(run))
        assert executable.report()["graphs"]["stretches"] == graphs


PRODUCT = """HloModule m
ENTRY e {
  a = f32[8,8]{1,0} parameter(0)
  i = s32[] parameter(1)
  b = f32[8,8]{1,0} negate(a)
  c = f32[8,8]{1,0} abs(b)
  row = f32[1,8]{1,0} slice(c), slice={[2:3], [0:8]}
  d = f32[8,8]{1,0} dynamic-update-slice(a, row, i, i)
  e = f32[8,8]{1,0} add(d, c)
  f = f32[8,8]{1,0} dot(e, d), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  g = f32[8,8]{1,0} dynamic-update-slice(f, row, i, i)
  h = f32[8,8]{1,0} add(g, e)
  j = f32[8,8]{1,0} multiply(h, d)
  k = f32[8,8]{1,0} subtract(j, a)
  ROOT l = f32[8,8]{1,0} add(k, h)
}
"""


def test_products_and_copies_are_inside_graphs(fake: types.ModuleType) -> None:
    module = hlo_opt.parse(PRODUCT)
    executable = hlo_opt.compile(module, "cupy")
    given = [np.arange(64, dtype=np.float32).reshape(8, 8), np.array(3, np.int32)]
    want = hlo_opt.compile(module, "cupy", graphs=False)(*given)
    for _ in range(4):
        assert executable(*given)[0].tobytes() == want[0].tobytes()
    assert executable.report()["graphs"]["stretches"] == 1 and executable.report()["library"] == {"dot": 1}
    (graph,) = fake.captured
    assert len(graph.nodes) == 13  # what is no kernel's is copied before it is updated


def test_other_library_calls_are_between_graphs(fake: types.ModuleType) -> None:
    module = hlo_opt.parse(PRODUCT.replace("f32", "s32"))
    executable = hlo_opt.compile(module, "cupy")
    given = [np.arange(64, dtype=np.int32).reshape(8, 8), np.array(3, np.int32)]
    want = hlo_opt.compile(module, "cupy", graphs=False)(*given)
    for _ in range(4):
        assert executable(*given)[0].tobytes() == want[0].tobytes()
    assert executable.report()["graphs"]["stretches"] == 2
    first, second = fake.captured
    assert (len(first.nodes), len(second.nodes)) == (6, 6)


def test_without_the_library_products_are_cupys(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: object) -> None:
        raise OSError("libcublas.so.13: cannot open shared object file")

    monkeypatch.setattr(cupy_products, "library_of", missing)
    module = hlo_opt.parse(PRODUCT)
    executable = hlo_opt.compile(module, "cupy")
    given = [np.arange(64, dtype=np.float32).reshape(8, 8), np.array(3, np.int32)]
    for _ in range(3):
        assert np.allclose(executable(*given)[0], hlo_opt.compile(module, "host")(*given)[0])
    assert executable.report()["graphs"]["stretches"] == 2


def test_products_side_by_side_have_workspaces_of_their_own(fake: types.ModuleType) -> None:
    lines = "".join(
        f"  g{n} = f32[8,8]{{1,0}} dot(a, b{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
        for n in range(3)
    )
    parameters = "".join(f"  b{n} = f32[8,8]{{1,0}} parameter({n + 1})\n" for n in range(3))
    module = hlo_opt.parse(
        f"HloModule m\nENTRY e {{\n  a = f32[8,8]{{1,0}} parameter(0)\n{parameters}{lines}"
        f"  ROOT r = (f32[8,8]{{1,0}}, f32[8,8]{{1,0}}, f32[8,8]{{1,0}}) tuple(g0, g1, g2)\n}}\n"
    )
    executable = hlo_opt.compile(module, "cupy")
    random = np.random.default_rng(0)
    given = [random.standard_normal((8, 8)).astype(np.float32) for _ in range(4)]
    for _ in range(3):
        for got, other in zip(executable(*given), given[1:], strict=True):
            assert np.allclose(got, given[0] @ other, rtol=1e-4, atol=1e-5)
    (graph,) = fake.captured
    used = executable._executor.device._cublas.library.workspaces  # type: ignore[union-attr]
    assert graph.streams == 3 and len(used) == 6 and len({workspace for _, workspace in used}) == 4


@pytest.mark.parametrize("graphs", [True, False])
def test_a_whole_run_is_one_graph(graphs: bool, fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    module = hlo_opt.parse(PRODUCT)
    executable = hlo_opt.compile(module, "cupy", graphs=graphs)
    given = [np.arange(64, dtype=np.float32).reshape(8, 8), np.array(3, np.int32)]
    run = executable.resident(given)
    run()
    run()
    fake.launched.clear()
    count = len(fake.allocated)
    written: list[np.ndarray] = []
    start = type(executable._executor.device).start_all

    def watched(self: object, starts: object, launches: list) -> None:  # type: ignore[type-arg]
        written.append(launches[-1][2][0])
        start(self, starts, launches)

    monkeypatch.setattr(type(executable._executor.device), "start_all", watched)
    run()
    report = executable.report()
    assert report["launches"] == len(fake.launched) == 10 and len(fake.allocated) == count
    assert fake.graphs == ([13, 13] if graphs else []) and bool(written) != graphs
    if graphs:
        assert report["graphs"]["runs"] == 1 and report["graphs"]["replayed"] == 10
    else:
        assert np.array_equal(written[0].reshape(8, 8), executable(*given)[0])


GIVEN_AWAY = """HloModule m, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }
ENTRY e {
  a = f32[64]{0} parameter(0)
  b = f32[64]{0} parameter(1)
  i = s32[] parameter(2)
  c = f32[64]{0} add(a, a)
  d = f32[64]{0} exponential(c)
  row = f32[2]{0} slice(d), slice={[3:5]}
  e = f32[64]{0} dynamic-update-slice(b, row, i)
  ROOT r = (f32[64]{0}, f32[64]{0}) tuple(d, e)
}
"""


def test_inputs_that_the_caller_keeps_are_copied_only_where_they_are_updated(fake: types.ModuleType) -> None:
    module = hlo_opt.parse(GIVEN_AWAY)
    executable = hlo_opt.compile(module, "cupy")
    executor = executable._executor
    assert isinstance(executor, Executor) and [k for k, _ in executor.schedule.entry.donated] == [0, 1]
    a, b = given_inputs(0)
    memory = executor.upload([a, b, np.array(7, np.int32)])
    copied: list[int] = []
    copy = fake.Array.copy
    fake.Array.copy = lambda self, order="C": copied.append(self.size) or copy(self, order)
    want = hlo_opt.compile(module, "cupy", graphs=False)(a, b, np.array(7, np.int32))
    for _ in range(3):
        results = executor.run_resident(memory)
        assert all(np.array_equal(got, array) for got, array in zip(results, want, strict=True))
        assert np.array_equal(memory[0], a) and np.array_equal(memory[1], b)
    assert not copied  # the one copy is part of the graph
    assert len(fake.captured[0].nodes) == executable.report()["launches"] + 1
    for _ in range(3):
        executable.resident([a, b, np.array(7, np.int32)])()
    donated = executor.upload([a, b, np.array(7, np.int32)])
    results = executor.run_resident(donated, donate=True)
    assert all(np.shares_memory(one, other) for one, other in zip(results, donated, strict=False))


def test_a_kernel_whose_blocks_meet_runs_beside_itself(fake: types.ModuleType) -> None:
    text = """HloModule m
add {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}}
ENTRY e {{
  zero = f32[] constant(0)
{parameters}
{sums}
  ROOT r = ({types}) tuple({names})
}}
"""
    parameters = "\n".join(f"  p{n} = f32[1048576]{{0}} parameter({n})" for n in range(5))
    sums = "\n".join(f"  sum{n} = f32[] reduce(p{n}, zero), dimensions={{0}}, to_apply=add" for n in range(5))
    module = hlo_opt.parse(
        text.format(
            parameters=parameters,
            sums=sums,
            types=", ".join(["f32[]"] * 5),
            names=", ".join(f"sum{n}" for n in range(5)),
        )
    )
    executable = hlo_opt.compile(module, "cupy")
    random = np.random.default_rng(0)
    given = [random.standard_normal(1048576).astype(np.float32) for _ in range(5)]
    for _ in range(4):  # as a graph from the second time on
        same_as_on_the_host(executable, module, given)
    (kernel,) = executable.report()["kernels"]
    assert kernel["grid"] > 1 and [len(a) for a in fake.captured[0].ancestors] == [0, 0, 0, 0, 1]


def test_a_stretch_that_cuda_does_not_capture_runs_step_by_step(
    fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, event: object) -> None:
        raise fake.cuda.runtime.CUDARuntimeError("cudaErrorStreamCaptureImplicit")

    monkeypatch.setattr(fake.Stream, "wait_event", refuse)
    module = hlo_opt.parse(FORK)
    executable = hlo_opt.compile(module, "cupy")
    for run in range(3):
        same_as_on_the_host(executable, module, given_inputs(run))
    graphs = executable.report()["graphs"]
    assert not fake.graphs and graphs["stretches"] == 0 and "Implicit" in graphs["refused"][0]


def test_without_memory_for_a_whole_stretch_it_runs_step_by_step(
    fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = fake._take

    def full(size: int) -> object:
        if size > 300:
            raise fake.cuda.memory.OutOfMemoryError("Out of memory allocating the block")
        return take(size)

    module = hlo_opt.parse(FORK)
    executable = hlo_opt.compile(module, "cupy")
    monkeypatch.setattr(fake, "_take", full)
    for run in range(2):
        same_as_on_the_host(executable, module, given_inputs(run))
    assert "allocating the block" in executable.report()["graphs"]["refused"][0] and not fake.captured


@pytest.mark.parametrize("name", ["adamw_mixed", "k_means", "layer_norm_bf16", "nested"])
@pytest.mark.sweep
def test_dumps_give_the_same_each_time(name: str, fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy_graphs, "LEAST_LAUNCHES", 2)
    module = hlo_opt.parse((DUMPS / f"{name}.hlo").read_text())  # not fused: most kernels
    executable = hlo_opt.compile(module, "cupy")
    plain = hlo_opt.compile(module, "cupy", graphs=False)
    for seed in (0, 1, 2):
        given = module_inputs(module, seed)
        for got, want in zip(executable(*given), plain(*given), strict=True):
            assert got.tobytes() == want.tobytes()
    assert executable.report()["launches"] == plain.report()["launches"] and fake.captured
