"""What goes wrong in a hook like this: each trap by its number in the comments, and the smallest program that falls
into it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental.serialize_executable import deserialize_and_load, serialize
from jax.extend.xla import PipelineStage, clear_hlo_module_transformation, register_hlo_module_transformation
from snippets import HEAD, run

import hlo_opt.jax
from hlo_opt.jax import decide, hook, records
from hlo_opt.jax.handler import handler
from hlo_opt.jax.wire import ModuleBytes

FUSING = {"min_saving_us": 0, "wait": True}
X = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)


def wave(x: Any) -> Any:
    return jnp.sin(x) * 2 + jnp.cos(x * 3)


def steps(x: Any, count: int = 50) -> Any:
    return lax.scan(lambda c, _: (jnp.sin(c) * 1.01 + 0.1, None), x, None, length=count)[0]


WAVE = np.sin(X) * 2 + np.cos(X * 3)


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), 2e-5, 2e-5)


def called_inside(text: str) -> list[str]:
    """The computations besides the entry that call kernels of ours, in XLA's text."""
    parts = text.split("\n\n")
    return [part.strip().split(" ")[0] for part in parts if "hlo_opt.run" in part and "ENTRY" not in part]


def test_t1_the_hook_may_be_installed_before_the_backend_is_there() -> None:
    done = run(
        """
        hlo_opt.jax.install(min_saving_us=0, wait=True)
        x = np.ones((64, 128), np.float32)
        text = jax.jit(lambda x: jnp.sin(x) * 2 + 1).lower(x).compile().as_text()
        assert "hlo_opt.run" in text, text
        """
    )
    assert done == ""


@pytest.mark.usefixtures("winning")
def test_t2_what_may_write_into_its_inputs_is_left_alone() -> None:
    given = jnp.asarray(X)
    with hlo_opt.jax.fusing(**FUSING) as report:
        found = jax.jit(wave, donate_argnums=0)(given)
    assert report.count("JAX101") == 1 and not report.replaced
    assert given.is_deleted()
    close(found, WAVE)


@pytest.mark.usefixtures("winning")
@pytest.mark.parametrize("limit", [hook.LARGE_TEXT, 0])
def test_t3_no_constant_loses_its_value(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "LARGE_TEXT", limit)
    table = np.linspace(0, 1, X.size, dtype=np.float32).reshape(X.shape)

    def function(x: Any) -> Any:
        return lax.fori_loop(0, 5, lambda _, c: jnp.sin(c) + table, x)

    with hlo_opt.jax.fusing(**FUSING) as report:
        found = jax.jit(function)(X)
    assert report.count("JAX303") == 0, str(report)
    assert bool(report.replaced) or limit == 0, str(report)
    close(found, jax.jit(function)(X))


