"""The hook in XLA's compiler, which replaces regions of modules by calls of our kernels. After any error here, XLA
compiles the module unchanged.

What decides about modules, and all of the compiler with it, is imported for the first module that the cache does not
know: most processes find everything there, and start in a quarter of the time.
"""

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
from typing import TYPE_CHECKING

import jax
from jax.extend.xla import PipelineStage, clear_hlo_module_transformation, register_hlo_module_transformation
from jaxlib import _jax

from hlo_opt.diag import BackendError, HloOptError, UsageError
from hlo_opt.jax import records
from hlo_opt.jax.backend import HOST, Backend
from hlo_opt.jax.calls import changed
from hlo_opt.jax.handler import handler, has_platform
from hlo_opt.jax.options import HookOptions
from hlo_opt.jax.placeholder import NAME as TIMED
from hlo_opt.jax.placeholder import wanted
from hlo_opt.jax.places import Places
from hlo_opt.jax.report import CALLBACKS, Line, Report, line
from hlo_opt.jax.wire import ModuleBytes
from hlo_opt.runtime.host.compiler import compiler_that_gives_way

if TYPE_CHECKING:
    from hlo_opt.jax.cuda import CudaHandler
    from hlo_opt.jax.decide import Decision

SWITCH = "HLO_OPT_JAX"
"""The environment variable; if it is `0`, `install` does nothing."""

BACKENDS = ("auto", "host", "cuda")

_HOST = ("cpu",)
_CUDA = ("cuda",) if hasattr(_jax, "get_pjrt_plugin") else ("gpu", "cuda")
"""JAX's names of the platforms. Since 0.11 JAX takes the name of a plugin, and no other; before, a GPU had two names:
one to register for, one to clear."""

_ON_HOST, _ON_GPU = PipelineStage.PRE_SCHEDULER, PipelineStage.POST_SCHEDULER
"""The stages at which XLA has fused a module, assigned layouts and inserted copies. For a GPU the first stage comes
before all of that."""

_AUTOTUNED = "entry_computation"
"""The name of the entry of a module that XLA compiles to choose among its own kernels for an instruction."""

LARGE_TEXT = 4 << 20
"""The size in bytes above which a module's large constants are not read."""
MOST_BYTES = 64 << 20
"""Limit of the size of a module in bytes."""

_TINY = 8
"""Limit of instructions of a module with nothing to fuse, as JAX makes of a single operation."""

_TURN = jax.make_user_context("")
"""Part of the key of `jax.jit`'s cache: inside `fusing()` functions are compiled again, and afterwards the earlier
executables are used."""


@dataclass
class Hook:
    """An installed hook."""

    wish: HookOptions
    waits: bool
    report: Report
    on_host: bool = True
    on_gpu: bool = False
    is_on: bool = True

    def __call__(self, message: bytes, backend: Callable[[], Backend] = lambda: HOST) -> bytes | None:
        """The module that XLA compiles instead; None if it is unchanged. Never raises."""
        try:
            begun, cpu_begun = time.perf_counter(), time.thread_time()
            result = self._changed(message, backend())
            self.report.took(time.perf_counter() - begun, time.thread_time() - cpu_begun)
            return result
        except KeyboardInterrupt:
            self._tell(line("JAX302", "a module"))
            if threading.current_thread() is threading.main_thread():  # else the main thread was interrupted, too
                threading.Timer(
                    0.05, _thread.interrupt_main
                ).start()  # here it would reach the user as a fault of XLA's
        except BaseException as fault:  # no error of ours may stop a compilation
            self._tell(line("JAX303", "a module", why=f"{type(fault).__name__}: {fault}"))
        return None

    def _tell(self, new: Line) -> None:
        try:
            self.report.add(new)
        except BaseException:  # the user's callback may fail, too
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
        if module.entry_name == _AUTOTUNED:
            return None
        if CALLBACKS.may_wait_for_us():
            self.report.note(line("JAX105", module.name))
            return None
        if module.donates and not backend.keeps_donations:
            self.report.add(line("JAX101", module.name))
            return None
        key = self.wish.key(module.fingerprint(), backend.name)
        known = records.module_of(key)
        if known is not None and all(backend.handler().has(c.change.key) for c in known.chosen):  # else some are lost
            places, chosen = Places(module), known.chosen
            for c in chosen:
                found = replaced(module.name, c, places)
                self.report.add(line("JAX401", module.name, c.label, source=found.source))
                self.report.add(found)
            if known.tries:
                self.report.add(line("JAX304", module.name))
                _BACKGROUND.put(lambda: decided(message, module, key, self.wish, self.report, backend))
        elif self.waits:
            chosen = decided(message, module, key, self.wish, self.report, backend)
        else:
            self.report.add(line("JAX301", module.name))
            _BACKGROUND.put(lambda: decided(message, module, key, self.wish, self.report, backend))
            return None
        return changed(message, chosen) if chosen else None


