"""The hook in XLA's compiler: what it does with a module, and when. Whatever goes wrong here, XLA's module stays as it
is."""

from __future__ import annotations

import _thread
import atexit
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import jax
from jax.extend.xla import PipelineStage, clear_hlo_module_transformation, register_hlo_module_transformation

from hlo_opt.diag import HloOptError, UsageError
from hlo_opt.jax import records
from hlo_opt.jax.cuda import cuda, cuda_handler, has_cuda
from hlo_opt.jax.decide import HOST, Backend, Decision, Wish, changed, read
from hlo_opt.jax.handler import handler
from hlo_opt.jax.measure import NAME as TIMED
from hlo_opt.jax.measure import wanted
from hlo_opt.jax.report import Line, Report, line
from hlo_opt.jax.wire import ModuleBytes
from hlo_opt.passes import preset_names

SWITCH = "HLO_OPT_JAX"
"""`0` in the environment: `install` does nothing."""

BACKENDS = ("auto", "host", "cuda")

_HOST = ("cpu",)
_CUDA = ("gpu", "cuda")
"""The platforms that modules are for, as JAX calls them; a GPU has two names there."""

LARGE_TEXT = 4 << 20
"""Bytes of a module whose large constants are not read."""
MOST_BYTES = 64 << 20
"""Of a module that is read at all."""

_TINY = 8
"""Instructions of a module that has nothing to fuse: what JAX makes of a single operation, which is fused by itself."""

_TURN = jax.make_user_context("")
"""Part of the key under which `jax.jit` keeps what it compiled: inside `fusing()` functions are compiled anew, and what
they were before is there again behind it."""


@dataclass
class Hook:
    """What is installed."""

    wish: Wish
    waits: bool
    report: Report
    on_host: bool = True
    on_gpu: bool = False
    is_on: bool = True

    def __call__(self, message: bytes, backend: Callable[[], Backend] = lambda: HOST) -> bytes | None:
        """What XLA compiles in a module's stead; None: the module. Never raises."""
        try:
            begun, cpu_begun = time.perf_counter(), time.thread_time()
            found = self._changed(message, backend())
            self.report.took(time.perf_counter() - begun, time.thread_time() - cpu_begun)
            return found
        except KeyboardInterrupt:
            self._tell(line("JAX302", "a module"))
            if threading.current_thread() is threading.main_thread():  # else that one was interrupted as well
                threading.Timer(
                    0.05, _thread.interrupt_main
                ).start()  # here it would reach the user as a fault of XLA's
        except BaseException as fault:  # nothing of ours may stop a compilation
            self._tell(line("JAX303", "a module", why=f"{type(fault).__name__}: {fault}"))
        return None

    def _tell(self, made: Line) -> None:
        try:
            self.report.add(made)
        except BaseException:  # what the user is told with may fail as well
            return

    def _changed(self, message: bytes, backend: Backend) -> bytes | None:
        if not self.is_on:
            return None
        module = ModuleBytes(message)
        if module.name == TIMED:
            return wanted()
        if sum(body.size for body in module.bodies) <= _TINY or len(message) > MOST_BYTES:
            if len(message) > MOST_BYTES:
                self.report.add(line("JAX104", module.name, megabytes=len(message) / 1e6))
            return None
        if module.donates:
            self.report.add(line("JAX101", module.name))
            return None
        key = self.wish.key(module.fingerprint(), backend.name)
        chosen = records.module_of(key)
        if chosen is not None:
            chosen = tuple(c for c in chosen if backend.handler().has(c.change.key))
            for c in chosen:
                self.report.add(line("JAX401", module.name, c.region))
                self.report.add(replaced(module.name, c))
        elif self.waits:
            chosen = decided(message, module.name, key, self.wish, self.report, backend)
        else:
            self.report.add(line("JAX301", module.name))
            _BACKGROUND.put(lambda: decided(message, module.name, key, self.wish, self.report, backend))
            return None
        return changed(message, chosen) if chosen else None


def replaced(module: str, c: records.Chosen) -> Line:
    """The line of a region that kernels of ours compute now."""
    return line("JAX001", module, c.region, bytes_written=c.written, ours_us=c.ours_us, xla_us=c.xla_us)


