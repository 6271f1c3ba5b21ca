"""Convolutions by cuDNN on a GPU beside the other way, XLA's and their price: python -m scripts.bench.convolution_times
[--seconds N] [--tried N] [--out FILE.json] [NAME...]

Each convolution is a module of its own, on arrays that stay on the GPU.

us        microseconds of one CUDA graph with what is moved before and after, by events, warm: the median
price     what the plans say it would take
old       microseconds of the way without cuDNN: windows laid out for a matrix product
ours      microseconds of a call in a batch of calls, by the wall clock
XLA       the same of XLA's, of a module of 8 of them, for each
apart     the largest difference from the old way, by the largest element; `evaluator` is that from the evaluator,
          for small ones
does      which of cuDNN's convolutions it is, and what is moved: x the first operand, w the second one, r the result
tried     milliseconds by the engines that were tried
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np

import hlo_opt
from hlo_opt.analysis.targets import target as find
from hlo_opt.evaluate import evaluate
from hlo_opt.ops.calls.collectives import device_call
from hlo_opt.ops.calls.epilogues import cudnn_ways
from hlo_opt.ops.shapes import flops_of
from hlo_opt.plans.calls import price_of_call
from hlo_opt.runtime.cupy import cudnn
from hlo_opt.runtime.cupy.cudnn import Cudnn
from hlo_opt.runtime.cupy.device import CupyDevice
from hlo_opt.runtime.measure.bench import clock_of
from hlo_opt.runtime.schedule import build_schedule
from scripts.bench.kernel_times import target_of_device

ROUNDS, CALLS = 7, 20
COPIES = 8
"""Convolutions in one module of XLA's: a call of one alone takes as long as it takes the host to start it."""
SMALL = 3e8
"""Operations of a convolution that the evaluator computes, too."""
HEADER = f"{'convolution':34s} {'us':>8s} {'price':>8s} {'old':>9s} {'ours':>8s} {'XLA':>8s} {'apart':>8s}  does"


