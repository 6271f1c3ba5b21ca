"""The hook inside jax.jit on an NVIDIA GPU, step by step: python -m scripts.gpu_hook [--out FILE.json] [--seconds N]

Each step has a row of its own: what it saw, or its whole traceback. Steps do not need those before them. They run in
one process; where that dies, another goes on after the step that it died in. Run it with JAX_PLATFORMS=cuda,cpu. Exits
with 1 where a step does not hold, and with 3 where JAX has no GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

Row = dict[str, Any]

NO_GPU = 3
ROUNDS, EACH = 15, 0.4
"""Pairs of runs of a program, and seconds after which they end."""
FAR = 1e-3
"""How far results may be apart, of the largest of an array."""
LINES = 30
"""Lines of a report that a row keeps."""

CHAINS = (1, 3, 16)
"""Calls in a row."""

REGION = """HloModule region
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT t = f32[] add(x, y)
}
ENTRY e {
  p = f32[2048,2048] parameter(0)
  a = f32[2048,2048] sine(p)
  z = f32[] constant(0)
  s = f32[] reduce(a, z), dimensions={0,1}, to_apply=add
  b = f32[2048,2048] broadcast(s), dimensions={}
  ROOT r = f32[2048,2048] subtract(a, b)
}
"""
"""Two kernels with memory between them."""


def plugin() -> Row:
    """What JAX has loaded."""
    from importlib.metadata import version

    import jax
    from jaxlib import _jax

    devices = jax.devices("cuda")
    names = [name for name in ("cuda", "rocm", "gpu") if _jax.pjrt_plugin_loaded(name)]
    first = devices[0]
    return {
        "jax": jax.__version__,
        "jaxlib": version("jaxlib"),
        "device": first.device_kind,
        "capability": first.compute_capability,
        "cores": first.core_count,
        "client": [first.client.platform, first.client.platform_version],
        "plugins": names,
        "default": str(jax.devices()[0]),
        "flags": os.environ.get("XLA_FLAGS", ""),
    }


def tools() -> Row:
    """What compiles kernels and the handler, and for which device."""
    from hlo_opt.jax.cuda import gpu
    from hlo_opt.jax.nvrtc import nvrtc
    from hlo_opt.runtime.cupy.device import architecture

    library, device = nvrtc(), gpu()
    return {
        "nvrtc": [library.path, *library.getVersion()],
        "architecture": architecture(library, device.capability),
        "target": device.target.name,
        "compiler": shutil.which(os.environ.get("CXX", "g++")),
    }


def stages() -> Row:
    """Which modules XLA shows at which stage, and that it takes back what it is given."""
    import jax
    from jax.extend.xla import PipelineStage, clear_hlo_module_transformation, register_hlo_module_transformation

    from hlo_opt.jax.hook import _CUDA
    from hlo_opt.jax.wire import ModuleBytes

    seen: list[tuple[str, str, str, int, int]] = []

    def recorder(stage: str) -> Callable[[bytes], bytes | None]:
        def record(message: bytes) -> bytes | None:
            module = ModuleBytes(message)
            size = sum(body.size for body in module.bodies)
            seen.append((stage, module.name, module.entry_name, len(message), size))
            return module.message() if stage == "POST_SCHEDULER" else None

        return record

    for stage in PipelineStage:
        register_hlo_module_transformation(recorder(stage.name), name="probe", stage=stage, platforms=_CUDA)
    try:
        start = time.perf_counter()
        x = jax.numpy.ones((512, 1024))
        y = jax.jit(lambda v: jax.nn.softmax(v) @ v.T)(x)
        total, seconds = float(y.sum()), time.perf_counter() - start
    finally:
        for stage in PipelineStage:
            clear_hlo_module_transformation("probe", stage=stage, platforms=_CUDA)
    assert any(row[0] == "POST_SCHEDULER" and row[1].startswith("jit") for row in seen), seen
    assert abs(total - 512 * 512) < 1, total
    return {"calls": len(seen), "modules": seen[:20], "seconds": seconds}


def kernels() -> Row:
    """A region's kernels, compiled."""
    import hlo_opt
    from hlo_opt.jax.cuda import gpu, program_of

    start = time.perf_counter()
    program, ours_us, xla_us = program_of(hlo_opt.parse(REGION), "default", gpu())
    names = [k.symbol for k in program.steps.kernels]
    code = [len(c) for c in program.code]
    row = {"kernels": names, "bytes": code, "memory": program.steps.memory, "estimates_us": [ours_us, xla_us]}
    return {**row, "seconds": time.perf_counter() - start}