def decided(
    message: bytes, name: str, key: str, wish: Wish, report: Report, backend: Backend = HOST
) -> tuple[records.Chosen, ...]:
    """Decide about a module, and keep the decision. It ends early when the process is about to."""
    backend.handler()
    decision = Decision(name, wish, report, _BACKGROUND.is_over, backend)
    try:
        module = read(message, large=len(message) <= LARGE_TEXT)
        decision.run(module)
        decision.prove_whole(module, message)
    except HloOptError as fault:
        report.add(line("JAX303", name, why=f"{fault.code} {fault.message}"))
        return ()
    if not decision.chosen and decision.is_whole:
        report.add(line("JAX103", name))
    chosen = tuple(decision.chosen)
    for c in chosen:
        report.add(replaced(name, c))
    if not decision.is_stopped:
        records.keep_module(key, chosen)
    return chosen


class Background:
    """Work that goes on while XLA's code runs, in one thread, one module after the other."""

    def __init__(self) -> None:
        self._todo: queue.Queue[Callable[[], object]] = queue.Queue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._over = False
        self.inside = 0
        """Calls of the hook that are under way, in threads of XLA's: a process that ends meanwhile dies."""
        atexit.register(self.end)

    def is_over(self) -> bool:
        """Whether the process is about to end."""
        return self._over

    def put(self, work: Callable[[], object]) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="hlo_opt.jax", daemon=True)
                self._thread.start()
        self._todo.put(work)

    def _run(self) -> None:
        while True:
            work = self._todo.get()
            try:
                if not self._over:
                    work()
            except Exception as fault:  # the next module may fare better
                for hook in _installed:
                    hook._tell(line("JAX303", "a module", why=f"{type(fault).__name__}: {fault}"))
            finally:
                self._todo.task_done()

    def wait(self) -> None:
        """Until all that is to be done is done. Ctrl-C ends the waiting."""
        while self._todo.unfinished_tasks:
            time.sleep(0.01)

    def end(self, seconds: float = 30.0) -> None:
        """No more work; what is under way ends with its region. XLA may still compile in threads of its own, after
        Ctrl-C or for a thread that nobody waits for: it calls nothing of ours any more, for that would abort a process
        that is about to end."""
        self._over = True
        for hook in list(_installed):
            _remove(hook)
        end = time.monotonic() + seconds
        time.sleep(0.01)  # a call that waits for Python begins, and is counted
        while (self._todo.unfinished_tasks or self.inside) and time.monotonic() < end:
            time.sleep(0.01)


_BACKGROUND = Background()
_installed: list[Hook] = []
_lock = threading.Lock()


def _callback(message: bytes) -> bytes | None:
    """What XLA calls for the CPU."""
    return _called(message, lambda: HOST)


def _callback_of_gpu(message: bytes) -> bytes | None:
    """What XLA calls for a GPU."""
    return _called(message, cuda)


def _called(message: bytes, backend: Callable[[], Backend]) -> bytes | None:
    """The hook that was installed last, so that there is one whatever was installed how often."""
    hook = _installed[-1] if _installed else None
    if hook is None or (backend is cuda and not hook.on_gpu) or (backend is not cuda and not hook.on_host):
        return None
    with _lock:
        _BACKGROUND.inside += 1
    try:
        return hook(message, backend)
    finally:
        with _lock:
            _BACKGROUND.inside -= 1


def _persistent_key() -> str:
    """What JAX's persistent cache adds to its keys: an executable with kernels of ours is none without them."""
    hook = _installed[-1] if _installed else None
    return "" if hook is None else f"hlo_opt {hook.wish} {records.environment()} {records.generation()}"


def _made(
    preset: str,
    min_saving_us: float,
    backend: str,
    report: Callable[[Line], None] | None,
    wait: bool,
) -> Hook:
    if backend not in BACKENDS:
        raise UsageError(f"there is no backend {backend!r} inside JAX; there are {', '.join(BACKENDS)}", code="HLO320")
    if preset not in preset_names():
        raise UsageError(f"there is no preset {preset!r}; there are {', '.join(preset_names())}")
    if backend == "cuda":
        cuda()
    on_gpu = backend == "cuda" or (backend == "auto" and has_cuda())
    return Hook(Wish(preset, min_saving_us), wait, Report(report), backend != "cuda", on_gpu)