def replaced(module: str, c: records.Chosen, places: Places) -> Line:
    """The report's line of a replaced region."""
    times = {"ours_us": c.ours_us, "xla_us": c.xla_us}
    return line("JAX001", module, c.label, bytes_written=c.written, source=c.place(places.of), **times)


def decided(
    message: bytes, wired: ModuleBytes, key: str, wish: HookOptions, report: Report, backend: Backend = HOST
) -> tuple[records.Chosen, ...]:
    """Decides about a module, and stores the decision in the cache. Stops early when the process ends."""
    from hlo_opt.jax.decide import Decision, read

    backend.handler()
    name, places = wired.name, Places(wired)
    decision = Decision(name, wish, report, _BACKGROUND.is_over, backend, places.of)
    try:
        module = read(message, large=len(message) <= LARGE_TEXT)
        decision.run(module)
        decision.settle(module, message)
    except HloOptError as fault:
        report.add(line("JAX303", name, why=f"{fault.code} {fault.message}"))
        return ()
    if not decision.chosen and decision.is_whole:
        report.add(line("JAX103", name))
    chosen = tuple(decision.chosen)
    for c in chosen:
        report.add(replaced(name, c, places))
    if not decision.is_stopped and not decision.is_of_now:
        records.keep_module(key, records.Choice(chosen, _tries(decision, key)))
    return chosen


def _tries(decision: Decision, key: str) -> int:
    """How often the rest of a module is tried again: it ends, for there are fewer regions left each time, or it is a
    time in a row that found nothing."""
    if decision.is_whole and decision.is_sure:
        return 0
    before = records.module_of(key)
    left = before.tries if before is not None and before.tries else records.TRIES
    return records.TRIES if decision.found else left - 1


class Background:
    """A thread that decides about modules, one after another, while XLA's code runs."""

    def __init__(self) -> None:
        self._todo: queue.Queue[Callable[[], object]] = queue.Queue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._over = False
        self.inside = 0
        """The number of running calls of the hook in XLA's threads: a process that ends during one aborts."""
        atexit.register(self.end)

    def is_over(self) -> bool:
        """Whether the process is ending."""
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
                    with compiler_that_gives_way():
                        work()
            except Exception as fault:  # the next module may succeed
                for hook in _installed:
                    hook._tell(line("JAX303", "a module", why=f"{type(fault).__name__}: {fault}"))
            finally:
                self._todo.task_done()

    def wait(self) -> None:
        """Waits until all work is done, except in its own thread, where a callback of the report may ask for it. Ctrl-C
        interrupts it."""
        if threading.current_thread() is self._thread:
            return
        while self._todo.unfinished_tasks:
            time.sleep(0.01)

    def end(self, seconds: float = 30.0) -> None:
        """Stops after the current region and removes the hooks. XLA may still compile in its own threads, after Ctrl-C
        or for a daemon thread; a call of a hook would then abort the process."""
        self._over = True
        for hook in list(_installed):
            _remove(hook)
        end = time.monotonic() + seconds
        time.sleep(0.01)  # let calls that wait for the GIL start, so that they are counted
        while (self._todo.unfinished_tasks or self.inside) and time.monotonic() < end:
            time.sleep(0.01)


_BACKGROUND = Background()
_installed: list[Hook] = []
_lock = threading.Lock()


def _callback(message: bytes) -> bytes | None:
    """The hook for modules on the CPU."""
    return _called(message, lambda: HOST)


def _callback_of_gpu(message: bytes) -> bytes | None:
    """The hook for modules on a GPU."""
    return _called(message, _cuda)


def _called(message: bytes, backend: Callable[[], Backend]) -> bytes | None:
    """Calls the last installed hook: only one is active."""
    hook = _installed[-1] if _installed else None
    if hook is None or (backend is _cuda and not hook.on_gpu) or (backend is not _cuda and not hook.on_host):
        return None
    with _lock:
        _BACKGROUND.inside += 1
    try:
        return hook(message, backend)
    finally:
        with _lock:
            _BACKGROUND.inside -= 1


def _persistent_key() -> str:
    """The addition to the keys of JAX's persistent cache, so that executables with our kernels are not used without
    them."""
    hook = _installed[-1] if _installed else None
    return "" if hook is None else f"hlo_opt {hook.wish} {records.environment()} {records.generation()}"


def _new_hook(
    preset: str,
    min_saving_us: float,
    backend: str,
    report: Callable[[Line], None] | None,
    wait: bool,
) -> Hook:
    if backend not in BACKENDS:
        raise UsageError(f"there is no backend {backend!r} inside JAX; there are {', '.join(BACKENDS)}", code="HLO320")
    if preset != HookOptions.preset:
        from hlo_opt.passes import preset_names

        if preset not in preset_names():
            raise UsageError(f"there is no preset {preset!r}; there are {', '.join(preset_names())}")
    if backend == "cuda":
        _cuda()
    on_gpu = backend == "cuda" or (backend == "auto" and _has_cuda())
    on_host = backend == "host" or (backend == "auto" and has_platform("cpu"))
    return Hook(HookOptions(preset, min_saving_us), wait, Report(report), on_host, on_gpu)