def handler() -> Row:
    """The handler, built and registered."""
    from hlo_opt.jax.cuda import cuda_handler

    start = time.perf_counter()
    own = cuda_handler().library
    number = ctypes.c_longlong.from_address(own.hlo_opt_type_id()).value
    assert number > 0, "XLA gave the state no type"
    return {"type": number, "seconds": time.perf_counter() - start}


def call() -> Row:
    """A region's call by its key, without the hook."""
    import jax
    import numpy as np

    import hlo_opt
    from hlo_opt.jax.cuda import build_for_cuda, cuda_handler
    from hlo_opt.jax.region_handler import TARGET

    module = hlo_opt.parse(REGION)
    build_for_cuda(module, "gpu_hook", "default")
    own = cuda_handler()
    scratch = jax.ShapeDtypeStruct((own.memory("gpu_hook"),), np.uint8)
    shape = jax.ShapeDtypeStruct((2048, 2048), np.float32)
    given = np.random.default_rng(0).standard_normal((2048, 2048)).astype(np.float32)
    call = jax.ffi.ffi_call(TARGET, (shape, scratch) if scratch.shape[0] else (shape,))
    once = jax.jit(lambda v: call(v, key="gpu_hook")[0])
    (want,) = hlo_opt.evaluate(module, [given])
    before = own.calls
    worst = [float(np.abs(np.asarray(once(given)) - want).max() / np.abs(want).max()) for _ in range(4)]
    assert max(worst) < FAR, worst
    again = jax.jit(lambda v: call(call(v, key="gpu_hook")[0], key="gpu_hook")[0])(given)  # captured, where XLA does
    (want_again,) = hlo_opt.evaluate(module, [want])
    apart = float(np.abs(np.asarray(again) - want_again).max() / np.abs(want_again).max())
    assert apart < FAR, apart
    return {"apart": [*worst, apart], "calls": own.calls - before}


def cost() -> Row:
    """What a call takes beside its kernel: chains of sines that are not fused, by XLA and by calls of ours, of which it
    captures the longest."""
    import jax
    import numpy as np

    import hlo_opt
    from hlo_opt.jax.cuda import build_for_cuda
    from hlo_opt.jax.region_handler import TARGET
    from scripts.bench.gpu_profile import batches

    size = 512
    text = f"HloModule m\nENTRY e {{\n p = f32[{size},{size}] parameter(0)\n ROOT r = f32[{size},{size}] sine(p)\n}}"
    build_for_cuda(hlo_opt.parse(text), "gpu_hook cost", "default")
    sine = jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct((size, size), np.float32))
    given = jax.numpy.asarray(np.random.default_rng(0).standard_normal((size, size)), "float32")

    def chain(function: Callable[[Any], Any], count: int) -> Callable[[Any], Any]:
        def run(v: Any) -> Any:
            for _ in range(count):
                v = jax.lax.optimization_barrier(function(v))
            return v

        return run

    row: Row = {"batch_us": {}, "call_us": {}}
    for count in CHAINS:
        ours = jax.jit(chain(lambda v: sine(v, key="gpu_hook cost"), count)).lower(given).compile()
        plain = jax.jit(chain(jax.numpy.sin, count)).lower(given).compile()
        ours_us, xla_us = batches([partial(ours, given), partial(plain, given)])
        row["batch_us"][count] = [ours_us, xla_us]
        row["call_us"][count] = (ours_us - xla_us) / count
    return row


