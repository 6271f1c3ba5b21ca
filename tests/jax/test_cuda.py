"""The handler for GPUs, called as XLA calls it, on a driver that is a library of the test's own: kernels run there in
their plain form for the CPU, so that results are compared, too."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest
from jaxlib import _hlo

import hlo_opt.jax
from hlo_opt.diag import BackendError
from hlo_opt.evaluate import evaluate
from hlo_opt.ir import Module
from hlo_opt.ir.values import Array
from hlo_opt.jax import cuda, records
from hlo_opt.jax.backend import Backend
from hlo_opt.jax.calls import changed
from hlo_opt.jax.cuda import CudaHandler, Gpu, program_of
from hlo_opt.jax.decide import Decision, change_of, read
from hlo_opt.jax.device import DeviceProgram, steps_of
from hlo_opt.jax.hook import decided
from hlo_opt.jax.nvrtc import nvrtc
from hlo_opt.jax.options import HookOptions
from hlo_opt.jax.records import Chosen
from hlo_opt.jax.regions import Candidate
from hlo_opt.jax.wire import ModuleBytes
from hlo_opt.passes import run
from hlo_opt.runtime.host.library import HostLibrary, built
from hlo_opt.runtime.schedule import Schedule, build_schedule
from hlo_opt.text import parse

HERE = Path(__file__).resolve().parent
KERNELS = HERE.parent.parent / "testdata" / "kernels"
INSTANTIATE, INITIALIZE, EXECUTE = 0, 2, 3
CAPTURABLE = 1

CHAIN = """HloModule m
ENTRY e {
  p = f32[40,8] parameter(0)
  q = f32[8] parameter(1)
  c = f32[8] constant({1, 2, 3, 4, 5, 6, 7, 8})
  s = f32[8] multiply(q, c)
  b = f32[40,8] broadcast(s), dimensions={1}
  d = f32[40,8] add(p, b)
  n = f32[40,8] negate(d)
  x = f32[40,8] multiply(n, d)
  v = f32[320] bitcast(x)
  ROOT r = (f32[320], f32[40,8], f32[40,8], f32[8]) tuple(v, d, p, c)
}
"""
UPDATED = """HloModule m
ENTRY e {
  p = f32[16,8] parameter(0)
  u = f32[1,8] parameter(1)
  i = s32[] parameter(2)
  z = s32[] constant(0)
  w = f32[16,8] dynamic-update-slice(p, u, i, z)
  ROOT r = (f32[16,8], f32[16,8]) tuple(w, p)
}
"""
CALLED = """HloModule m
f {
  a = f32[32] parameter(0)
  b = f32[32] sine(a)
  ROOT c = (f32[32], f32[32]) tuple(a, b)
}
ENTRY e {
  p = f32[32] parameter(0)
  n = f32[32] negate(p)
  k = (f32[32], f32[32]) call(n), to_apply=f
  l = f32[32] get-tuple-element(k), index=1
  m = f32[32] get-tuple-element(k), index=0
  ROOT r = (f32[32], f32[32]) tuple(l, m)
}
"""


class Standin:
    """The driver and XLA's side, built once."""

    def __init__(self) -> None:
        text = (HERE / "cuda_driver.cpp").read_text(encoding="utf-8")
        self.path = built([text])
        self.driver = ctypes.CDLL(str(self.path))
        self.driver.standin_written.restype = ctypes.c_char_p
        frames = (HERE / "ffi_frames.cpp").read_text(encoding="utf-8")
        self.frames = ctypes.CDLL(str(built([frames], (f"-I{jax.ffi.include_dir()}",))))
        self.frames.frames_call.restype = ctypes.c_char_p
        self.libraries: list[HostLibrary] = []

    def begin(self, fails: str = "") -> None:
        """What is written down begins anew; the function of a name fails."""
        self.driver.standin_begin(fails.encode())

    @property
    def written(self) -> list[str]:
        return self.driver.standin_written().decode().split()

    def know(self, schedule: Schedule) -> None:
        """The kernels of a schedule, as functions."""
        library = HostLibrary(schedule.kernels, form="plain")
        self.libraries.append(library)
        for k in schedule.kernels:
            count = len(k.inputs) + len(k.outputs)
            self.driver.standin_kernel(k.symbol.encode(), ctypes.c_void_p(library.address(k)), count)


@cache
def standin() -> Standin:
    return Standin()


@pytest.fixture(autouse=True)
def _driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The handler asks once in a process for the driver; what the test's own writes down begins anew."""
    monkeypatch.setenv("HLO_OPT_CUDA_DRIVER", str(standin().path))
    standin().begin()
    yield
    assert standin().driver.standin_depth() == 0, "each context that was pushed is popped"


