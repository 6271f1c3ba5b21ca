"""Memory-bound programs on a GPU: our fused kernels against jax.jit of the same program, and against a plain copy: python -m scripts.bench.gpu [--megabytes N] [--out FILE.json]

Each case is a JAX function. Its HLO goes through hlo-opt (`--preset default`) and runs with CuPy; the same function runs as jax.jit compiles it. Arrays stay on
the GPU. A round times each form once with the cache emptied before (ours by events, from a filled queue) and then as a batch of calls, by the wall clock, which both forms are
compared by. Without JAX there is nothing to make programs of, and only the copy is measured.

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
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hlo_opt
from hlo_opt.analysis.traffic import module_bytes
from hlo_opt.diag import HloOptError
from hlo_opt.runtime.bench import Timing
from hlo_opt.runtime.bench_clock import Clock, clock_of

BATCH = 10
ROUNDS = 7


@dataclass(frozen=True)
class Row:
    """A case. Times in microseconds; `jax` is None where JAX could not run it; `fault` is why a case has no figures."""

    case: str
    launches: int = 0
    bytes: float = 0.0
    cold: Timing | None = None
    ours: Timing | None = None
    jax: Timing | None = None
    share_of_copy: float = 0.0
    agrees: bool = False
    fault: str = ""

    @property
    def ratio(self) -> float | None:
        return None if self.ours is None or self.jax is None else self.ours.median / self.jax.median

    def __str__(self) -> str:
        if self.fault or self.cold is None or self.ours is None:
            return f"{self.case:16s} {self.fault}"
        speed = self.bytes / self.cold.median / 1e3
        other = "       -      -" if self.jax is None else f"{self.jax.median:8.0f} {self.ratio:6.2f}"
        verdict = "" if self.agrees else "  differs from jax" if self.jax is not None else ""
        return f"{self.case:16s} {self.launches:4d} {speed:8.0f} {100 * self.share_of_copy:6.0f} % {self.ours.median:8.0f} {other}{verdict}"


def cases(megabytes: int) -> dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], str]]:
    """Functions, the shapes of their arguments and the element type, by name; the largest array of each has about so many bytes."""
    import jax
    import jax.numpy as jnp

    count = megabytes * 2**20 // 4
    rows = count // 1024
    side = int(count**0.5) // 64 * 64

    def chain(x: Any, y: Any) -> Any:
        return jnp.tanh(x * y + 1.0) * x

    def softmax(x: Any) -> Any:
        return jax.nn.softmax(x, axis=-1)

    def layer_norm(x: Any, scale: Any, offset: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        variance = jnp.square(x - mean).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + offset

    def adam(p: Any, g: Any, m: Any, v: Any) -> Any:
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        return p - 1e-3 * m / (jnp.sqrt(jnp.abs(v)) + 1e-8), m, v

    return {
        "elementwise": (chain, ((count,), (count,)), "float32"),
        "elementwise_bf16": (chain, ((2 * count,), (2 * count,)), "bfloat16"),
        "softmax": (softmax, ((rows, 1024),), "float32"),
        "softmax_bf16": (softmax, ((2 * rows, 1024),), "bfloat16"),
        "layer_norm": (layer_norm, ((rows, 1024), (1024,), (1024,)), "float32"),
        "transpose": (lambda x: x.T * 2.0, ((side, side),), "float32"),
        "row_sum": (lambda x: x.sum(1), ((rows, 1024),), "float32"),
        "column_sum": (lambda x: x.sum(0), ((rows, 1024),), "float32"),
        "total": (lambda x: (x * x).sum(), ((count,),), "float32"),
        "adam": (adam, ((count,),) * 4, "float32"),
    }


def batched(work: Callable[[], Any], wait: Callable[[Any], None]) -> float:
    """Microseconds per call, of a batch."""
    start = time.perf_counter()
    for _ in range(BATCH):
        last = work()
    wait(last)
    return (time.perf_counter() - start) / BATCH * 1e6


def measure(case: str, function: Any, shapes: Any, dtype: str, clock: Clock, bandwidth: float, rounds: int) -> Row:
    """One case; what fails is in the row."""
    import jax

    arguments = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    try:
        lowered: Any = jax.jit(function).lower(*arguments).compiler_ir(dialect="hlo")
        text = lowered.as_hlo_text()
        fused, _ = hlo_opt.fuse(hlo_opt.parse(text, filename=f"{case}.hlo"))
        executable = hlo_opt.compile(fused, "cupy")
        random = np.random.default_rng(0)
        arrays = [random.standard_normal(shape, np.float32).astype(jax.numpy.dtype(dtype)) for shape in shapes]
        ours = executable.resident(arrays)
        given = [jax.device_put(a) for a in arrays]
        compiled = jax.jit(function)
        theirs = jax.tree_util.tree_leaves(compiled(*given))
        agrees = all(
            np.allclose(
                np.asarray(a, np.float32),
                np.asarray(b, np.float32),
                rtol=2e-2 if dtype == "bfloat16" else 1e-3,
                atol=1e-2,
            )
            for a, b in zip(executable(*arrays), theirs, strict=True)
        )
        import cupy

        launches = int(executable.report()["launches"])
        cold, mine, other = [], [], []
        for _ in range(rounds):
            clock.empty_caches()
            cold.append(clock.timed(ours, launches))
            mine.append(batched(ours, lambda _: cupy.cuda.Device().synchronize()))
            other.append(batched(lambda: compiled(*given), jax.block_until_ready))
    except HloOptError as error:
        return Row(case, fault=str(error).splitlines()[0])
    except Exception as error:  # whatever JAX or CuPy say: the other cases still run
        return Row(case, fault=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200])
    count = module_bytes(fused)
    cold_time = Timing.of(cold)
    share = count / (cold_time.median * 1e-6) / bandwidth
    return Row(case, launches, count, cold_time, Timing.of(mine), Timing.of(other), share, agrees)


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


def main() -> int:
    """The command; 1 when a case fails, differs, or is slower than JAX by more than 5 %."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--megabytes", type=int, default=256, help="of the largest array of a case (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=240.0, help="start no case after that (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    arguments = parser.parse_args()
    try:
        clock = clock_of("cupy")
    except HloOptError as error:
        print(f"no benchmark: {error}")
        return 2
    start = time.monotonic()
    bandwidth = clock.copy_bandwidth()
    print(f"{clock.device}: a copy reaches {bandwidth / 1e9:.0f} GB/s; {versions()}")
    rows: list[Row] = []
    try:
        todo = cases(arguments.megabytes)
    except ImportError:
        print("JAX is not installed: there are no programs to compare")
        todo = {}
    print(f"{'case':16s} launches GB/s  of copy     ours      jax  ratio")
    for name, (function, shapes, dtype) in todo.items():
        if time.monotonic() - start > arguments.seconds:
            rows.append(Row(name, fault="not run: out of time"))
        else:
            rows.append(measure(name, function, shapes, dtype, clock, bandwidth, arguments.rounds))
        print(rows[-1], flush=True)
    if arguments.out is not None:
        found = {
            "device": clock.device,
            "versions": versions(),
            "copy_gb_per_s": bandwidth / 1e9,
            "cold": clock.cold,
            "batch": BATCH,
            "rows": [{**asdict(row), "ratio": row.ratio} for row in rows],
        }
        arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    bad = [r.case for r in rows if r.fault or not r.agrees or (r.ratio or 0) > 1.05 or r.share_of_copy < 0.9]
    print(
        f"{len(rows) - len(bad)} of {len(rows)} cases at 90 % of the copy and no slower than JAX"
        + (f"; not: {', '.join(bad)}" if bad else "")
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