def programs() -> dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], str]]:
    """Functions, the shapes of their arguments, and their type."""
    import jax
    import jax.numpy as jnp

    def layer_norm(x: Any, residual: Any, scale: Any, bias: Any) -> Any:
        y = x + residual
        mean = y.mean(-1, keepdims=True)
        variance = ((y - mean) ** 2).mean(-1, keepdims=True)
        return (y - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias, y

    def adam(p: Any, m: Any, v: Any, g: Any) -> Any:
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        return p - 1e-3 * m / (jnp.sqrt(jnp.abs(v)) + 1e-3), m, v

    def scan(x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (jnp.sin(c) * 1.01 + 0.1, None), x, None, length=200)[0]

    def loss(w1: Any, b1: Any, w2: Any, b2: Any, x: Any, y: Any) -> Any:
        scores = jax.nn.gelu(x @ w1 + b1) @ w2 + b2
        return (jax.nn.log_softmax(scores) * y).sum(-1).mean()

    def train(*arguments: Any) -> Any:
        value, slopes = jax.value_and_grad(loss, argnums=(0, 1, 2, 3))(*arguments)
        return value, [p - 0.1 * d for p, d in zip(arguments[:4], slopes, strict=True)]

    def rows(x: Any, y: Any) -> Any:
        return x.T + y, (x * 2).sum(0), jnp.cumsum(x, 1)

    wide = (8192, 4096)
    return {
        "softmax": (jax.nn.softmax, [wide], "float32"),
        "softmax_bf16": (jax.nn.softmax, [wide], "bfloat16"),
        "layer_norm": (layer_norm, [wide, wide, (4096,), (4096,)], "float32"),
        "adam": (adam, [(1 << 24,)] * 4, "float32"),
        "scan": (scan, [(1 << 16,)], "float32"),
        "train": (train, [(512, 1024), (1024,), (1024, 256), (256,), (512, 512), (512, 256)], "float32"),
        "gradient": (jax.grad(lambda x: jnp.tanh(jax.nn.softmax(x) ** 2).sum()), [wide], "float32"),
        "rows": (rows, [(4096, 2048), (2048, 4096)], "float32"),
        "sums": (lambda x: jnp.cumsum(x, 1), [(8192, 4096)], "float32"),
    }


def apart(ours: Any, theirs: Any) -> float:
    """The greatest difference, of the largest magnitude in an array, computed on the device; no number where one of
    them is none."""
    import jax
    import jax.numpy as jnp

    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    wide = ((x.astype("float32"), y.astype("float32")) for x, y in pairs)
    return float(jnp.stack([jnp.abs(x - y).max() / jnp.abs(y).max() for x, y in wide]).max())


def program(name: str) -> Row:
    """A program with the hook and without."""
    import statistics

    import jax
    import numpy as np

    import hlo_opt.jax
    from hlo_opt.jax.cuda import cuda_handler
    from scripts.bench import gpu_profile
    from scripts.bench.jax_hook import in_turns

    function, shapes, kind = programs()[name]
    random = np.random.default_rng(0)
    given = [jax.numpy.asarray(random.standard_normal(s, np.float32), kind) for s in shapes]
    plain = jax.jit(lambda *a: function(*a)).lower(*given).compile()
    start = time.perf_counter()
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True, backend="cuda") as report:
        ours = jax.jit(lambda *a: function(*a)).lower(*given).compile()
    row: Row = {
        "compiled_s": time.perf_counter() - start,
        "replaced": len(report.replaced),
        "lines": str(report).splitlines()[:LINES],
    }
    try:
        before = cuda_handler().calls
        row["apart"] = apart(ours(*given), plain(*given))
        pairs = in_turns(lambda: ours(*given), lambda: plain(*given), ROUNDS, EACH)
        row["calls_per_run"] = (cuda_handler().calls - before) / (len(pairs) + 6)
        row["ours_us"], row["xla_us"] = (statistics.median(c) * 1e6 for c in zip(*pairs, strict=True))
        row["ours_batch_us"], row["xla_batch_us"] = gpu_profile.batches([lambda: ours(*given), lambda: plain(*given)])
    except Exception:
        row["why"] = traceback.format_exc()
    with contextlib.suppress(Exception):  # no step needs the profiler, which has a library of its own
        row["ours_kernels"] = gpu_profile.kernels(lambda: ours(*given))
        row["xla_kernels"] = gpu_profile.kernels(lambda: plain(*given))
    row["entry"] = [line[:200] for line in (ours.as_text() or "").partition("\nENTRY")[2].splitlines()][:LINES]
    if "why" not in row and not (row["replaced"] and row["apart"] < (4e-2 if kind == "bfloat16" else FAR)):
        row["why"] = "nothing was replaced" if not row["replaced"] else f"results are {row['apart']:.1e} apart"
    return row


