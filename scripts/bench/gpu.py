"""Memory-bound programs on a GPU: our fused kernels against jax.jit of the same program, and against a plain copy:
python -m scripts.bench.gpu [--megabytes N] [--out FILE.json]

Each case is a JAX function. Its HLO goes through hlo-opt (`--preset default`) and runs with CuPy; the same function
runs as jax.jit compiles it. Arrays stay on the GPU. A round times each form once with the cache emptied before (ours by
events, from a filled queue) and then as a batch of calls, by the wall clock, which both forms are compared by. Without
JAX, or where it lowers to something that cannot be read, the HLO comes from `gpu_programs/`, which `--write` makes
anew.

FILE.json is complete after each case. A fault that leaves the GPU's context broken costs one case: the program starts
itself again for the others.

device GB/s  bytes that the fused kernels read and write, by the time of one cold run
of copy      that, as a part of what a copy of 256 MB reaches
ours, jax    microseconds per call in a batch, median; the quartiles are in the JSON
ratio        ours divided by jax: below 1 we are faster
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hlo_opt
from hlo_opt.analysis.memory.traffic import module_bytes
from hlo_opt.diag import HloOptError
from hlo_opt.runtime.measure.bench import Clock, Timing, clock_of
from hlo_opt.text import print_module

BATCH = 10
ROUNDS = 7
MEGABYTES = 256
PROGRAMS = Path(__file__).resolve().parent / "gpu_programs"
BLOCK = 4_194_301
"""Numbers that are drawn; larger arrays repeat them. No power of two divides them, so that equal ones do not lie at
equal places of rows."""


@dataclass(frozen=True)
class Row:
    """A case. Times in microseconds; `jax` is None where JAX could not run it; `program` says where its HLO comes from,
    `fault` why a case has no figures, `is_broken` whether the GPU cannot be used any more by this process."""

    case: str
    launches: int = 0
    bytes: float = 0.0
    cold: Timing | None = None
    ours: Timing | None = None
    jax: Timing | None = None
    share_of_copy: float = 0.0
    agrees: bool = False
    program: str = ""
    fault: str = ""
    is_broken: bool = False

    @property
    def ratio(self) -> float | None:
        return None if self.ours is None or self.jax is None else self.ours.median / self.jax.median

    def __str__(self) -> str:
        if self.fault or self.cold is None or self.ours is None:
            return f"{self.case:16s} {self.fault}"
        speed = self.bytes / self.cold.median / 1e3
        other = "       -      -" if self.jax is None else f"{self.jax.median:8.0f} {self.ratio:6.2f}"
        verdict = "" if self.agrees else "  differs from jax" if self.jax is not None else ""
        return (
            f"{self.case:16s} {self.launches:4d} {speed:8.0f} {100 * self.share_of_copy:6.0f} % "
            f"{self.ours.median:8.0f} {other}{verdict}"
        )


def _chain(x: Any, y: Any) -> Any:
    import jax.numpy as jnp

    return jnp.tanh(x * y + 1.0) * x


def _softmax(x: Any) -> Any:
    import jax

    return jax.nn.softmax(x, axis=-1)


def _layer_norm(x: Any, scale: Any, offset: Any) -> Any:
    import jax

    mean = x.mean(-1, keepdims=True)
    variance = jax.numpy.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + offset


def _adam(p: Any, g: Any, m: Any, v: Any) -> Any:
    import jax.numpy as jnp

    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - 1e-3 * m / (jnp.sqrt(jnp.abs(v)) + 1e-8), m, v


def cases(megabytes: int) -> dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], str]]:
    """Functions, the shapes of their arguments and the element type, by name; the largest array of each has about so
    many bytes."""
    count = megabytes * 2**20 // 4
    rows = count // 1024
    side = int(count**0.5) // 64 * 64
    return {
        "elementwise": (_chain, ((count,), (count,)), "float32"),
        "elementwise_bf16": (_chain, ((2 * count,), (2 * count,)), "bfloat16"),
        "softmax": (_softmax, ((rows, 1024),), "float32"),
        "softmax_bf16": (_softmax, ((2 * rows, 1024),), "bfloat16"),
        "layer_norm": (_layer_norm, ((rows, 1024), (1024,), (1024,)), "float32"),
        "transpose": (lambda x: x.T * 2.0, ((side, side),), "float32"),
        "row_sum": (lambda x: x.sum(1), ((rows, 1024),), "float32"),
        "column_sum": (lambda x: x.sum(0), ((rows, 1024),), "float32"),
        "total": (lambda x: (x * x).sum(), ((count,),), "float32"),
        "adam": (_adam, ((count,),) * 4, "float32"),
    }


def batched(work: Callable[[], Any], wait: Callable[[Any], None]) -> float:
    """Microseconds per call, of a batch."""
    start = time.perf_counter()
    for _ in range(BATCH):
        last = work()
    wait(last)
    return (time.perf_counter() - start) / BATCH * 1e6


def program_of(case: str, function: Any, shapes: Any, dtype: str, is_saved: bool) -> tuple[hlo_opt.ir.Module, str]:
    """The module of a case, and where it comes from: JAX, or else the saved text where it has these sizes."""
    try:
        import jax

        arguments = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
        text = str(jax.jit(function).lower(*arguments).as_text("hlo"))
        return hlo_opt.parse(text, filename=f"{case}.hlo"), f"jax {jax.__version__}"
    except Exception:  # JAX is not there, has no such text any more, or writes what we cannot read
        if not is_saved:
            raise
    text = (PROGRAMS / f"{case}.hlo").read_text(encoding="utf-8")
    return hlo_opt.parse(text, filename=f"{case}.hlo"), "saved"


def inputs_of(shapes: Any, dtype: Any) -> list[Any]:
    """Standard normal numbers."""
    random = np.random.default_rng(0)
    return [
        np.resize(random.standard_normal(min(BLOCK, max(1, int(np.prod(shape)))), np.float32).astype(dtype), shape)
        for shape in shapes
    ]


def agree(ours: Any, theirs: Any, dtype: str) -> bool:
    """Whether outputs are the same up to roundings of other orders."""
    rtol = 2e-2 if dtype == "bfloat16" else 1e-3
    for one, other in zip(ours, theirs, strict=True):
        got, want = np.asarray(one, np.float32).reshape(-1), np.asarray(other, np.float32).reshape(-1)
        if got.shape != want.shape or not bool((np.abs(got - want) <= 1e-2 + rtol * np.abs(want)).all()):
            return False
    return True


def measure(
    case: str,
    function: Any,
    shapes: Any,
    dtype: str,
    clock: Clock,
    bandwidth: float,
    rounds: int,
    is_saved: bool = False,
) -> Row:
    """One case; what fails is in the row. `is_saved`: there is a saved program of these sizes."""
    import ml_dtypes

    program = ""
    try:
        import cupy

        module, program = program_of(case, function, shapes, dtype, is_saved)
        fused, _ = hlo_opt.fuse(module)
        executable = hlo_opt.compile(fused, "cupy")
        arrays = inputs_of(shapes, np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype))
        ours = executable.resident(arrays)
        compiled, given, theirs = _with_jax(function, arrays)
        agrees = theirs is not None and agree(executable(*arrays), theirs, dtype)
        launches = int(executable.report()["launches"])
        del arrays, theirs
        cold: list[float] = []
        mine: list[float] = []
        other: list[float] = []
        for number in range(rounds + 1):
            clock.empty_caches()
            times = [clock.timed(ours, launches), batched(ours, lambda _: cupy.cuda.Device().synchronize())]
            if compiled is not None:
                times.append(batched(lambda: compiled(*given), _wait))
            if number or not rounds:  # the first round warms up
                for found, time_of_it in zip((cold, mine, other), times, strict=False):
                    found.append(time_of_it)
    except HloOptError as error:
        text = str(error).splitlines()[0]
        return Row(case, program=program, fault=text, is_broken=is_broken(text))
    except Exception as error:  # whatever JAX or CuPy say: the other cases still run
        text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]
        return Row(case, program=program, fault=text, is_broken=is_broken(text))
    count = module_bytes(fused)
    cold_time = Timing.of(cold)
    share = count / (cold_time.median * 1e-6) / bandwidth
    jax_time = Timing.of(other) if other else None
    return Row(case, launches, count, cold_time, Timing.of(mine), jax_time, share, agrees, program)


def _with_jax(function: Any, arrays: Any) -> tuple[Any, Any, Any]:
    """The compiled function, its arguments on the GPU, and its outputs; three times None without JAX."""
    try:
        import jax
    except ImportError:
        return None, None, None
    given = [jax.device_put(a) for a in arrays]
    compiled = jax.jit(function)
    return compiled, given, jax.tree_util.tree_leaves(compiled(*given))


def _wait(value: Any) -> None:
    import jax

    jax.block_until_ready(value)


BROKEN = ("illegal", "LaunchFailure", "misaligned", "HardwareStackError", "InvalidPc", "InvalidAddressSpace", "Assert")


def is_broken(text: str) -> bool:
    """Whether an error of CUDA stays: all that follows in the process fails with it (cudaError_t in the CUDA Runtime
    API, "leaves the process in an inconsistent state")."""
    return "cuda" in text.lower() and any(word.lower() in text.lower() for word in BROKEN)


def versions() -> dict[str, str]:
    """What ran."""
    import cupy

    found = {"cupy": cupy.__version__, "hlo_opt": hlo_opt.__version__}
    found["nvrtc"] = ".".join(map(str, cupy.cuda.nvrtc.getVersion()))
    found["cuda_driver"] = str(cupy.cuda.runtime.driverGetVersion())
    try:
        import jax

        found["jax"] = jax.__version__
    except ImportError:
        found["jax"] = "not installed"
    return found


def write(found: Mapping[str, tuple[Callable[..., Any], Any, str]]) -> None:
    """The HLO of the cases, as JAX lowers them here."""
    import jax

    PROGRAMS.mkdir(exist_ok=True)
    for name, (function, shapes, dtype) in found.items():
        arguments = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
        text = print_module(hlo_opt.parse(jax.jit(function).lower(*arguments).as_text("hlo")))
        (PROGRAMS / f"{name}.hlo").write_text(text, encoding="utf-8")


def is_bad(row: Mapping[str, Any]) -> bool:
    """Whether a case, as it is in the file, failed, differs, is slower than JAX by more than 5 %, or does not reach 90
    % of the copy."""
    differs = row["jax"] is not None and not row["agrees"]
    return bool(row["fault"] or differs or (row["ratio"] or 0) > 1.05 or row["share_of_copy"] < 0.9)


def main() -> int:
    """The command; 1 when a case fails, differs, is slower than JAX by more than 5 %, or does not reach 90 % of the
    copy."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--megabytes", type=int, default=MEGABYTES, help="of the largest array of a case (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=240.0, help="start no case after that (default: %(default)s)")
    parser.add_argument("--only", action="append", metavar="CASE")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    parser.add_argument("--go-on", action="store_true", help="leave out the cases that FILE.json has")
    parser.add_argument("--write", action="store_true", help=f"write {PROGRAMS.name}/ and do nothing else")
    arguments = parser.parse_args()
    start = time.monotonic()
    todo = cases(arguments.megabytes)
    if arguments.write:
        write(todo)
        return 0
    try:
        clock = clock_of("cupy")
    except HloOptError as error:
        print(f"no benchmark: {error}")
        return 2
    rows: list[dict[str, Any]] = []
    if arguments.go_on and arguments.out is not None and arguments.out.exists():
        rows = json.loads(arguments.out.read_text(encoding="utf-8"))["rows"]
    bandwidth = clock.copy_bandwidth()
    ran = versions()
    print(f"{clock.device}: a copy reaches {bandwidth / 1e9:.0f} GB/s; {ran}")
    print(f"{'case':16s} launches GB/s  of copy     ours      jax  ratio")
    for name, (function, shapes, dtype) in todo.items():
        if any(row["case"] == name for row in rows) or (arguments.only and name not in arguments.only):
            continue
        if time.monotonic() - start > arguments.seconds:
            row = Row(name, fault="not run: out of time")
        else:
            is_saved = arguments.megabytes == MEGABYTES
            row = measure(name, function, shapes, dtype, clock, bandwidth, arguments.rounds, is_saved)
        print(row, flush=True)
        rows.append({**asdict(row), "ratio": row.ratio})
        if arguments.out is not None:
            found = {
                "device": clock.device,
                "versions": ran,
                "copy_gb_per_s": bandwidth / 1e9,
                "cold": clock.cold,
                "batch": BATCH,
                "rows": rows,
            }
            arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            if row.is_broken:
                left = max(1.0, arguments.seconds - (time.monotonic() - start))
                again = [*sys.argv[1:], "--go-on", "--seconds", f"{left:.0f}"]
                os.execv(sys.executable, [sys.executable, "-m", "scripts.bench.gpu", *again])
    bad = [row["case"] for row in rows if is_bad(row)]
    print(
        f"{len(rows) - len(bad)} of {len(rows)} cases at 90 % of the copy and no slower than JAX"
        + (f"; not: {', '.join(bad)}" if bad else "")
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
