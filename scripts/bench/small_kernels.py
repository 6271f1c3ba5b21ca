"""Small programs on a GPU beside their price: python -m scripts.bench.small_kernels [--seconds N] [--out FILE.json]
[NAME...]

Each program is compiled, kept on the device, and started again and again behind a wait, as CUDA graphs that queue up:
what one takes has no event in it, and no time of the host. The programs are dumps of few launches; chains of operations
on one small array, for what the length of a kernel's code costs; and many small arrays in one kernel, for what their
number costs. Products are attention's, one module each.

us        microseconds of a program, the median of several batches
price     of the module, and how far it lies from the time in percent of it
launches  kernels, and calls of libraries
parts     of the price: memory, cache, instructions, slow, way, of all kernels
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import hlo_opt
from hlo_opt.analysis.targets import target as find
from hlo_opt.evaluate import module_inputs
from hlo_opt.fusion.summary import module_summary
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.price import price
from hlo_opt.runtime.measure.bench import Clock, clock_of
from hlo_opt.runtime.schedule import build_schedule, ops
from scripts.bench.kernel_limits import PARTS
from scripts.bench.kernel_times import target_of_device

DUMPS = Path(__file__).parents[2] / "testdata" / "dumps"
NAMES = (
    *("layer_norm", "softmax", "adam", "adam_one", "adamw_mixed", "sample_tokens", "attention", "attention_bf16"),
    *("dropout", "huber", "running_sums", "log_sum_exp", "group_norm", "embed", "heat", "write_rows", "gated"),
    *("rms_norm_f16", "residual_rms_norm", "softmax_columns", "cross_entropy", "mlp_forward", "transformer_block"),
)
DONATIONS = ("input_output_alias", "buffer_donor")
"""What a program may overwrite: arrays that are kept would be copied before each call."""
CALLS, ROUNDS = 20, 5
CHAIN, ARRAYS = (1, 10, 100, 400), (1, 4, 16, 64)
HEADS = {
    "scores f32": "f32[2,64,4,32]{3,2,1,0}",
    "scores bf16": "bf16[2,64,4,32]{3,2,1,0}",
    "scores of 8 f32": "f32[8,128,12,64]{3,2,1,0}",
    "scores of 8 bf16": "bf16[8,128,12,64]{3,2,1,0}",
}


def chain_of(length: int) -> str:
    """A chain of dependent operations on 96 numbers: twice `length`."""
    shape, last = "f32[96]{0}", "sum0"
    lines = ["HloModule chain", "", "ENTRY main {", f"  {last} = {shape} parameter(0)"]
    for n in range(length):
        lines += [
            f"  number{n} = f32[] constant({1 + n % 97 / 1000})",
            f"  wide{n} = {shape} broadcast(number{n}), dimensions={{}}",
            f"  times{n} = {shape} multiply({last}, wide{n})",
            f"  sum{n + 1} = {shape} add(times{n}, wide{n})",
        ]
        last = f"sum{n + 1}"
    lines[-1] = lines[-1].replace("  sum", "  ROOT sum", 1)
    return "\n".join([*lines, "}", ""])


def arrays_of(count: int) -> str:
    """`count` arrays of 96 numbers, each with an operation of its own."""
    shape = "f32[96]{0}"
    lines = ["HloModule arrays", "", "ENTRY main {"]
    for n in range(count):
        lines += [f"  p{n} = {shape} parameter({n})", f"  r{n} = {shape} multiply(p{n}, p{n})"]
    shapes = ", ".join([shape] * count)
    lines.append(f"  ROOT t = ({shapes}) tuple({', '.join(f'r{n}' for n in range(count))})")
    return "\n".join([*lines, "}", ""])


def scores_of(shape: str) -> str:
    """Products of queries and keys whose heads lie between positions and features."""
    kind, sizes = shape.split("[")
    batch, length, heads, _ = sizes.split("]")[0].split(",")
    dims = "lhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_batch_dims={0,2}, rhs_contracting_dims={3}"
    return (
        f"HloModule scores\n\nENTRY main {{\n  q = {shape} parameter(0)\n  k = {shape} parameter(1)\n"
        f"  ROOT s = {kind}[{batch},{heads},{length},{length}]{{3,2,1,0}} dot(q, k), {dims}\n}}\n"
    )


def texts() -> dict[str, str]:
    """The programs by name."""
    every = {f"chain of {2 * length}": chain_of(length) for length in CHAIN}
    every |= {f"arrays: {count}": arrays_of(count) for count in ARRAYS}
    every |= {name: scores_of(shape) for name, shape in HEADS.items()}
    return every | {name: (DUMPS / f"{name}.hlo").read_text(encoding="utf-8") for name in NAMES}


def row_of(name: str, text: str, device: str, clock: Clock) -> dict[str, Any]:
    """The times of a program beside its price."""
    module, target = hlo_opt.parse(text), find(device)
    for alias in DONATIONS:
        module.attributes.pop(alias, None)
    fused, _ = hlo_opt.fuse(module, target=target.name)
    schedule, parts = build_schedule(fused, target.name), dict.fromkeys(PARTS, 0.0)
    for _, op in schedule.ops():
        if isinstance(op, ops.LaunchOp):
            made = plan(region_of(schedule.module, op.instruction), target)
            if isinstance(made, Plan):
                parts = {part: us + getattr(price(made, target), part) for part, us in parts.items()}
    executable = hlo_opt.compile(fused, "cupy", target=target.name)
    run = executable.resident(module_inputs(module, 0))
    for _ in range(3):
        run()

    def several() -> None:
        for _ in range(CALLS):
            run()

    us = median(clock.timed(several, 10 * CALLS) for _ in range(ROUNDS)) / CALLS
    report = executable.report()
    summary = module_summary(fused, target)
    return {
        "case": name,
        "us": us,
        "price_us": summary.est_us,
        "off": summary.est_us / us - 1,
        "launches": int(report["launches"]),
        "calls": sum(report["library"].values()),
        "parts": parts,
    }


def main() -> int:
    """The command; 1 where a program has no time."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a program's name; default: all")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    given = parser.parse_args()
    clock, end = clock_of("cupy"), time.monotonic() + given.seconds
    device = target_of_device(clock.device)
    heads = "".join(f"{part[:7]:>8s}" for part in PARTS)
    print(f"{clock.device}; target {device}\n{'program':24s} {'us':>8s} {'price':>8s} {'off':>5s} launches {heads}")
    rows: list[dict[str, Any]] = []
    missing = 0
    for name, text in texts().items():
        if given.names and not any(part in name for part in given.names):
            continue
        if time.monotonic() > end:
            print(f"{name}: not reached in time")
            missing += 1
            continue
        try:
            row = row_of(name, text, device, clock)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}"[:200])
            missing += 1
            continue
        rows.append(row)
        parts = "".join(f"{us:8.2f}" for us in row["parts"].values())
        count = f"{row['launches']}+{row['calls']}"
        print(
            f"{name:24s} {row['us']:8.2f} {row['price_us']:8.2f} {100 * row['off']:+5.0f} {count:>8s} {parts}",
            flush=True,
        )
        if given.out is not None:
            given.out.write_text(json.dumps({"device": clock.device, "small": rows}, indent=1) + "\n", encoding="utf-8")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