def threads() -> Row:
    """One executable in eight threads, and eight compilations at once."""
    import jax
    import numpy as np

    import hlo_opt.jax

    faults: list[str] = []
    given = jax.numpy.asarray(np.random.default_rng(0).standard_normal((4096, 4096), np.float32), "float32")
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True, backend="cuda") as report:
        shared = jax.jit(lambda v: jax.nn.softmax(v)).lower(given).compile()
        want = np.asarray(shared(given))

        def work(number: int) -> None:
            try:
                own = jax.jit(lambda v: jax.nn.softmax(v * number)).lower(given).compile()
                for _ in range(5):
                    if not np.array_equal(np.asarray(shared(given)), want):
                        faults.append("another result")
                assert np.abs(np.asarray(own(given)).sum(-1) - 1).max() < FAR
            except Exception:
                faults.append(traceback.format_exc())

        started = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
        for each in started:
            each.start()
        for each in started:
            each.join()
    assert not faults, "\n".join(faults)
    return {"replaced": len(report.replaced)}


def donated() -> Row:
    """Functions that take arguments over: their memory holds results, by calls of ours, too."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import hlo_opt.jax

    def moments(p: Any, m: Any, g: Any) -> Any:
        m = 0.9 * m + 0.1 * g
        return p - 1e-3 * m, m

    def kept(cache: Any, new: Any) -> Any:
        return jax.lax.dynamic_update_slice(cache, jnp.sin(new) * new.sum(), (8, 0)), jax.nn.softmax(new)

    def scaled(v: Any) -> Any:
        return jnp.sin(v) * v.sum()

    random, row = np.random.default_rng(0), Row()
    cases = {
        "moments": (moments, [(4096, 4096)] * 3, (0, 1)),
        "kept": (kept, [(65536, 1024), (32768, 1024)], (0,)),
        "scaled": (scaled, [(4096, 4096)], (0,)),
    }
    for name, (function, shapes, given_away) in cases.items():
        arrays = [random.random(s, np.float32) for s in shapes]
        want, results = jax.jit(lambda *a, f=function: f(*a))(*arrays), list[Any]()
        with hlo_opt.jax.fusing(min_saving_us=0, wait=True, backend="cuda") as report:
            once = jax.jit(lambda *a, f=function: f(*a), donate_argnums=given_away)
            for _ in range(3):
                given = [jnp.asarray(a) for a in arrays]
                results.append(once(*given))
            assert all(given[k].is_deleted() for k in given_away), name
        worst = max(apart(found, want) for found in results)
        assert worst < FAR, (name, worst)
        row[name] = {"replaced": len(report.replaced), "lines": str(report).splitlines()[:LINES]}
        assert any(line.startswith("JAX001 jit__lambda") for line in row[name]["lines"]), row[name]
    return row


def cached() -> Row:
    """An executable from JAX's persistent cache finds its kernels."""
    import jax
    import numpy as np

    import hlo_opt.jax

    given = jax.numpy.asarray(np.random.default_rng(0).standard_normal((4096, 4096), np.float32), "float32")
    folder = tempfile.mkdtemp()
    options = {
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
        "jax_raise_persistent_cache_errors": True,
    }
    before = {name: getattr(jax.config, name) for name in options}
    try:
        for name, value in options.items():
            jax.config.update(name, value)
        results = []
        for _ in range(2):
            jax.clear_caches()
            with hlo_opt.jax.fusing(min_saving_us=0, wait=True, backend="cuda") as report:
                results.append(np.asarray(jax.jit(lambda v: jax.nn.softmax(jax.numpy.sin(v)))(given)))
        assert np.array_equal(results[0], results[1])
        return {"files": len(list(Path(folder).iterdir())), "lines": str(report).splitlines()[:LINES]}
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        shutil.rmtree(folder, ignore_errors=True)