@cache
def handler() -> CudaHandler:
    made = CudaHandler(lambda _: None)
    ctypes.c_longlong.from_address(made.library.hlo_opt_type_id()).value = 1  # as XLA does that registers it
    return made


def image(symbol: str) -> bytes:
    return b"\x7fELF" + symbol.encode()


def program(schedule: Schedule) -> DeviceProgram:
    steps = steps_of(schedule)
    standin().know(schedule)
    return DeviceProgram(steps, tuple(image(k.symbol) for k in steps.kernels))


class Call:
    """A call in an executable: it is instantiated once, and then initialized and run on a stream."""

    def __init__(self, key: str, made: DeviceProgram | None = None) -> None:
        self.key = key
        self.state = ctypes.c_void_p()
        if made is not None:
            handler().add(key, made)
        self.fault = self._stage("Instantiate", INSTANTIATE, 0, [], [])

    def initialize(self, stream: int = 1) -> str:
        return self._stage("Initialize", INITIALIZE, stream, [], [])

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array], stream: int = 1) -> str:
        return self._stage("Execute", EXECUTE, stream, inputs, outputs)

    def _stage(self, name: str, stage: int, stream: int, inputs: Sequence[Array], outputs: Sequence[Array]) -> str:
        def told(arrays: Sequence[Array]) -> tuple[object, object]:
            count = max(1, len(arrays))
            sizes = (ctypes.c_longlong * count)(*(a.nbytes for a in arrays))
            return (ctypes.c_void_p * count)(*(a.ctypes.data for a in arrays)), sizes

        function = getattr(handler().library, f"HloOpt{name}")
        given, made = told(inputs), told(outputs)
        found: bytes = standin().frames.frames_call(
            function, stage, self.key.encode(), ctypes.c_void_p(stream), ctypes.byref(self.state),
            ctypes.c_longlong(len(inputs)), *given, ctypes.c_longlong(len(outputs)), *made,
        )  # fmt: skip
        return found.decode()


def drawn(module: Module) -> list[Array]:
    rng = np.random.default_rng(0)
    shapes = [p.shape for p in module.entry.parameters]
    return [np.asarray(rng.standard_normal(s.dimensions) * 3, s.type.dtype) for s in shapes]


def results(made: DeviceProgram) -> list[Array]:
    """Memory for a call's results, full of what is no result."""
    sizes = [*made.steps.outputs, *([made.steps.memory] if made.steps.memory else [])]
    return [np.full(size, 0xA5, np.uint8) for size in sizes]


@pytest.mark.parametrize("text", [CHAIN, UPDATED, CALLED], ids=["chain", "updated", "called"])
@pytest.mark.parametrize("preset", [None, "default"])
def test_a_call_computes_what_the_module_does(text: str, preset: str | None) -> None:
    module = parse(text)
    schedule = build_schedule(module if preset is None else run(module, preset).module)
    made = DeviceProgram.unpacked(program(schedule).packed())
    call = Call(f"{preset} {text}", made)
    inputs = drawn(module)
    assert call.fault == call.initialize() == ""
    standin().begin()
    for _ in range(2):
        outputs = results(made)
        assert call.run(inputs, outputs) == ""
        for found, expected in zip(outputs, evaluate(module, inputs), strict=False):
            np.testing.assert_allclose(found.view(expected.dtype).reshape(expected.shape), expected, 1e-6)
    assert not {"cuModuleLoadData", "cuMemcpyHtoD", "cuMemAlloc"} & set(standin().written), "a call may be captured"


HELD = """HloModule m, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }
ENTRY e {
  p = f32[64,8] parameter(0)
  q = f32[64,8] parameter(1)
  a = f32[64,8] subtract(p, q)
  t = f32[64,8] reverse(q), dimensions={0}
  ROOT r = (f32[64,8], f32[64,8]) tuple(a, t)
}
"""


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize("preset", [None, "default"])
def test_results_in_the_memory_of_inputs(is_shared: bool, preset: str | None) -> None:
    """As XLA has them where a parameter is donated. The reversed array is written when nothing reads its source."""
    module = parse(HELD)
    made = DeviceProgram.unpacked(
        program(build_schedule(module if preset is None else run(module, preset).module)).packed()
    )
    assert made.steps.held == (0, 1)
    call, inputs = Call(f"held {preset}", made), drawn(module)
    expected = evaluate(module, inputs)
    given = [a.copy() for a in inputs]
    outputs = [*(given if is_shared else results(made)[:2]), *results(made)[2:]]
    assert call.fault == call.initialize() == call.run(given, outputs) == ""
    for found, right in zip(outputs, expected, strict=False):
        np.testing.assert_allclose(found.view(right.dtype).reshape(right.shape), right, 1e-6)
    assert is_shared or all(np.array_equal(a, b) for a, b in zip(given, inputs, strict=True))


