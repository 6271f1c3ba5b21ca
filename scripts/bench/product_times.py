"""Products by cuBLAS on a GPU beside their price: python -m scripts.bench.product_times [--out FILE.json]

Each product is a module of one dot, run as one CUDA graph, timed by events with warm caches: rows x length x columns,
f32 (rounded to TF32, and with the highest precision) and bf16.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import hlo_opt
from hlo_opt.analysis.targets import target as find
from hlo_opt.plans.calls import price_of_call
from hlo_opt.runtime.measure.bench import clock_of
from scripts.bench.kernel_times import target_of_device

SIZES = (
    *((64, 64, 64), (256, 256, 256), (128, 784, 512), (1024, 128, 1024), (512, 512, 512), (2048, 768, 768)),
    *((32, 4096, 4096), (1024, 1024, 1024), (2048, 768, 3072), (4096, 1024, 1024), (2048, 2048, 2048)),
    *((8192, 64, 8192), (256, 65536, 256), (4096, 4096, 4096), (8192, 8192, 8192)),
)
KINDS = {"tf32": ("f32", ""), "f32": ("f32", ", operand_precision={highest,highest}"), "bf16": ("bf16", "")}
ROUNDS = 7


def text_of(rows: int, length: int, columns: int, kind: str) -> str:
    """A module of one product."""
    name, more = KINDS[kind]
    return (
        f"HloModule product\n\nENTRY main {{\n  a = {name}[{rows},{length}]{{1,0}} parameter(0)\n"
        f"  b = {name}[{length},{columns}]{{1,0}} parameter(1)\n"
        f"  ROOT c = {name}[{rows},{columns}]{{1,0}} dot(a, b), lhs_contracting_dims={{1}}, "
        f"rhs_contracting_dims={{0}}{more}\n}}\n"
    )


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    given = parser.parse_args()
    clock = clock_of("cupy")
    device = find(target_of_device(clock.device))
    print(f"{clock.device}\n{'product':24s} {'us':>9s} {'price':>9s} {'off':>6s} {'TFLOPS':>7s}")
    rows: list[dict[str, Any]] = []
    for sizes in SIZES:
        for kind in KINDS:
            module = hlo_opt.parse(text_of(*sizes, kind))
            arrays = [
                np.random.default_rng(0).standard_normal(p.shape.dimensions, np.float32).astype(p.shape.type.dtype)
                for p in module.entry.parameters
            ]
            run = hlo_opt.compile(module, "cupy", target=device.name).resident(arrays)
            for _ in range(3):
                run()
            us = float(np.median([clock.timed(run, 1) for _ in range(ROUNDS)]))
            price = price_of_call(module.entry.root, device).us
            speed = 2 * float(np.prod(sizes)) / us / 1e6
            case = f"{kind} {'x'.join(map(str, sizes))}"
            rows.append({"case": case, "us": us, "price_us": price, "tflops": speed})
            print(f"{case:24s} {us:9.2f} {price:9.2f} {100 * (price / us - 1):+6.0f} {speed:7.1f}", flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps({"device": clock.device, "products": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