def steps() -> dict[str, Callable[[], Row]]:
    """All steps by name, in order."""
    first = (plugin, tools, stages, kernels, handler, call, cost)
    last = (threads, donated, cached)
    found: dict[str, Callable[[], Row]] = {step.__name__: step for step in first}
    for name in PROGRAMS:
        found[f"program {name}"] = lambda name=name: program(name)  # type: ignore[misc]
    return found | {step.__name__: step for step in last}


PROGRAMS = ("rows", "sums", "softmax", "layer_norm", "adam", "scan", "train", "gradient", "softmax_bf16")


def work(names: list[str], out: Path) -> int:
    """Runs steps in this process; a line of `out` for each that begins, and one for each that ends."""
    all_steps = steps()
    with out.open("a", encoding="utf-8") as file:
        for name in names:
            print(json.dumps({"begins": name}), file=file, flush=True)
            start = time.perf_counter()
            try:
                row = all_steps[name]()
            except BaseException:  # the next step may hold
                row = {"why": traceback.format_exc()}
            row = {"case": name, "holds": "why" not in row, "step_s": round(time.perf_counter() - start, 2), **row}
            print(json.dumps(row, default=str), file=file, flush=True)
    return 0


def main(given: list[str] | None = None) -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after that (default: %(default)s)")
    parser.add_argument("--only", action="append", metavar="STEP", help="only these steps")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    todo = arguments.only or list(steps())
    if arguments.work:
        return work(todo, arguments.work)
    rows: list[Row] = []
    end = time.monotonic() + arguments.seconds
    with tempfile.TemporaryDirectory() as folder:
        log, errors = Path(folder) / "rows", Path(folder) / "errors"
        while todo and time.monotonic() < end:
            log.write_text("", encoding="utf-8")
            named = [word for name in todo for word in ("--only", name)]
            command = [sys.executable, "-m", "scripts.gpu_hook", "--work", str(log), *named]
            with errors.open("w", encoding="utf-8") as file:
                process = subprocess.Popen(command, stderr=file, stdout=file)
                is_late = False
                try:
                    process.wait(max(1.0, end - time.monotonic()))
                except subprocess.TimeoutExpired:
                    is_late = True
                process.kill()
                process.wait()
            found = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
            ended = [row for row in found if "case" in row]
            begun = [row["begins"] for row in found if "begins" in row]
            last = errors.read_text(encoding="utf-8", errors="replace")[-4000:]
            if not is_late and (len(begun) > len(ended) or not begun):
                dead = begun[-1] if begun else todo[0]
                ended.append(
                    {"case": dead, "holds": False, "why": f"exit status {process.returncode}\n{last}", "died": True}
                )
            if ended:
                ended[-1]["stderr"] = last
            rows += ended
            todo = [name for name in todo if name not in {row["case"] for row in ended}]
            if arguments.out is not None:
                arguments.out.write_text(json.dumps({"hook_steps": rows}, indent=1) + "\n", encoding="utf-8")
    if any(row["case"] == "plugin" and "Unknown backend" in row.get("why", "") for row in rows):
        print(rows[0]["why"].strip().splitlines()[-1])
        return NO_GPU
    for row in rows:
        show(row)
    bad = [row["case"] for row in rows if not row["holds"]]
    late = f"; not ended in time: {', '.join(todo)}" if todo else ""
    print(f"hook: {len(rows) - len(bad)} of {len(rows)} steps hold{late}")
    return 1 if bad or todo else 0


def show(row: Row) -> None:
    """A line of a row; of a failed one, the end of its traceback too."""
    times = f"  ours {row['ours_us']:.0f} us, XLA {row['xla_us']:.0f} us" if "ours_us" in row else ""
    times += (
        f"  in a batch {row['ours_batch_us']:.0f} and {row['xla_batch_us']:.0f} us" if "ours_batch_us" in row else ""
    )
    if "call_us" in row:
        each = ", ".join(f"{us:.2f} of {count}" for count, us in row["call_us"].items())
        times += f"  us that a call takes beside its kernel: {each}"
    more = f"  {row['replaced']} regions" if "replaced" in row else ""
    print(f"{row['case']:24} {'holds' if row['holds'] else 'FAILS'}{times}{more}")
    if not row["holds"]:
        print("\n".join(f"    {line}" for line in str(row["why"]).strip().splitlines()[-6:]))


if __name__ == "__main__":
    sys.exit(main())