def test_a_result_that_is_another_input_is_not_written_over_it() -> None:
    text = HELD.replace("tuple(a, t)", "tuple(q, a)")
    with pytest.raises(BackendError, match="is another input"):
        steps_of(build_schedule(parse(text)))


def test_what_is_written_down() -> None:
    """Loading when XLA initializes, for each context once; then a launch for each kernel, and copies of what is no
    value of its own."""
    schedule = build_schedule(parse(CHAIN))
    made = program(schedule)
    call = Call("written down", made)
    assert call.initialize(1) == call.initialize(1) == call.initialize(2) == ""
    count = len(made.steps.kernels)
    each = ["cuStreamGetCtx", *["cuModuleLoadData", "cuModuleGetFunction"] * count, "cuMemAlloc", "cuMemcpyHtoD"]
    assert standin().written == [*each, "cuStreamGetCtx", *each]
    standin().begin()
    assert call.run([np.zeros((40, 8), np.float32), np.zeros(8, np.float32)], results(made)) == ""
    assert standin().written.count("cuLaunchKernel") == 5, "one for each instruction that computes"
    assert standin().written.count("cuMemcpyDtoDAsync") == 2, "the parameter and the constant"


def test_blocks_that_wait_are_launched_at_once() -> None:
    """And the memory in which they meet is zero before each launch."""
    module = parse((KERNELS / "grid_loop_1.hlo").read_text(encoding="utf-8"))
    schedule = build_schedule(run(module, "default").module)
    assert any(k.launch.cooperative and k.kept for k in schedule.kernels)
    made = program(schedule)
    call = Call("at once", made)
    inputs = drawn(module)
    outputs = results(made)
    assert call.initialize() == call.run(inputs, outputs) == ""
    written = standin().written
    assert written.index("cuMemsetD8Async") + 1 == written.index("cuLaunchCooperativeKernel")


@pytest.mark.parametrize("fails", ["cuStreamGetCtx", "cuModuleLoadData", "cuModuleGetFunction", "cuMemcpyHtoD"])
def test_a_fault_while_loading_is_xlas_error(fails: str) -> None:
    call = Call(f"fault {fails}", program(build_schedule(parse(CHAIN))))
    standin().begin(fails)
    assert call.initialize() == f"hlo_opt: {fails}: planted"
    standin().begin()
    assert call.initialize() == "", "nothing is kept half-loaded"


def test_a_fault_of_a_launch_is_xlas_error() -> None:
    made = program(build_schedule(parse(CALLED)))
    call = Call("failing launch", made)
    assert call.initialize() == ""
    standin().begin("cuLaunchKernel")
    assert call.run([np.zeros(32, np.float32)], results(made)) == "hlo_opt: cuLaunchKernel: planted"
    assert standin().written.count("cuLaunchKernel") == 1


def test_a_key_that_nobody_knows_is_not_found() -> None:
    """So JAX compiles again what it found in its persistent cache."""
    assert "there are no kernels nobody" in Call("nobody").fault


def test_other_arrays_are_refused() -> None:
    made = program(build_schedule(parse(CALLED)))
    call = Call("other arrays", made)
    assert "other arrays" in call.run([], results(made))
    assert "another size" in call.run([np.zeros(31, np.float32)], results(made))


def test_calls_can_be_captured() -> None:
    assert standin().frames.frames_traits(handler().library.HloOptExecute) & CAPTURABLE


LOOP = """HloModule m
body {
  s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  n = s32[] add(i, one)
  x = f32[64] get-tuple-element(s), index=1
  y = f32[64] sine(x)
  ROOT t = (s32[], f32[64]) tuple(n, y)
}
condition {
  s_2 = (s32[], f32[64]) parameter(0)
  i2 = s32[] get-tuple-element(s_2), index=0
  most = s32[] constant(10)
  ROOT less = pred[] compare(i2, most), direction=LT
}
ENTRY e {
  p = f32[64] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[64]) tuple(zero, p)
  loop = (s32[], f32[64]) while(start), condition=condition, body=body
  ROOT last = f32[64] get-tuple-element(loop), index=1
}
"""
LIBRARY = """HloModule m
ENTRY e {
  p = f32[8,8] parameter(0)
  ROOT c = f32[8,8] cholesky(p), lower=true
}
"""