def _set_persistent_key(key: Callable[[], str]) -> None:
    """A private place of JAX's: where another JAX has none, what its cache holds is used as it is, and an executable
    whose kernels are missing is compiled again."""
    try:
        from jax._src import cache_key
    except ImportError:
        return
    if hasattr(cache_key, "custom_hook"):
        cache_key.custom_hook = key


def _add(hook: Hook) -> None:
    if hook.on_host:
        handler()
    if hook.on_gpu:
        cuda_handler()
    with _lock:
        if not _installed:
            stage = PipelineStage.PRE_SCHEDULER
            register_hlo_module_transformation(_callback, name="hlo_opt", stage=stage, platforms=_HOST)
            _set_persistent_key(_persistent_key)
        if hook.on_gpu and not any(other.on_gpu for other in _installed):
            stage = PipelineStage.PRE_SCHEDULER
            register_hlo_module_transformation(_callback_of_gpu, name="hlo_opt", stage=stage, platforms=_CUDA)
        _installed.append(hook)


def _remove(hook: Hook) -> None:
    with _lock:
        hook.is_on = False
        if hook in _installed:
            _installed.remove(hook)
        if not _installed:
            clear_hlo_module_transformation("hlo_opt", stage=PipelineStage.PRE_SCHEDULER, platforms=_HOST)
            _set_persistent_key(lambda: "")
        if hook.on_gpu and not any(other.on_gpu for other in _installed):
            clear_hlo_module_transformation("hlo_opt", stage=PipelineStage.PRE_SCHEDULER, platforms=_CUDA)


def is_switched_off() -> bool:
    """Whether the environment says that nothing is to happen."""
    return os.environ.get(SWITCH, "").strip() == "0"


def install(
    *,
    preset: str = "default",
    min_saving_us: float = 1.0,
    backend: str = "auto",
    report: Callable[[Line], None] | None = None,
    wait: bool = False,
) -> Report:
    """From now on `jax.jit` runs kernels of ours on the CPU wherever they were proved, timed and found to win. What was
    compiled before is compiled anew.

    preset         the passes that regions are fused by
    min_saving_us  microseconds of a run that a region must save, and it must win by a tenth; 0 takes what is not slower
    backend        `host`: kernels for the CPU, `cuda`: for an NVIDIA GPU, where gains are estimated and not timed;
                   `auto`: for what JAX has
    report         called with a line for each region and module: what was replaced, and why others were not
    wait           compilations wait for ours; else XLA's code runs at once, kernels are made in the background, and the
                   next compilation of the same module has them

    Returns the report so far, which goes on. Raises UsageError for an unknown preset or backend, and BackendError
    without a C++ compiler, or for `cuda` without a GPU. With `HLO_OPT_JAX=0` in the environment nothing happens.
    """
    uninstall()
    hook = _made(preset, min_saving_us, backend, report, wait)
    if not is_switched_off():
        _add(hook)
        jax.clear_caches()
    return hook.report


def uninstall() -> None:
    """What is compiled from now on is XLA's alone, and what was compiled before is compiled anew."""
    before = list(_installed)
    for hook in before:
        _remove(hook)
    if before:
        jax.clear_caches()


_turns = 0


@contextmanager
def fusing(
    *,
    preset: str = "default",
    min_saving_us: float = 1.0,
    backend: str = "auto",
    report: Callable[[Line], None] | None = None,
    wait: bool = False,
) -> Iterator[Report]:
    """As `install`, while this is entered: functions that are called inside are compiled anew, and behind it they are
    what they were."""
    global _turns
    hook = _made(preset, min_saving_us, backend, report, wait)
    if is_switched_off():
        yield hook.report
        return
    _add(hook)
    _turns += 1
    try:
        with _TURN(f"{_turns}"):
            yield hook.report
    finally:
        _remove(hook)


def wait() -> None:
    """Wait for what is made in the background; functions are compiled anew when they are called next, with kernels of
    ours."""
    _BACKGROUND.wait()
    if _installed:
        jax.clear_caches()