@dataclass(frozen=True)
class Case:
    """A convolution of `batch` images by a window, (size, stride, low and high padding, dilation of the image, of the
    kernel) per dimension. `labels` as in HLO; the sizes follow from them. `after` names what follows it, of bias, side
    and relu: ours is then a custom call of XLA's, and XLA gets the operations."""

    name: str
    kind: str
    batch: int
    spatial: tuple[int, ...]
    features: int
    outputs: int
    window: tuple[tuple[int, int, int, int, int, int], ...]
    labels: str = "b01f_01io->b01f"
    groups: tuple[int, int] = (1, 1)
    more: str = ""
    after: str = ""

    @property
    def text(self) -> str:
        """A module of it."""
        return self.of(1)

    def _followed(self, n: int, result: str, call: str, *, is_custom: bool) -> list[str]:
        """The lines of a convolution `call` with what follows it."""
        bias = f"{self.kind}[{self.outputs}]{{0}}"
        count = 2 + ("bias" in self.after) + ("side" in self.after)
        own = [f"d{n} = {bias} parameter({count * n + 2})"]
        if "side" in self.after:
            own.append(f"e{n} = {result} parameter({count * n + 3})")
        if is_custom:
            mode = "kRelu" if "relu" in self.after else "kNone"
            side = ',"side_input_scale":1' * ("side" in self.after)
            config = f'{{"cudnn_conv_backend_config":{{"activation_mode":"{mode}"{side}}}}}'
            operands = f"a{n}, b{n}, d{n}" + f", e{n}" * ("side" in self.after)
            how = call[call.index("), ") + 3 :]
            return [
                *own,
                f"t{n} = ({result}, u8[0]{{0}}) custom-call({operands}), {how}, "
                f'custom_call_target="__cudnn$convBiasActivationForward", backend_config={config}',
                f"c{n} = {result} get-tuple-element(t{n}), index=0",
            ]
        steps = [f"{result} {call}"]
        if "side" in self.after:
            steps.append(f"{result} add(r{n}x0, e{n})")
        own.append(f"f{n} = {result} broadcast(d{n}), dimensions={{{len(self.spatial) + 1}}}")
        steps.append(f"{result} add(r{n}x{len(steps) - 1}, f{n})")
        if "relu" in self.after:
            own += [f"z{n} = {self.kind}[] constant(0)", f"y{n} = {result} broadcast(z{n}), dimensions={{}}"]
            steps.append(f"{result} maximum(r{n}x{len(steps) - 1}, y{n})")
        names = [f"r{n}x{k}" for k in range(len(steps) - 1)] + [f"c{n}"]
        return [*own, *(f"{name} = {step}" for name, step in zip(names, steps, strict=True))]

    def of(self, copies: int) -> str:
        """A module of so many, each of parameters of its own."""
        lhs, rest = self.labels.split("_")
        rhs, result = rest.split("->")
        digits = [str(k) for k in range(len(self.spatial))]
        out = [
            ((n - 1) * base + 1 + low + high - (size - 1) * dilation - 1) // stride + 1
            for n, (size, stride, low, high, base, dilation) in zip(self.spatial, self.window, strict=True)
        ]
        of: list[dict[str, int]] = [
            {"b": self.batch, "f": self.features, **dict(zip(digits, self.spatial, strict=True))},
            {"i": self.features // self.groups[0], "o": self.outputs},
            {"b": self.batch // self.groups[1], "f": self.outputs, **dict(zip(digits, out, strict=True))},
        ]
        of[1].update(zip(digits, (w[0] for w in self.window), strict=True))
        shapes = [
            f"{self.kind}[{','.join(str(sizes[c]) for c in letters)}]"
            f"{{{','.join(map(str, reversed(range(len(letters)))))}}}"
            for letters, sizes in zip((lhs, rhs, result), of, strict=True)
        ]

        def each(number: int) -> str:
            return "x".join(str(w[number]) for w in self.window)

        pads = "x".join(f"{w[2]}_{w[3]}" for w in self.window)
        how = f"size={each(0)} stride={each(1)} pad={pads} lhs_dilate={each(4)} rhs_dilate={each(5)}"
        lines = []
        count = 2 + ("bias" in self.after) + ("side" in self.after)
        for n in range(copies):
            call = (
                f"convolution(a{n}, b{n}), window={{{how}}}, dim_labels={self.labels}, "
                f"feature_group_count={self.groups[0]}, batch_group_count={self.groups[1]}{self.more}"
            )
            lines += [f"a{n} = {shapes[0]} parameter({count * n})", f"b{n} = {shapes[1]} parameter({count * n + 1})"]
            if self.after:
                lines += self._followed(n, shapes[2], call, is_custom=copies == 1)
            else:
                lines.append(f"c{n} = {shapes[2]} {call}")
        if copies > 1:
            results = (", ".join(part) for part in ([shapes[2]] * copies, [f"c{n}" for n in range(copies)]))
            lines.append("all = ({}) tuple({})".format(*results))
        body = "\n  ".join([*lines[:-1], f"ROOT {lines[-1]}"])
        return f"HloModule convolution\n\nENTRY main {{\n  {body}\n}}\n"


def square(size: int, stride: int = 1, low: int = 0, high: int | None = None, rank: int = 2) -> Any:
    """The same window in each dimension."""
    return ((size, stride, low, low if high is None else high, 1, 1),) * rank


def cases() -> list[Case]:
    """The most telling ones first."""
    first, nchw, own = "b01f_01io->b01f", "bf01_oi01->bf01", "b01f_o01i->b01f"
    gradient = "f01b_i01o->01bf"
    stages = ((56, 64), (28, 128), (14, 256), (7, 512))
    found = [Case(f"3x3 {n} {f}", "f32", 32, (n, n), f, f, square(3, low=1)) for n, f in stages]
    found += [Case("stem 7x7/2 224 3-64", "f32", 32, (224, 224), 3, 64, square(7, 2, 3))]
    found += [Case(f"3x3/2 {n} {f}", "f32", 32, (n, n), f, 2 * f, square(3, 2, 0, 1)) for n, f in stages[:3]]
    found += [Case(f"1x1/2 {n} {f}", "f32", 32, (n, n), f, 2 * f, square(1, 2)) for n, f in stages[:2]]
    found += [
        Case("1x1 56 64-256", "f32", 32, (56, 56), 64, 256, square(1)),
        Case("1x1 14 1024-256", "f32", 32, (14, 14), 1024, 256, square(1)),
        Case("bf16 3x3 56 64", "bf16", 32, (56, 56), 64, 64, square(3, low=1)),
        Case("bf16 3x3 14 256", "bf16", 32, (14, 14), 256, 256, square(3, low=1)),
        Case("f16 3x3 64 320", "f16", 2, (64, 64), 320, 320, square(3, low=1)),
        Case("f16 3x3 512 128", "f16", 1, (512, 512), 128, 128, square(3, low=1)),
        Case("f32 highest 3x3 14 256", "f32", 32, (14, 14), 256, 256, square(3, low=1),
             more=", operand_precision={highest,highest}"),
        Case("NCHW 3x3 28 128", "f32", 32, (28, 28), 128, 128, square(3, low=1), nchw),
        Case("NCHW bf16 3x3 28 128", "bf16", 32, (28, 28), 128, 128, square(3, low=1), nchw),
        Case("to filter 3x3 14 256", "f32", 256, (14, 14), 32, 256, ((14, 1, 1, 1, 1, 1),) * 2, gradient),
        Case("to filter 1x1 56 64-256", "f32", 64, (56, 56), 32, 256, ((56, 1, 0, 0, 1, 1),) * 2, gradient),
        Case("to filter 3x3/2 28 128", "f32", 128, (28, 28), 32, 256, ((14, 1, 0, 1, 1, 2),) * 2, gradient),
        Case("bf16 to filter 3x3 28 128", "bf16", 128, (28, 28), 32, 128, ((28, 1, 1, 1, 1, 1),) * 2, gradient),
        Case("to data 3x3/2 14 256", "f32", 32, (14, 14), 256, 128, ((3, 1, 2, 1, 2, 1),) * 2),
        Case("to data 3x3 28 128", "f32", 32, (28, 28), 128, 128, square(3, low=1), "b01f_01oi->b01f"),
        Case("transposed 4x4/2 32 128", "bf16", 32, (32, 32), 128, 64, ((4, 1, 2, 2, 2, 1),) * 2),
        Case("depthwise 3x3 56 144", "f32", 32, (56, 56), 144, 144, square(3, low=1), groups=(144, 1)),
        Case("bf16 depthwise 7x7 56 96", "bf16", 32, (56, 56), 96, 96, square(7, low=3), groups=(96, 1)),
        Case("depthwise to filter", "f32", 96, (28, 28), 32, 96, ((28, 1, 1, 1, 1, 1),) * 2, gradient, (1, 96)),
        Case("32 groups 3x3 28 256", "f32", 32, (28, 28), 256, 256, square(3, low=1), groups=(32, 1)),
        Case("1-D 5 1024 256", "f32", 8, (1024,), 256, 256, square(5, low=2, rank=1), "b0f_0io->b0f"),
        Case("1-D causal dilated", "bf16", 8, (1024,), 256, 256, ((3, 1, 8, 0, 1, 4),), "b0f_0io->b0f"),
        Case("3-D 3x3x3 16 64", "f32", 4, (16, 16, 16), 64, 64, square(3, low=1, rank=3), "b012f_012io->b012f"),
        Case("bf16 3-D 3x3x3 16 64", "bf16", 4, (16, 16, 16), 64, 64, square(3, low=1, rank=3), "b012f_012io->b012f"),
        Case("dilated 3x3 28 128", "f32", 8, (28, 28), 128, 128, ((3, 1, 2, 2, 1, 2),) * 2, first),
        Case("padded low 3x3 12 16", "f32", 2, (12, 12), 16, 16, square(3, low=2, high=0)),
        Case("cut 3x3 12 16", "f32", 2, (12, 12), 16, 16, square(3, low=-1, high=1)),
        Case("f64 3x3 12 16", "f64", 2, (12, 12), 16, 16, square(3, low=1)),
        Case("odd features 3x3 12 5-7", "bf16", 2, (12, 12), 5, 7, square(3, low=1)),
        Case("with bias, relu 3x3 28 128", "f32", 32, (28, 28), 128, 128, square(3, low=1), own, after="bias relu"),
        Case("with bias, side 1x1 56 64-256", "f32", 32, (56, 56), 64, 256, square(1), own, after="bias side"),
        Case("f16 with bias 3x3 64 320", "f16", 2, (64, 64), 320, 320, square(3, low=1), own, after="bias"),
        Case("f16 with bias, side 3x3 64 320", "f16", 2, (64, 64), 320, 320, square(3, low=1), own, after="bias side"),
        Case("bf16 with bias, relu 3x3 14 256", "bf16", 32, (14, 14), 256, 256, square(3, low=1), own,
             after="bias relu"),
        Case("stem to filter 7x7/2 224 3-64", "f32", 3, (224, 224), 32, 64, ((112, 1, 3, 2, 1, 2),) * 2, gradient),
        Case("bf16 stem 7x7/2 224 3-64", "bf16", 32, (224, 224), 3, 64, square(7, 2, 3)),
        Case("patches 16x16/16 224 3-768", "f32", 32, (224, 224), 3, 768, square(16, 16)),
        Case("depthwise 3x3/2 56 144", "f32", 32, (56, 56), 144, 144, square(3, 2, 0, 1), groups=(144, 1)),
        Case("bf16 depthwise 1-D causal 4 2048", "bf16", 8, (2048,), 1024, 1024, ((4, 1, 3, 0, 1, 1),), "b0f_0io->b0f",
             (1024, 1)),
        Case("depthwise to data 3x3/2 56 144", "f32", 32, (28, 28), 144, 144, ((3, 1, 2, 1, 2, 1),) * 2,
             groups=(144, 1)),
        Case("NCHW depthwise 3x3 56 144", "f32", 32, (56, 56), 144, 144, square(3, low=1), nchw, (144, 1)),
        Case("depthwise 5x5 14 480", "f32", 32, (14, 14), 480, 480, square(5, low=2), groups=(480, 1)),
    ]  # fmt: skip
    return found


def off(got: Any, wanted: Any) -> float:
    """The largest difference, by the largest element."""
    got, wanted = np.asarray(got).astype(np.float64), np.asarray(wanted).astype(np.float64)
    return float(np.abs(got - wanted).max() / max(float(np.abs(wanted).max()), 1e-30))


def measured(case: Case, clock: Any, target: Any) -> dict[str, Any]:
    """The row of a convolution, without XLA's part."""
    import cupy

    module = hlo_opt.parse(case.text)
    root = module.entry.root
    hero = root.operands[0] if root.opcode == "get-tuple-element" else root
    call = device_call(hero)
    assert call is not None
    random = np.random.default_rng(0)
    arrays = [
        random.standard_normal(p.shape.dimensions, np.float32).astype(p.shape.type.dtype)
        for p in module.entry.parameters
    ]
    executable = hlo_opt.compile(module, "cupy", target=target.name)
    run = executable.resident(arrays)
    for _ in range(3):
        run()
    us = float(np.median([clock.timed(run, 1) for _ in range(ROUNDS)]))
    (got,) = executable(*arrays)
    device = CupyDevice(build_schedule(module, target))
    buffers = [device.upload(a, p.shape) for a, p in zip(arrays, module.entry.parameters, strict=True)]
    old = call.run(cupy, buffers)[0]
    row: dict[str, Any] = {
        "case": case.name,
        "us": us,
        "price_us": price_of_call(hero, target).us,
        "old_us": float(min(clock.timed(lambda: call.run(cupy, buffers), 1) for _ in range(2))),
        "ours_us": batch(run, cupy.cuda.Device().synchronize),
        "apart": off(got, device.download(old, root.shape)),
        "gflop": flops_of(hero) / 1e9,
        "bytes": sum(i.shape.byte_size for i in (*hero.operands, root)),
        "note": executable.report()["notes"],
        "graphs": executable.report().get("graphs", {}),
    }
    ways = cudnn_ways(hero, call)
    if ways:
        refusals: list[str] = []
        tried = list(Cudnn(device, target).tried(ways, refusals))
        row["tried"] = [[ways.index(way), number, ms] for way, number, ms in tried]
        row["refusals"] = refusals
        best = min(tried, key=lambda entry: entry[2])[0] if tried else ways[0]
        moved = "".join(c for c, move in zip("xwr", best.moves, strict=True) if move is not None)
        row["does"] = f"{best.direction} {moved or '-'}"
    if row["gflop"] * 1e9 < SMALL:
        row["evaluator"] = off(got, evaluate(module, arrays)[0])
    return row


def batch(work: Any, wait: Any) -> float:
    """Microseconds per call, after one that is not timed."""
    work()
    wait()
    start = time.perf_counter()
    for _ in range(CALLS):
        work()
    wait()
    return (time.perf_counter() - start) / CALLS * 1e6


def xla_us(case: Case) -> float:
    """Microseconds of a convolution of XLA's, of several in one call."""
    import jax

    from scripts.bench.real_gpu import xla_program

    text = case.of(COPIES)
    executable, device = xla_program(text)
    parameters = hlo_opt.parse(text).entry.parameters
    with jax.enable_x64(True):
        buffers = [jax.device_put(np.ones(p.shape.dimensions, p.shape.type.dtype), device) for p in parameters]
    last: list[Any] = []

    def work() -> None:
        last[:] = executable.execute(buffers)

    return batch(work, lambda: [array.block_until_ready() for array in last]) / COPIES


def told(row: dict[str, Any]) -> str:
    """The line of a row."""
    if "error" in row:
        return f"{row['case']:34s} {row['error']}"
    figures = [row[k] for k in ("us", "price_us", "old_us", "ours_us")]
    xla = f"{row['xla_us']:8.1f}" if "xla_us" in row else f"{'-':>8s}"
    line = f"{row['case']:34s} {figures[0]:8.1f} {figures[1]:8.1f} {figures[2]:9.1f} {figures[3]:8.1f} {xla} "
    tried = " ".join(f"{way}:{number}:{ms:.3f}" for way, number, ms in row.get("tried", ()))
    line += f"{row['apart']:8.1e}  {row.get('does', '-')}  {tried}"
    if not any("cudnn" in note for note in row["note"].values()):
        line += f"  {row['note']}"
    if row.get("refusals"):
        line += f"  {len(row['refusals'])} refused: {row['refusals'][-1]}"
    return line


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a convolution's name; default: all")
    parser.add_argument("--seconds", type=float, default=50.0, metavar="N", help="stop after so many; 50")
    parser.add_argument("--tried", type=int, default=cudnn.TRIED, metavar="N", help="engines to try; %(default)s")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    given = parser.parse_args()
    end = time.perf_counter() + given.seconds
    cudnn.TRIED = given.tried
    clock = clock_of("cupy")
    target = find(target_of_device(clock.device))
    rows: list[dict[str, Any]] = []
    every = [case for case in cases() if not given.names or any(name in case.name for name in given.names)]
    for case in every:
        if time.perf_counter() > end - given.seconds * 0.3 and rows:
            break
        try:
            rows.append(measured(case, clock, target))
        except Exception as error:
            rows.append({"case": case.name, "error": f"{type(error).__name__}: {error}"[:300]})
            traceback.print_exc()
        save(given.out, clock.device, rows)
    for case, row in zip(every, rows, strict=False):
        if time.perf_counter() > end:
            break
        try:
            row["xla_us"] = xla_us(case)
        except Exception as error:
            row["xla_error"] = f"{type(error).__name__}: {error}"[:300]
    save(given.out, clock.device, rows)
    print(f"{clock.device}\n{HEADER}")
    for row in rows:
        print(told(row))
    print(f"{len(rows)} of {len(every)} convolutions")
    return int(any("error" in row for row in rows))


def save(path: Path | None, device: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write what there is: the run may be cut off."""
    if path is not None:
        path.write_text(json.dumps({"device": device, "convolutions": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