@pytest.mark.parametrize(("text", "what"), [(LOOP, "while loop"), (LIBRARY, "cholesky c")])
def test_what_needs_the_host_or_a_library_is_left(text: str, what: str) -> None:
    with pytest.raises(BackendError, match=what) as caught:
        steps_of(build_schedule(parse(text)))
    assert caught.value.code == "HLO528"


def test_a_loop_that_is_a_kernel_is_one_launch() -> None:
    module = parse(LOOP)
    made = program(build_schedule(run(module, "default").module))
    call, inputs, outputs = Call("loop", made), drawn(module), results(made)
    assert call.initialize() == call.run(inputs, outputs) == ""
    np.testing.assert_allclose(outputs[0].view(np.float32), evaluate(module, inputs)[0], 1e-5)
    assert standin().written.count("cuLaunchKernel") == 1


@pytest.mark.parametrize("data", [b"", b"damaged", b"PK\x03\x04"])
def test_damaged_programs_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no program"):
        DeviceProgram.unpacked(data)


@pytest.mark.parametrize(
    ("capability", "cores", "name"),
    [("90", 132, "h100_sxm"), ("80", 108, "a100"), ("86", 84, "a6000"), ("75", 40, "v100")]
)  # fmt: skip
def test_the_nearest_device(capability: str, cores: int, name: str) -> None:
    assert Gpu(capability, cores).target.name.startswith(name)


@pytest.mark.parametrize(("title", "name"), [("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100_sxm")])
def test_devices_that_differ_in_their_memory_alone(title: str, name: str) -> None:
    assert Gpu("90", 132, title).target.name == name


def test_nvrtc_without_cupy(empty_cache: object) -> None:
    """Machine code for a device that is not here, with the estimates that decide."""
    pytest.importorskip("nvidia")
    try:
        nvrtc()
    except BackendError:
        pytest.skip("NVRTC is not installed")
    made, ours_us, xla_us = program_of(parse(CHAIN), "default", Gpu("90", 132))
    assert all(code.startswith(b"\x7fELF") for code in made.code) and 0 < ours_us < xla_us


