"""Products of models by cuBLAS and by cuBLASLt on a GPU: python -m scripts.bench.product_algorithms [WORD ...]
[--seconds N] [--out FILE.json]

us of a run, of several in a row with warm caches; WORD picks products by a part of their name.

cuBLAS  its own choice; a product whose batches lie apart by one call with a list of addresses
apart   the same by a call for each of the batches
Lt      cuBLASLt by the algorithm that its heuristics name first, and by the fastest of a few, with its number
gelu    the same with a bias and a GELU in the same call
off     the largest difference from cuBLAS's result, in parts of its largest element; and with bias and GELU, from what
        NumPy computes of that result
price   as fusion counts
host    the host's part of a run by cuBLAS
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import hlo_opt
from hlo_opt.analysis.targets import target as find
from hlo_opt.ops.calls.call import call_of
from hlo_opt.ops.calls.strided import StridedProduct, product_of
from hlo_opt.plans.calls import price_of_call
from hlo_opt.runtime.cupy.cublaslt import LtError
from hlo_opt.runtime.cupy.products import Cublas
from hlo_opt.runtime.measure.bench import clock_of
from scripts.bench.kernel_times import target_of_device

PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
LAST = "lhs_contracting_dims={2}, rhs_contracting_dims={0}"
HEADS = "lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_contracting_dims={3}"
VALUES = "lhs_batch_dims={0,2}, rhs_batch_dims={0,1}, lhs_contracting_dims={1}, rhs_contracting_dims={3}"
OUT = "lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}"
PRODUCTS = {
    "mlp_mixer tokens in": ("f32[32,196,768]", "f32[196,384]", "f32[32,768,384]", PLAIN),
    "mlp_mixer tokens out": ("f32[32,768,384]", "f32[384,196]", "f32[32,768,196]", LAST),
    "mlp_mixer channels in": ("f32[32,196,768]", "f32[768,3072]", "f32[32,196,3072]", LAST),
    "mlp_mixer channels out": ("f32[32,196,3072]", "f32[3072,768]", "f32[32,196,768]", LAST),
    "dit query": ("f32[8,256,768]", "f32[768,768]", "f32[8,256,768]", LAST),
    "dit scores": ("f32[8,256,12,64]", "f32[8,256,12,64]", "f32[8,12,256,256]", HEADS),
    "dit values": ("f32[8,256,12,64]", "f32[8,12,256,256]", "f32[8,12,64,256]", VALUES),
    "dit heads out": ("f32[8,12,64,256]", "f32[12,64,768]", "f32[8,256,768]", OUT),
    "dit in": ("f32[8,256,768]", "f32[768,3072]", "f32[8,256,3072]", LAST),
    "dit out": ("f32[8,256,3072]", "f32[3072,768]", "f32[8,256,768]", LAST),
    "llama3 query": ("bf16[64,4096]", "bf16[4096,4096]", "bf16[64,4096]", PLAIN),
    "llama3 up": ("bf16[64,4096]", "bf16[4096,14336]", "bf16[64,14336]", PLAIN),
    "llama3 down": ("bf16[64,14336]", "bf16[14336,4096]", "bf16[64,4096]", PLAIN),
    "detr query": ("f32[4,100,256]", "f32[256,256]", "f32[4,100,256]", LAST),
    "detr values": ("f32[4,100,8,32]", "f32[4,8,100,100]", "f32[4,8,32,100]", VALUES),
    "detr heads out": ("f32[4,8,32,100]", "f32[8,32,256]", "f32[4,100,256]", OUT),
    "detr in": ("f32[4,100,256]", "f32[256,2048]", "f32[4,100,2048]", LAST),
    "detr out": ("f32[4,100,2048]", "f32[2048,256]", "f32[4,100,256]", LAST),
}
TOGETHER = 10
"""Runs in a row, which are timed as one."""
ROUNDS = 5
EPILOGUE = "BIAS_GELU"


def text_of(left: str, right: str, result: str, how: str) -> str:
    """A module of one product."""
    return (
        f"HloModule product\n\nENTRY main {{\n  a = {left} parameter(0)\n  b = {right} parameter(1)\n"
        f"  ROOT c = {result} dot(a, b), {how}\n}}\n"
    )


class Bench:
    """Memory of one product, and what it takes."""

    def __init__(self, clock: Any, cublas: Cublas, product: StridedProduct) -> None:
        self.clock, self.cublas, self.product = clock, cublas, product
        cupy = self.cupy = cublas.cupy
        draw = np.random.default_rng(0).standard_normal(1 << 20, np.float32)
        counts = [1 + max(n[side] for n in product.bytes_before) + product.bytes[side] for side in range(3)]
        self.bias = draw[: product.sizes[1]]
        arrays = [self._stored(np.resize(draw, size // 2), product.types[0]) for size in counts[:2]]
        self.arrays = [*map(cupy.asarray, arrays), cupy.asarray(self._stored(self.bias, product.types[1]))]
        self.target = cupy.zeros(counts[2], "uint8")
        left, right, bias = (int(a.data.ptr) for a in self.arrays)
        self.plain = (left, right, int(self.target.data.ptr))
        self.finished = (left, right, bias, int(self.target.data.ptr))

    @staticmethod
    def _stored(values: Any, type_name: str) -> Any:
        if type_name == "bf16":
            return (np.ascontiguousarray(values).view(np.uint32) >> 16).astype(np.uint16)
        return values.astype(np.float32 if type_name == "f32" else np.float16)

    def us(self, start: Any) -> float:
        """Microseconds of one of several runs in a row."""

        def work() -> None:
            for _ in range(TOGETHER):
                start()

        work()
        return float(np.median([self.clock.timed(work, TOGETHER) for _ in range(ROUNDS)])) / TOGETHER

    @staticmethod
    def host_us(start: Any) -> float:
        """Microseconds until a start returns, while the device has work to do."""
        times = []
        for _ in range(4 * TOGETHER):
            first = time.perf_counter()
            start()
            times.append(time.perf_counter() - first)
        return float(np.median(times)) * 1e6

    def result(self, start: Any) -> Any:
        """What a run writes, as f32, by rows without gaps (there are none in these products)."""
        self.target[...] = 0
        start()
        raw = self.cupy.asnumpy(self.target)[: self.target.size // 4 * 4]
        if self.product.types[1] == "bf16":
            return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        return raw.view(np.float32)

    def of_lt(self, product: StridedProduct, pointers: tuple[int, ...]) -> tuple[list[float], Any]:
        """Microseconds of each algorithm, and the result of the first one; none where cuBLASLt refuses."""
        lt = self.cublas.lt
        if lt is None or len(product.starts) > 1:
            return [], None
        try:
            starts = [lt.ready(product, a).start_of(pointers) for a in lt.algorithms(product)]
            return [self.us(start) for start in starts], self.result(starts[0])
        except LtError as error:
            print(f"  {error}")
            return [], None

    def row(self) -> dict[str, Any]:
        product, cublas = self.product, self.cublas
        by_cublas = cublas.start_by_cublas(product, self.plain)
        want = self.result(by_cublas)
        row: dict[str, Any] = {"cublas_us": self.us(by_cublas), "host_us": self.host_us(by_cublas)}
        apart = cublas.start_by_cublas(product, self.plain, is_listed=False)
        if product.is_listed:
            row |= {"apart_us": self.us(apart), "off": _off(self.result(apart), want)}
        row["lt_us"], got = self.of_lt(product, self.plain)
        if got is not None:
            row["off"] = _off(got, want)
        row["epilogue_us"], got = self.of_lt(replace(product, epilogue=EPILOGUE), self.finished)
        if got is not None:
            sums = want[: want.size // self.bias.size * self.bias.size].reshape(-1, self.bias.size) + self.bias
            gelu = 0.5 * sums * (1 + np.tanh(np.sqrt(2 / np.pi) * (sums + 0.044715 * sums**3)))
            row["epilogue_off"] = _off(got[: gelu.size], gelu.reshape(-1))
        return row


def _off(got: Any, want: Any) -> float:
    return float(np.abs(got - want).max() / np.abs(want).max())


def _shown(row: dict[str, Any]) -> str:
    def pair(times: list[float]) -> str:
        return f"{times[0]:8.2f} {min(times):8.2f} #{times.index(min(times))}" if times else f"{'':20s}"

    apart = f"{row['apart_us']:8.2f}" if "apart_us" in row else f"{'':8s}"
    offs = "  ".join(f"{row[name]:.1e}" for name in ("off", "epilogue_off") if name in row)
    first, last = f"{row['cublas_us']:8.2f} {apart}", f"{row['price_us']:8.2f} {row['host_us']:8.2f}  {offs}"
    return f"{first} {pair(row['lt_us'])} {pair(row['epilogue_us'])} {last}"


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="N")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    given = parser.parse_args()
    clock: Any = clock_of("cupy")
    device = find(target_of_device(clock.device))
    cublas = Cublas(clock.cupy)
    print(f"{clock.device}; cuBLASLt {'is there' if cublas.lt is not None else 'is missing'}")
    print(f"{'product':24s}   cuBLAS    apart Lt first     best       gelu     best       price     host  off")
    rows: list[dict[str, Any]] = []
    end = time.monotonic() + given.seconds
    for name, of in PRODUCTS.items():
        if given.words and not any(word in name for word in given.words):
            continue
        if time.monotonic() > end:
            print(f"{name:24s} not reached in time")
            continue
        root = hlo_opt.parse(text_of(*of)).entry.root
        call = call_of(root)
        product = None if call is None else product_of(call)
        assert product is not None, name
        row = {"case": name, **Bench(clock, cublas, product).row(), "price_us": price_of_call(root, device).us}
        rows.append(row)
        print(f"{name:24s} {_shown(row)}", flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps({"device": clock.device, "products": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