@pytest.mark.usefixtures("winning")
@pytest.mark.parametrize("fault", [ValueError, MemoryError, SystemExit, GeneratorExit])
def test_t4_no_fault_of_ours_reaches_the_user(fault: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise fault("planted")

    monkeypatch.setattr(decide.Decision, "run", failing)
    with hlo_opt.jax.fusing(**FUSING) as report:
        found = jax.jit(wave)(X)
    assert report.count("JAX303") == 1 and "planted" in str(report)
    close(found, WAVE)


@pytest.mark.usefixtures("winning", "ctrl_c")
def test_t4_ctrl_c_is_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        raise KeyboardInterrupt

    with hlo_opt.jax.fusing(**FUSING) as report:
        with monkeypatch.context() as patch:
            patch.setattr(decide.Decision, "run", interrupted)
            with pytest.raises(KeyboardInterrupt):
                jax.block_until_ready(jax.jit(wave)(X))
                time.sleep(5)
        while not report.count("JAX302"):
            time.sleep(0.01)
        close(jax.jit(wave)(X), WAVE)
    assert report.count("JAX302") == 1


@pytest.mark.usefixtures("winning")
def test_t4_a_report_that_fails_is_no_fault_either() -> None:
    def failing(_: object) -> None:
        raise ValueError("planted")

    with hlo_opt.jax.fusing(**FUSING, report=failing):
        close(jax.jit(wave)(X), WAVE)


@pytest.mark.usefixtures("winning")
def test_t5_results_share_no_memory_with_what_is_given() -> None:
    """Nothing inserts copies after the hook, so a call says of no result that it is an operand."""

    def function(x: Any) -> Any:
        return x, wave(x), lax.fori_loop(0, 3, lambda _, c: c.at[0].add(c[1]), x)

    with hlo_opt.jax.fusing(**FUSING) as report:
        compiled = jax.jit(function).lower(X).compile()
    assert report.replaced and "output_to_operand_aliasing" not in compiled.as_text()
    given = jnp.asarray(X)
    for found, expected in zip(compiled(given), jax.jit(function)(X), strict=True):
        close(found, expected)
    close(given, X)


@pytest.mark.usefixtures("winning")
def test_t5_results_in_the_memory_of_operands() -> None:
    """A round gets its state where it leaves it: what reads all of it for each element it writes must not write
    there."""

    def function(x: Any, w: Any) -> Any:
        def body(c: Any, _: None) -> Any:
            ordered = jnp.sort(c[:8])
            return jnp.tanh(c[::-1] + 0.1 * c) + ordered.sum(), None

        return lax.scan(body, x, None, length=20)[0] @ w

    x, w = X.reshape(-1), np.eye(X.size, 4, dtype=np.float32)
    with hlo_opt.jax.fusing(**FUSING):
        compiled = jax.jit(function).lower(x, w).compile()
    assert len(called_inside(compiled.as_text())) == 1
    close(compiled(x, w), jax.jit(function)(x, w))


@pytest.mark.usefixtures("winning")
def test_t5_a_round_that_exchanges_its_state() -> None:
    """Each of the two results lies where the other's operand is."""

    def function(x: Any, y: Any) -> Any:
        def body(c: Any, _: None) -> Any:
            a, b = c
            most = jnp.sort(a[:8])[-1]
            return (jnp.sin(b[::-1]) + most, jnp.cos(a) * 0.5 + b), None

        return lax.scan(body, (x, y), None, length=7)[0]

    x, y = X.reshape(-1), X.reshape(-1)[::-1] * 0.3
    with hlo_opt.jax.fusing(**FUSING):
        compiled = jax.jit(function).lower(x, y).compile()
    assert len(called_inside(compiled.as_text())) == 1
    for found, expected in zip(compiled(x, y), jax.jit(function)(x, y), strict=True):
        close(found, expected)


@pytest.mark.usefixtures("winning")
@pytest.mark.parametrize(("turned", "count"), [(False, 2), (True, 0)])
def test_t5_the_next_state_is_computed_in_place_where_it_may(
    turned: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    monkeypatch.setattr(records, "keep_frozen", lambda _, program: built.append(program))

    def function(x: Any) -> Any:
        def body(c: Any, _: None) -> Any:
            a, b = c
            a, b = (a[::-1], b[::-1]) if turned else (a, b)
            most = jnp.sort(c[0][:8])[-1]
            return (jnp.sin(a) * 0.9 + most, jnp.cos(b) * 0.5 + a), None

        return lax.scan(body, (x, x * 0.3), None, length=7)[0]

    x = X.reshape(-1)
    with hlo_opt.jax.fusing(**FUSING):
        compiled = jax.jit(function).lower(x).compile()
    assert len(called_inside(compiled.as_text())) == 1
    assert max(len(program.donated) for program in built) == count
    for found, expected in zip(compiled(x), jax.jit(function)(x), strict=True):
        close(found, expected)


@pytest.mark.usefixtures("winning")
def test_t6_around_small_loops_and_in_branches_inside_a_loop() -> None:
    """XLA sorts in each round, so that the loop stays; its small loop is replaced whole."""

    def function(x: Any) -> Any:
        def body(c: Any, n: Any) -> Any:
            c = lax.cond(n % 3 == 0, lambda c: jnp.sort(jnp.sin(c) * 2), lambda c: jnp.cos(c) + c[::-1], c)
            return jnp.sort(steps(c, 10)) * 0.9, c.sum()

        return lax.scan(body, x, jnp.arange(7))

    x = X.reshape(-1)[:512]
    with hlo_opt.jax.fusing(**FUSING) as report:
        compiled = jax.jit(function).lower(x).compile()
    assert report.count("JAX303") == 0 and len(called_inside(compiled.as_text())) >= 3
    for found, expected in zip(compiled(x), jax.jit(function)(x), strict=True):
        close(found, expected)


@pytest.mark.usefixtures("winning")
@pytest.mark.parametrize("nested", [False, True])
def test_t6_small_loops_are_replaced_whole(nested: bool) -> None:
    def function(x: Any) -> Any:
        return lax.scan(lambda c, _: (steps(c, 10), None), x, None, length=10)[0] if nested else steps(x, 10)

    x = X.reshape(-1)[:64]
    with hlo_opt.jax.fusing(**FUSING) as report:
        compiled = jax.jit(function).lower(x).compile()
    assert report.replaced, str(report)
    assert called_inside(compiled.as_text()) == []
    close(compiled(x), jax.jit(function)(x))


@pytest.mark.usefixtures("winning")
def test_t7_denormals_are_treated_as_the_calling_thread_treats_them() -> None:
    """XLA's threads flush them and Python's do not, whichever of them made the threads that help."""
    tiny = np.full(1 << 21, 2e-38, np.float32)
    module = hlo_opt.parse(
        "HloModule m\nENTRY e {\n  p = f32[2097152] parameter(0)\n  c = f32[] constant(0.25)\n"
        "  b = f32[2097152] broadcast(c), dimensions={}\n  ROOT r = f32[2097152] multiply(p, b)\n}\n"
    )
    on_host = hlo_opt.compile(hlo_opt.fuse(module)[0])

    def function(x: Any) -> Any:
        return (x * 0.25 - x * 0.5) * 3 + x * 0.125

    expected = np.asarray(jax.jit(function)(tiny))
    with hlo_opt.jax.fusing(**FUSING) as report:
        inside = jax.jit(function)
        for _ in range(8):
            np.testing.assert_array_equal(on_host(tiny)[0], tiny * np.float32(0.25))
            np.testing.assert_array_equal(np.asarray(inside(tiny)), expected)
    assert report.replaced


@pytest.mark.usefixtures("winning")
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2fnuz", "float8_e3m4"])
def test_t7_small_floats_are_no_denormals(name: str) -> None:
    """Least numbers of 8 bits are normal ones of 32, and none is lost on the way."""
    codes = np.arange(256, dtype=np.uint8)
    kind = getattr(jnp, name)

    def function(codes: Any) -> Any:
        wide = lax.bitcast_convert_type(codes, kind).astype(jnp.float32)
        wide = jnp.where(jnp.isnan(wide), 1, wide)
        return wide * 2, lax.bitcast_convert_type((wide * 1.5).astype(kind), jnp.uint8)

    expected = jax.jit(function)(codes)
    with hlo_opt.jax.fusing(**FUSING) as report:
        found = jax.jit(function)(codes)
    assert report.replaced, str(report)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.usefixtures("winning")
def test_t8_python_goes_on_while_kernels_run() -> None:
    with hlo_opt.jax.fusing(**FUSING) as report:
        compiled = jax.jit(lambda x: steps(x, 3000)).lower(X).compile()
    assert report.replaced
    turns, over = 0, threading.Event()

    def count() -> None:
        nonlocal turns
        while not over.is_set():
            turns += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    before = turns
    for _ in range(3):
        jax.block_until_ready(compiled(X))
    after = turns
    over.set()
    thread.join()
    assert after > before + 10


def test_t9_the_persistent_cache_keeps_both_apart(tmp_path: Path) -> None:
    head = HEAD + (
        "decide.disagreement = lambda *_: None\n"  # no run of a kernel but the program's own
        'jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)\n'
        'jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)\n'
        "x = np.ones((64, 128), np.float32)\n"
        "f = jax.jit(lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c) * 1.01 + 0.1, None), x, None, length=50)[0])\n"
    )
    inside = (
        "hlo_opt.jax.install(min_saving_us=0, wait=True)\nf(x).block_until_ready()\n"
        "from hlo_opt.jax.handler import handler\nassert handler().calls == 1, handler().calls\n"
    )
    places = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax"), "HLO_OPT_CACHE": str(tmp_path / "ours")}
    (tmp_path / "ours").mkdir()
    outside = "f(x).block_until_ready()\n"
    for code in (outside, inside, inside, inside, outside):
        assert run(code, head, **places) == ""
    from_jax = "def fail(*_):\n    raise AssertionError('compiled again')\n" + (
        "hlo_opt.jax.install(min_saving_us=0, wait=True)\n"
        "from hlo_opt.jax import hook\nhook.Hook._changed = fail\n"
        "f(x).block_until_ready()\nfrom hlo_opt.jax.handler import handler\n"
        "assert handler().calls == 1 and not hook._installed[-1].report.lines, hook._installed[-1].report\n"
    )
    assert run(from_jax, head, **places) == ""


@pytest.mark.usefixtures("winning", "uncompared")
def test_t10_what_was_compiled_before_is_compiled_anew() -> None:
    function = jax.jit(wave)
    function(X)
    before = handler().calls
    hlo_opt.jax.install(**FUSING)
    report = hlo_opt.jax.install(**FUSING)
    function(X)
    assert handler().calls == before + 1
    assert len(report.replaced) == 1, "the hook is there once, however often it is installed"
    hlo_opt.jax.uninstall()
    function(X)
    assert handler().calls == before + 1


@pytest.mark.usefixtures("winning")
def test_t10_single_operations_are_left_at_once() -> None:
    with hlo_opt.jax.fusing(**FUSING) as report:
        found = jnp.asarray(X) + 1
    assert report.lines == []
    close(found, X + 1)


@pytest.mark.usefixtures("winning", "uncompared")
def test_t10_fusing_ends() -> None:
    function = jax.jit(wave)
    with hlo_opt.jax.fusing(**FUSING):
        function(X)
    before = handler().calls
    function(X)
    assert handler().calls == before
    with hlo_opt.jax.fusing(**FUSING):
        function(X)
    assert handler().calls == before + 1


@pytest.mark.usefixtures("winning")
def test_t11_several_threads_compile_and_run() -> None:
    with hlo_opt.jax.fusing(**FUSING) as report, ThreadPoolExecutor(4) as pool:
        lowered = [jax.jit(lambda x, k=k: wave(x) + k).lower(X) for k in range(4)]
        compiled = list(pool.map(lambda each: each.compile(), lowered))
        found = list(pool.map(lambda n: compiled[n % 4](X), range(32)))
    assert len(report.replaced) == 4 and report.count("JAX303") == 0, str(report)
    for n, result in enumerate(found):
        close(result, WAVE + n % 4)


def test_t11_regions_are_timed_while_the_hook_holds_all_threads_of_the_compiler() -> None:
    """In a process of its own, which ends after its time is up where regions wait for these threads."""
    done = run(
        """
        import os, threading
        from jax.extend.xla import PipelineStage, register_hlo_module_transformation
        from hlo_opt.jax import measure, placeholder
        from hlo_opt.jax.wire import ModuleBytes
        count = max(8, os.cpu_count())
        held, timed = threading.Semaphore(0), threading.Event()
        def callback(message):
            if ModuleBytes(message).name == placeholder.NAME:
                return placeholder.wanted()
            held.release()
            timed.wait(60)
        jax.local_devices()
        register_hlo_module_transformation(
            callback, name="held", stage=PipelineStage.PRE_SCHEDULER, platforms=("cpu",)
        )
        call = lambda n: jax.jit(jnp.sin)(np.ones(n, np.float32))
        threads = [threading.Thread(target=call, args=(n,), daemon=True) for n in range(1, count + 1)]
        for thread in threads:
            thread.start()
        assert all(held.acquire(timeout=60) for _ in threads)
        threading.Timer(60, os._exit, (1,)).start()
        measure._nothing(True).executable
        timed.set()
        for thread in threads:
            thread.join()
        os._exit(0)
        """
    )
    assert done == ""


def test_a_process_that_ends_calls_nothing_of_ours() -> None:
    """XLA may still compile in a thread of its own, after Ctrl-C; what waits for Python then aborts the process."""
    head = """
import atexit
def compile_at_last():
    text = jax.jit(lambda x: jnp.sin(x) * 2 + 1).lower(np.ones((64, 128), np.float32)).compile().as_text()
    assert "hlo_opt.run" not in text and not report.lines, report
atexit.register(compile_at_last)
"""
    assert run("report = hlo_opt.jax.install(min_saving_us=0, wait=True)\n", head + HEAD) == ""


@pytest.mark.usefixtures("winning")
def test_t12_executables_are_serialized() -> None:
    with hlo_opt.jax.fusing(**FUSING) as report:
        compiled = jax.jit(steps).lower(X).compile()
    assert report.replaced
    again = deserialize_and_load(*serialize(compiled), execution_devices=jax.devices()[:1])  # there may be several
    close(again(X), compiled(X))


def test_t12_a_spawned_process_has_its_own(tmp_path: Path) -> None:
    script = tmp_path / "spawned.py"
    script.write_text(
        HEAD + "import multiprocessing\n"
        "def work(_):\n"
        "    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:\n"
        "        x = np.ones((64, 128), np.float32)\n"
        "        jax.jit(lambda x: jnp.sin(x) * 2 + 1)(x).block_until_ready()\n"
        "    return len(report.replaced)\n"
        'if __name__ == "__main__":\n'
        "    assert work(0) == 1\n"
        '    with multiprocessing.get_context("spawn").Pool(1) as pool:\n'
        "        assert pool.map(work, [0]) == [1]\n"
    )
    assert run(f"import runpy\nrunpy.run_path({str(script)!r}, run_name='__main__')\n", "") in ("",)


@pytest.mark.usefixtures("winning")
def test_t13_a_call_says_where_it_comes_from() -> None:
    with hlo_opt.jax.fusing(**FUSING):
        compiled = jax.jit(steps).lower(X).compile()
    compiled.cost_analysis()
    (call,) = (line for line in compiled.as_text().splitlines() if "hlo_opt.run" in line)
    assert 'op_name="jit(steps)/while' in call and "stack_frame_id" in call


@pytest.mark.parametrize("function", [wave, steps, lambda x: x @ x.T, lambda x: lax.cond(x.sum() > 0, wave, steps, x)])
def test_t14_a_module_taken_apart_and_put_together_is_the_same(function: Any) -> None:
    seen = []

    def through(message: bytes) -> bytes:
        module = ModuleBytes(message)
        for body in module.bodies:
            assert body.nodes
        seen.append(module.name)
        return module.message()

    expected = jax.jit(function)(X)
    stage = PipelineStage.PRE_SCHEDULER
    register_hlo_module_transformation(through, name="apart", stage=stage, platforms=("cpu",))
    try:
        jax.clear_caches()
        found = jax.jit(function)(X)
    finally:
        clear_hlo_module_transformation("apart", stage=stage, platforms=("cpu",))
    assert seen
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


@pytest.mark.sweep
@pytest.mark.parametrize("folder", ["TMPDIR", "HOME", "HLO_OPT_CACHE"])
def test_folders_that_are_not_there(folder: str, tmp_path: Path) -> None:
    """Kernels are made all the same, for this process alone."""
    (tmp_path / "file").touch()
    missing = {"XDG_CACHE_HOME": "", "HLO_OPT_CACHE": str(tmp_path)} | {folder: str(tmp_path / "file" / "x")}
    if folder == "HOME":
        missing["HLO_OPT_CACHE"] = ""
    code = """
        x = np.ones((64, 128), np.float32)
        with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
            jax.jit(lambda x: jnp.sin(x) * 2 + 1)(x).block_until_ready()
        assert report.replaced, report
        """
    assert run(code, **missing) == ""


def test_without_a_compiler_it_is_one_error_and_jax_goes_on(tmp_path: Path) -> None:
    code = """
        from hlo_opt.diag import BackendError
        try:
            hlo_opt.jax.install()
        except BackendError as fault:
            assert "compiler" in str(fault), fault
        else:
            raise AssertionError
        assert float(jax.jit(lambda x: jnp.sin(x) * 2 + 1)(np.zeros((64, 128), np.float32)).sum()) == 64 * 128
        """
    assert run(code, PATH=str(tmp_path), CXX="", HLO_OPT_CACHE=str(tmp_path)) == ""


def test_t15_importing_starts_nothing() -> None:
    head = (
        "import sys\nimport hlo_opt\nassert 'jax' not in sys.modules\nimport hlo_opt.jax\nassert 'jax' not in "
        "sys.modules\n"
    )
    code = """
        hlo_opt.jax.install
        from jax._src import xla_bridge
        assert not xla_bridge.backends_are_initialized()
        assert hlo_opt.jax.explain and "jax" in sys.modules
        """
    assert run(code, head) == ""


@pytest.mark.usefixtures("winning")
def test_another_jax_without_a_place_for_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is private and may move."""
    monkeypatch.setitem(sys.modules, "jax._src.cache_key", SimpleNamespace())
    monkeypatch.setattr("jax._src.cache_key", SimpleNamespace())
    with hlo_opt.jax.fusing(**FUSING) as report:
        close(jax.jit(wave)(X), WAVE)
    assert report.replaced


def test_a_jax_without_the_names_says_which_one_is_needed() -> None:
    code = """
        import jax
        del jax.make_user_context
        try:
            hlo_opt.jax.install()
        except ImportError as fault:
            assert "0.10.2 or later" in str(fault)
        else:
            raise AssertionError
        """
    assert run(code, "import hlo_opt.jax\n") == ""


@pytest.mark.parametrize("missing", ["jax", "jax.extend.xla"])
def test_without_jax_it_says_what_to_install(missing: str) -> None:
    code = """
        try:
            hlo_opt.jax.install()
        except ImportError as fault:
            assert "the extra jax" in str(fault)
        else:
            raise AssertionError
        """
    assert run(code, f"import sys\nsys.modules[{missing!r}] = None\nimport hlo_opt.jax\n") == ""