def test_a_kernel_that_nvrtc_refuses_is_a_line_of_the_report(
    empty_cache: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise BackendError("NVRTC refuses kernel k: planted", code="HLO522")

    monkeypatch.setattr(cuda, "compiled", refused)
    monkeypatch.setattr(cuda, "nvrtc", lambda: None)
    monkeypatch.setattr(cuda, "architecture", lambda *_: "sm_90")
    monkeypatch.setattr(cuda, "gpu", lambda: Gpu("90", 132))
    report = hlo_opt.jax.Report()
    backend = Backend("cuda test", handler, cuda.build_for_cuda, is_timed=False)
    Decision("m", HookOptions(min_saving_us=0), report, backend=backend).run(parse(CHAIN))
    assert report.count("JAX201") == 1 and "HLO522" in str(report)


@pytest.mark.parametrize(("least_us", "built"), [(9.9, 0), (9.7, 1)])
def test_what_cannot_win_is_not_built(empty_cache: object, least_us: float, built: int) -> None:
    keys: list[str] = []

    def build(_: object, key: str, __: str) -> tuple[float, float]:
        keys.append(key)
        return 12.0, 10.0

    report = hlo_opt.jax.Report()
    backend = Backend("cuda test", handler, build, is_timed=False, estimate=lambda _: (least_us, 10.0))
    Decision("m", HookOptions(min_saving_us=0.1), report, backend=backend).run(parse(CHAIN))
    assert len(keys) == built and report.count("JAX202" if built else "JAX102") == 1


@pytest.mark.parametrize(
    ("products", "saved_us", "kept", "code"),
    [(2, 9.0, 0, "JAX210"), (2, 40.0, 1, ""), (5, 9.0, 1, ""), (5, 2.0, 0, "JAX202")],
)
def test_launches_that_lose_their_graph_cost_more(
    empty_cache: object, products: int, saved_us: float, kept: int, code: str
) -> None:
    """XLA captures 5 launches or more: 2 of 5, and a call of ours, run without a graph. A call between launches costs
    more than 2 us."""
    chain = [f"  a{k} = f32[64,64] {'sine' if k % 2 else 'cosine'}(a{k - 1})" for k in range(1, 4)]
    over = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    dots = [f"  d{k} = f32[64,64] dot({f'd{k - 1}' if k else 'a3'}, p), {over}" for k in range(products)]
    module = parse(
        "\n".join(
            [
                "HloModule m",
                "ENTRY e {",
                "  p = f32[64,64] parameter(0)",
                "  a0 = f32[64,64] exponential(p)",
                *chain,
                *dots,
            ]
        ).replace(f"  d{products - 1} =", f"  ROOT d{products - 1} =")
        + "\n}\n"
    )
    report = hlo_opt.jax.Report()
    backend = Backend("cuda test", handler, lambda *_: (1.0, 1.0 + saved_us), is_timed=False)
    decision = Decision("m", HookOptions(), report, backend=backend)
    decision.run(module)
    assert len(decision.chosen) == 1
    decision.prove_whole(module, b"")
    assert len(decision.chosen) == kept and [e for e in ("JAX202", "JAX210") if report.count(e)] == [code] * bool(code)


def test_a_module_with_calls_has_the_memory_between_as_a_result(
    empty_cache: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What XLA gets: all results of the region, and behind them memory that nobody reads."""
    monkeypatch.setattr(cuda, "compiled", lambda _, kernels, *__: {k.symbol: image(k.symbol) for k in kernels})
    monkeypatch.setattr(cuda, "nvrtc", lambda: None)
    monkeypatch.setattr(cuda, "architecture", lambda *_: "sm_90")
    monkeypatch.setattr(cuda, "gpu", lambda: Gpu("90", 132))
    monkeypatch.setattr(cuda, "cuda_handler", handler)
    monkeypatch.setattr(handler(), "_find", records.device_program_of)
    text = """HloModule m
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT t = f32[] add(x, y)
}
ENTRY e {
  p = f32[4096,4096] parameter(0)
  a = f32[4096,4096] sine(p)
  z = f32[] constant(0)
  s = f32[] reduce(a, z), dimensions={0,1}, to_apply=add
  b = f32[4096,4096] broadcast(s), dimensions={}
  ROOT r = f32[4096,4096] subtract(a, b)
}
"""
    message = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    report = hlo_opt.jax.Report()
    backend = Backend("cuda test", handler, cuda.build_for_cuda, is_timed=False, memory=handler().memory)
    chosen = decided(message, ModuleBytes(message), "key", HookOptions(min_saving_us=0), report, backend)
    assert len(chosen) == 1, str(report)
    printed = _hlo.HloModule.from_serialized_hlo_module_proto(changed(message, chosen)).to_string()
    memory = handler().memory(chosen[0].change.key)
    assert memory > 0 and f"u8[{memory}]" in printed and "hlo_opt.run" in printed
    made = parse(printed)
    left = [i.opcode for i in made.entry.instructions if i.literal is None]
    assert left == ["parameter", "custom-call", "get-tuple-element"]


ALIAS = ", input_output_alias={ {2}: (1, {}, may-alias) }"
MOVED = f"""HloModule m, is_scheduled=true{ALIAS}
ENTRY e {{
  x = f32[1024,1024] parameter(0)
  w = f32[1024,1024] parameter(1)
  a = f32[1024,1024] sine(x)
  r = f32[1024,1024] sort(a), dimensions={{1}}, to_apply=less
  h = f32[1024,1024] sort(x), dimensions={{1}}, to_apply=less
  b = f32[1024,1024] tanh(h)
  ROOT t = (f32[1024,1024], f32[1024,1024], f32[1024,1024]) tuple(r, b, w)
}}
"""
LESS = """less {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT l = pred[] compare(p, q), direction=LT
}
"""


@pytest.mark.parametrize(("is_donated", "kept"), [(True, 0), (False, 1)])
def test_what_would_move_others_is_left_where_memory_is_written_again(is_donated: bool, kept: int) -> None:
    text = MOVED.replace("ENTRY", f"{LESS}ENTRY")
    text = text if is_donated else text.replace(ALIAS, "")
    message = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    module, report = read(message, large=True), hlo_opt.jax.Report()
    backend = Backend("cuda test", handler, cuda.build_for_cuda, is_timed=False)
    decision = Decision("m", HookOptions(seconds=0), report, backend=backend)
    decision.run(module)
    region = Candidate(module.entry, tuple(i for i in module.entry.instructions if i.name in ("a", "b")))
    decision.chosen.append(Chosen(change_of(region, "key", 0), "a", 0, 1.0, 2.0, "a"))
    decision.keep_order(message)
    assert len(decision.chosen) == kept and report.count("JAX209") == 1 - kept


def test_cuda_without_a_gpu_is_an_error() -> None:
    if cuda.has_cuda():
        pytest.skip("there is one")
    with pytest.raises(BackendError) as caught:
        hlo_opt.jax.install(backend="cuda")
    assert caught.value.code == "HLO521"
    assert os.environ["HLO_OPT_CUDA_DRIVER"]