def _cuda() -> Backend:
    from hlo_opt.jax.cuda import cuda

    return cuda()


def _cuda_handler() -> CudaHandler:
    from hlo_opt.jax.cuda import cuda_handler

    return cuda_handler()


def _has_cuda() -> bool:
    """Whether JAX has NVIDIA GPUs that kernels are built for. Starts JAX's backends."""
    if not has_platform("cuda"):
        return False
    from hlo_opt.jax.cuda import has_cuda

    return has_cuda()


def _set_persistent_key(key: Callable[[], str]) -> None:
    """Sets the addition to the keys of JAX's persistent cache. This is a private API of JAX. Without it, cached
    executables are used as they are, and compiled again if their kernels are missing."""
    try:
        from jax._src import cache_key
    except ImportError:
        return
    if hasattr(cache_key, "custom_hook"):
        cache_key.custom_hook = key


def _has(build: Callable[[], object], report: Report) -> bool:
    """Whether there is a handler. A machine without a C++ compiler is an error; a handler that does not build (the
    disk is full, say) is a line of the report, and XLA compiles everything itself."""
    try:
        build()
    except BackendError as fault:
        if fault.code == "HLO510":
            raise
        report.add(line("JAX303", "every module", why=f"{fault.code} {fault.message}"))
        return False
    return True


def _add(hook: Hook) -> None:
    hook.on_host = hook.on_host and _has(handler, hook.report)
    hook.on_gpu = hook.on_gpu and _has(_cuda_handler, hook.report)
    with _lock:
        if not _installed:
            register_hlo_module_transformation(_callback, name="hlo_opt", stage=_ON_HOST, platforms=_HOST)
            _set_persistent_key(_persistent_key)
        if hook.on_gpu and not any(other.on_gpu for other in _installed):
            register_hlo_module_transformation(_callback_of_gpu, name="hlo_opt", stage=_ON_GPU, platforms=_CUDA)
        _installed.append(hook)


def _remove(hook: Hook) -> None:
    with _lock:
        hook.is_on = False
        if hook in _installed:
            _installed.remove(hook)
        if not _installed:
            clear_hlo_module_transformation("hlo_opt", stage=_ON_HOST, platforms=_HOST)
            _set_persistent_key(lambda: "")
        if hook.on_gpu and not any(other.on_gpu for other in _installed):
            clear_hlo_module_transformation("hlo_opt", stage=_ON_GPU, platforms=_CUDA)


def is_switched_off() -> bool:
    """Whether the environment disables the hook."""
    return os.environ.get(SWITCH, "").strip() == "0"


def install(
    *,
    preset: str = "default",
    min_saving_us: float = 1.0,
    backend: str = "auto",
    report: Callable[[Line], None] | None = None,
    wait: bool = False,
) -> Report:
    """Makes `jax.jit` use our kernels where they are proved equal and are faster. Functions that were compiled before
    are compiled again.

    preset         the passes that fuse regions
    min_saving_us  microseconds per run that a region must save; it must also win by a tenth, or by 2 % where times are
                   estimates. 0 replaces every region that is not slower, by more than 2 %
    backend        `host` for kernels on the CPU; `cuda` for an NVIDIA GPU, where gains are estimated and not timed;
                   `auto` for what JAX has
    report         called with a line for each region and module: what was replaced, and why others were not. What is
                   compiled meanwhile is left to XLA if the call takes longer than printing does
    wait           whether compilations wait for our kernels. If not, XLA's code runs at first, kernels are built in the
                   background, and the next compilation of the same module uses them

    Returns the report, to which lines are added later. Raises UsageError for an unknown preset or backend, and
    BackendError without a C++ compiler, or for `cuda` without a GPU. Where the compiler fails, as on a full disk, XLA
    compiles everything itself, and the report says why. Does nothing with `HLO_OPT_JAX=0` in the
    environment.
    """
    uninstall()
    hook = _new_hook(preset, min_saving_us, backend, report, wait)
    if not is_switched_off():
        _add(hook)
        jax.clear_caches()
    return hook.report


def uninstall() -> None:
    """Removes the hooks. Functions that were compiled before are compiled again, by XLA alone."""
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
    """A context manager: as `install`, for calls inside the context. Functions are compiled again for these calls;
    afterwards their earlier executables are used."""
    global _turns
    hook = _new_hook(preset, min_saving_us, backend, report, wait)
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
    """Waits for the kernels that are built in the background. The next call of a function compiles it again, with these
    kernels."""
    _BACKGROUND.wait()
    if _installed:
        jax.clear_caches()
