"""Variants of kernels side by side on a GPU: python -m scripts.bench.variants [NAME...] [--seconds N]

First kernels that are written by hand, to see what a device does with one access or another. Then programs of
`kernel_limits` planned in several ways: with constants of the plans changed; `apart` is how far the result lies from
that of the first. Times are microseconds by events from a filled queue, with cold caches: the median.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

import hlo_opt
from hlo_opt.runtime.measure.bench import Clock, clock_of
from scripts.bench.kernel_programs import programs
from scripts.bench.kernel_times import drawn, taken, target_of_device

ROUNDS = 5
Constants = Mapping[str, Any]
PLANNED: dict[str, dict[str, Constants]] = {
    "cumsum f32 16.7M": {
        "in turns": {},
        "in turns, 256 threads": {"hlo_opt.plans.cumulative.TURN_THREADS": 256},
        "in turns, 1024 threads": {"hlo_opt.plans.cumulative.TURN_THREADS": 1024},
        "in parts": {"hlo_opt.plans.cumulative._HAS_ORDER": 999},
    },
    "column sum bf16 65536x1000": {
        "as it is": {},
        "a block for each multiprocessor": {"hlo_opt.plans.columns.MOST_RESIDENT": 1},
        "8 bytes": {"hlo_opt.plans.columns.WIDEST_BITS": 64},
    },
    "column sum f32 8388608x4": {"16 bytes": {}, "4 bytes": {"hlo_opt.plans.columns.WIDEST_BITS": 32}},
    "uniform noise added f32 33.5M": {
        f"one of {n} rotations is a product": {"hlo_opt.codegen.builder.BY_PRODUCTS": n} for n in (2, 0, 1, 3, 4)
    },
    "transpose bf16 0231": {f"strips of {n}": {"hlo_opt.codegen.tiled_transpose.STRIP": n} for n in (8, 2, 4, 32)},
    "transpose bf16 3210": {f"strips of {n}": {"hlo_opt.codegen.tiled_transpose.STRIP": n} for n in (8, 1)},
}
"""Programs with the constants of each variant, by their places."""

_SCATTER = r"""
__device__ __forceinline__ int row_of(const int* indices, int number) { return indices[number]; }
#define RED4(at, v) asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" \
  :: "l"(__cvta_generic_to_global(at)), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory")
#define RED2(at, x, y) asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" \
  :: "l"(__cvta_generic_to_global(at)), "f"(x), "f"(y) : "memory")
extern "C" __global__ void __launch_bounds__(128) vectors(float* out, const int* indices, const float4* updates) {
  const int linear = blockIdx.x * 128 + threadIdx.x;
  const float4 v = updates[linear];
  RED4(out + (size_t)row_of(indices, blockIdx.x / 2) * 1024 + linear % 256 * 4, v);
}
extern "C" __global__ void __launch_bounds__(256) rows(float* out, const int* indices, const float4* updates) {
  const float4 v = updates[blockIdx.x * 256 + threadIdx.x];
  RED4(out + (size_t)row_of(indices, blockIdx.x) * 1024 + threadIdx.x * 4, v);
}
extern "C" __global__ void __launch_bounds__(256) pairs(float* out, const int* indices, const float4* updates) {
  const float4 v = updates[blockIdx.x * 256 + threadIdx.x];
  float* const at = out + (size_t)row_of(indices, blockIdx.x) * 1024 + threadIdx.x * 4;
  RED2(at, v.x, v.y);
  RED2(at + 2, v.z, v.w);
}
extern "C" __global__ void __launch_bounds__(256) single(float* out, const int* indices, const float* updates) {
  float* const at = out + (size_t)row_of(indices, blockIdx.x) * 1024 + threadIdx.x;
  for (int k = 0; k < 4; ++k) atomicAdd(at + k * 256, updates[blockIdx.x * 1024 + k * 256 + threadIdx.x]);
}
extern "C" __global__ void __launch_bounds__(256) eight_rows(float* out, const int* indices, const float4* updates) {
  float4 v[8];
  for (int k = 0; k < 8; ++k) v[k] = updates[(blockIdx.x * 8 + k) * 256 + threadIdx.x];
  for (int k = 0; k < 8; ++k) RED4(out + (size_t)row_of(indices, blockIdx.x * 8 + k) * 1024 + threadIdx.x * 4, v[k]);
}
extern "C" __global__ void __launch_bounds__(256) not_atomic(float* out, const int* indices, const float4* updates) {
  const float4 v = updates[blockIdx.x * 256 + threadIdx.x];
  float4* const at = (float4*)(out + (size_t)row_of(indices, blockIdx.x) * 1024 + threadIdx.x * 4);
  const float4 w = *at;
  *at = make_float4(v.x + w.x, v.y + w.y, v.z + w.z, v.w + w.w);
}
"""
_COLUMNS = r"""
// all read bf16[65536,1000], and sum what a thread reads
#define ADD(v) sum[0] += __uint_as_float(v.x << 16) + __uint_as_float(v.y << 16), \
  sum[1] += __uint_as_float(v.x & 0xffff0000u) + __uint_as_float(v.y & 0xffff0000u), \
  sum[2] += __uint_as_float(v.z << 16) + __uint_as_float(v.w << 16), \
  sum[3] += __uint_as_float(v.z & 0xffff0000u) + __uint_as_float(v.w & 0xffff0000u)
#define END out[blockIdx.x * blockDim.x + threadIdx.x] = sum[0] + sum[1] + sum[2] + sum[3]
extern "C" __global__ void __launch_bounds__(1024, 2) tiles(float* out, const uint4* in) {
  float sum[4] = {};
  const int way = threadIdx.x / 32, part = blockIdx.x % 64, column = blockIdx.x / 64 * 32 + threadIdx.x % 32;
  if (column < 125)
#pragma unroll 4
    for (int row = part * 32 + way; row < 65536; row += 2048) { const uint4 v = in[row * 125 + column]; ADD(v); }
  END;
}
extern "C" __global__ void __launch_bounds__(1024, 2) tiles_beside(float* out, const uint4* in) {
  float sum[4] = {};
  const int way = threadIdx.x / 32, part = blockIdx.x / 4, column = blockIdx.x % 4 * 32 + threadIdx.x % 32;
  if (column < 125)
#pragma unroll 4
    for (int row = part * 32 + way; row < 65536; row += 2048) { const uint4 v = in[row * 125 + column]; ADD(v); }
  END;
}
extern "C" __global__ void __launch_bounds__(1024, 2) near_rows(float* out, const uint4* in) {
  float sum[4] = {};
  const int way = threadIdx.x / 32, part = blockIdx.x / 4, column = blockIdx.x % 4 * 32 + threadIdx.x % 32;
  if (column < 125)
#pragma unroll 4
    for (int row = part * 1024 + way; row < part * 1024 + 1024; row += 32) {
      const uint4 v = in[row * 125 + column]; ADD(v);
    }
  END;
}
extern "C" __global__ void __launch_bounds__(1024, 2) whole_rows(float* out, const uint4* in) {
  float sum[4] = {};
  const int way = threadIdx.x / 125, column = threadIdx.x % 125;
  if (way < 8)
#pragma unroll 4
    for (int row = blockIdx.x * 8 + way; row < 65536; row += 264 * 8) {
      const uint4 v = in[row * 125 + column]; ADD(v);
    }
  END;
}
extern "C" __global__ void __launch_bounds__(512, 4) half_rows(float* out, const uint4* in) {
  float sum[4] = {};
  const int way = threadIdx.x / 64, part = blockIdx.x / 2, column = blockIdx.x % 2 * 64 + threadIdx.x % 64;
  if (column < 125)
#pragma unroll 4
    for (int row = part * 8 + way; row < 65536; row += 264 * 8) { const uint4 v = in[row * 125 + column]; ADD(v); }
  END;
}
"""

_TRANSPOSES = r"""
// bf16[64,256,4096] to bf16[64,4096,256], in tiles of 64 by 64
#define PLACE                                                                                                          \
  const int block = blockIdx.x, line = threadIdx.x / 32, lane = threadIdx.x % 32, row = block / 8 % 4 * 64;            \
  const int column = block / 2048 * 512 + block % 8 * 64, batch = block / 32 % 64 << 20
extern "C" __global__ void __launch_bounds__(128) halves(unsigned short* out, const unsigned short* in) {
  PLACE;
  __shared__ unsigned short tile[64 * 65];
#pragma unroll
  for (int s = 0; s < 16; ++s) {
    const int at = s * 4 + line;
    const unsigned int both = *(const unsigned int*)&in[batch + (row + at) * 4096 + column + lane * 2];
    tile[at * 65 + lane * 2] = (unsigned short)both;
    tile[at * 65 + lane * 2 + 1] = (unsigned short)(both >> 16);
  }
  __syncthreads();
#pragma unroll
  for (int s = 0; s < 16; ++s) {
    const int at = s * 4 + line;
    const unsigned int both = tile[lane * 130 + at] | (unsigned int)tile[lane * 130 + 65 + at] << 16;
    *(unsigned int*)&out[batch + (column + at) * 256 + row + lane * 2] = both;
  }
}
extern "C" __global__ void __launch_bounds__(128) words(unsigned short* out, const unsigned short* in) {
  PLACE;
  __shared__ unsigned int tile[64 * 33];  // even rows, then odd ones
#pragma unroll
  for (int s = 0; s < 16; ++s) {
    const int at = s * 4 + line;
    tile[(at % 2 * 32 + at / 2) * 33 + lane] =
        *(const unsigned int*)&in[batch + (row + at) * 4096 + column + lane * 2];
  }
  __syncthreads();
#pragma unroll
  for (int s = 0; s < 8; ++s) {
    const int at = s * 4 + line;
    const unsigned int even = tile[lane * 33 + at], odd = tile[(32 + lane) * 33 + at];
    unsigned int* const to = (unsigned int*)&out[batch + (column + at * 2) * 256 + row + lane * 2];
    to[0] = __byte_perm(even, odd, 0x5410);
    to[128] = __byte_perm(even, odd, 0x7632);
  }
}
"""
_CONCATENATIONS = r"""
// bf16[8192,4097], bf16[8192,2049] and bf16[8192,1023] beside each other; a thread writes 8 elements
#define WRITE(words) *(uint4*)&out[first] = make_uint4(words[0], words[1], words[2], words[3])
typedef const unsigned short* In;
__device__ __forceinline__ unsigned int element(In a, In b, In c, int number) {
  const int row = number / 7169, at = number % 7169;
  return at < 4097 ? a[row * 4097 + at] : at < 6146 ? b[row * 2049 + at - 4097] : c[row * 1023 + at - 6146];
}
__device__ __forceinline__ void one_by_one(unsigned int* words, In a, In b, In c, int first) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
    words[k] = element(a, b, c, first + 2 * k) | element(a, b, c, first + 2 * k + 1) << 16;
}
extern "C" __global__ void __launch_bounds__(128) elements(unsigned short* out, In a, In b, In c) {
  const int first = (blockIdx.x * 128 + threadIdx.x) * 8;
  unsigned int words[4];
  one_by_one(words, a, b, c, first);
  WRITE(words);
}
extern "C" __global__ void __launch_bounds__(128) shifted(unsigned short* out, In a, In b, In c) {
  const int first = (blockIdx.x * 128 + threadIdx.x) * 8, row = first / 7169, at = first % 7169;
  const bool in_a = at < 4097, in_b = !in_a && at < 6146;
  const int begin = in_a ? 0 : in_b ? 4097 : 6146, size = in_a ? 4097 : in_b ? 2049 : 1023;
  unsigned int words[4];
  if (at - begin + 8 <= size) {
    const In from = in_a ? a : in_b ? b : c;
    const int place = row * size + at - begin, shift = place % 8;
    const uint4 low = *(const uint4*)&from[place - shift];
    uint4 high = low;
    if (shift) high = *(const uint4*)&from[place - shift + 8];
    unsigned int w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int k = 0; k < 6; ++k) w[k] = shift & 4 ? w[k + 2] : w[k];
#pragma unroll
    for (int k = 0; k < 5; ++k) w[k] = shift & 2 ? w[k + 1] : w[k];
#pragma unroll
    for (int k = 0; k < 4; ++k) words[k] = __funnelshift_r(w[k], w[k + 1], shift % 2 * 16);
  } else {
    one_by_one(words, a, b, c, first);
  }
  WRITE(words);
}
"""

_THREEFRY = r"""
// x + uniform numbers of threefry2x32, as jax.random writes them; a thread writes 4 elements
#define ROTATED(x, r) __funnelshift_l(x, x, r)
__device__ __forceinline__ unsigned int wide(unsigned int x, unsigned int power, unsigned int with) {
  unsigned int low, high;
  asm("{ .reg .u64 w; mul.wide.u32 w, %2, %3; mov.b64 {%0, %1}, w; }" : "=r"(low), "=r"(high) : "r"(x), "r"(power));
  return low ^ high ^ with;
}
#define ROUND(r, n) x += y, y = (WIDE >> n & 1) ? wide(y, 1u << r, x) : ROTATED(y, r) ^ x
#define FOUR(a, b, c, d) ROUND(a, 0), ROUND(b, 1), ROUND(c, 2), ROUND(d, 3)
template <int WIDE> __device__ __forceinline__ float drawn(unsigned int first, unsigned int second, unsigned int y) {
  const unsigned int third = first ^ second ^ 466688986u;
  unsigned int x = first;
  y += second;
  FOUR(13, 15, 26, 6);
  x += second, y += third + 1;
  FOUR(17, 29, 16, 24);
  x += third, y += first + 2;
  FOUR(13, 15, 26, 6);
  x += first, y += second + 3;
  FOUR(17, 29, 16, 24);
  x += second, y += third + 4;
  FOUR(13, 15, 26, 6);
  x += third, y += first + 5;
  return __uint_as_float((x ^ y) >> 9 | 0x3f800000u) - 1.0f;
}
template <int WIDE> __device__ __forceinline__ void all(float4* out, const float4* in, const unsigned int* key) {
  const int place = blockIdx.x * 128 + threadIdx.x;
  float4 x = in[place];
  x.x += drawn<WIDE>(key[0], key[1], place * 4);
  x.y += drawn<WIDE>(key[0], key[1], place * 4 + 1);
  x.z += drawn<WIDE>(key[0], key[1], place * 4 + 2);
  x.w += drawn<WIDE>(key[0], key[1], place * 4 + 3);
  out[place] = x;
}
#define KERNEL(name, mask)                                                                                  \
  extern "C" __global__ void __launch_bounds__(128) name(float4* o, const float4* i, const unsigned int* k) { \
    all<mask>(o, i, k);                                                                                     \
  }
KERNEL(shifts, 0)
KERNEL(products_1_of_4, 1)
KERNEL(products_2_of_4, 5)
KERNEL(products_3_of_4, 7)
KERNEL(products, 15)
"""


@contextmanager
def changed(constants: Constants) -> Iterator[None]:
    """Constants of modules, by their places, with other values."""
    before = []
    for place, value in constants.items():
        module, _, name = place.rpartition(".")
        before.append((importlib.import_module(module), name, getattr(importlib.import_module(module), name)))
        setattr(importlib.import_module(module), name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def median(clock: Clock, work: Callable[[], Any], launches: int) -> float:
    """Microseconds of work, its caches cold."""
    work()
    times = []
    for _ in range(ROUNDS):
        clock.empty_caches()
        times.append(clock.timed(work, launches))
    return float(np.median(times))


def planned(clock: Clock, name: str) -> Iterator[str]:
    """A line for each variant of a program."""
    program = next(p for p in programs() if p.name == name)
    first: Any = None
    for variant, constants in PLANNED[name].items():
        with changed(constants):
            fused, _ = hlo_opt.fuse(program.made(), target=target_of_device(clock.device))
            ours = hlo_opt.compile(fused, backend="cupy")
        arrays = taken(drawn(program.made.arguments), [p.shape.dimensions for p in fused.entry.parameters])
        run = ours.resident(arrays)
        (result,) = ours(*arrays)
        wide = np.asarray(result).astype(np.float64)
        first = wide if first is None else first
        apart = float(np.abs(wide - first).max() / max(np.abs(first).max(), 1e-30))
        launches = int(ours.report()["launches"])
        yield f"{name:30s} {variant:44s} {launches:3d} {median(clock, run, launches):9.1f}   apart {apart:.1e}"


def _launch(kernel: Any, grid: int, block: int, *arguments: Any) -> None:
    kernel((grid,), (block,), arguments)


def scatters(clock: Clock, cupy: Any) -> Iterator[str]:
    """A line for each way to add f32[65536,1024] to rows of f32[131072,1024]."""
    rows, updates = cupy.zeros((131072, 1024), "float32"), cupy.ones((65536, 1024), "float32")
    indices = cupy.asarray(np.random.default_rng(1).integers(0, 131072, 65536).astype(np.int32))
    copied = cupy.empty_like(rows)

    def copy() -> None:
        copied.data.copy_from_device_async(rows.data, rows.nbytes)

    for name, work in {"copy of the rows, by the driver": copy, "copy of the rows": rows.copy}.items():
        yield f"{'scatter-add f32':30s} {name:48s} {median(clock, work, 1):9.1f}"
    module, want = cupy.RawModule(code=_SCATTER, options=("--std=c++17",)), None
    grids = {"vectors": 131072, "rows": 65536, "pairs": 65536, "single": 65536, "eight_rows": 8192, "not_atomic": 65536}
    for name, grid in grids.items():
        launch = partial(_launch, module.get_function(name), grid, 128 if name == "vectors" else 256)
        rows[...] = 0
        launch(rows, indices, updates)
        got = float(rows.sum(dtype="float64"))
        want = got if want is None else want
        alone = median(clock, partial(launch, rows, indices, updates), 1)

        def after_copy(launch: Callable[..., None] = launch) -> None:
            copy()
            launch(copied, indices, updates)

        both, agrees = median(clock, after_copy, 2), "" if got == want else "differs"
        yield f"{'scatter-add f32':30s} {name:48s} {alone:9.1f}   after the copy {both:.1f}   {agrees}"


def columns(clock: Clock, cupy: Any) -> Iterator[str]:
    """A line for each order in which blocks read bf16[65536,1000]."""
    values = cupy.asarray(np.random.default_rng(1).integers(0, 1 << 14, (65536, 1000)).astype(np.uint16))
    module, out = cupy.RawModule(code=_COLUMNS, options=("--std=c++17",)), cupy.zeros(1 << 19, "float32")
    grids = {"tiles": 256, "tiles_beside": 256, "near_rows": 256, "whole_rows": 264, "half_rows": 528}
    for name, grid in grids.items():
        launch = partial(_launch, module.get_function(name), grid, 512 if name == "half_rows" else 1024)
        yield f"{'reading bf16[65536,1000]':30s} {name:48s} {median(clock, partial(launch, out, values), 1):9.1f}"


def transposes(clock: Clock, cupy: Any) -> Iterator[str]:
    """A line for each way of elements through shared memory."""
    values = cupy.asarray(np.random.default_rng(1).integers(0, 1 << 16, (64, 256, 4096)).astype(np.uint16))
    want, out = values.transpose(0, 2, 1), cupy.zeros((64, 4096, 256), "uint16")
    module = cupy.RawModule(code=_TRANSPOSES, options=("--std=c++17",))
    for name in ("halves", "words"):
        out[...] = 0
        us = median(clock, partial(_launch, module.get_function(name), 16384, 128, out, values), 1)
        yield f"{'transpose bf16 0231':30s} {name:48s} {us:9.1f}   {'' if bool((out == want).all()) else 'differs'}"


def concatenations(clock: Clock, cupy: Any) -> Iterator[str]:
    """A line for each way to read what is not aligned."""
    draw = np.random.default_rng(1).integers
    pieces = [cupy.asarray(draw(0, 1 << 16, (8192, n)).astype(np.uint16)) for n in (4097, 2049, 1023)]
    want, out = cupy.concatenate(pieces, 1), cupy.zeros((8192, 7169), "uint16")
    module = cupy.RawModule(code=_CONCATENATIONS, options=("--std=c++17",))
    for name in ("elements", "shifted"):
        out[...] = 0
        us = median(clock, partial(_launch, module.get_function(name), 57352, 128, out, *pieces), 1)
        agrees = "" if bool((out == want).all()) else "differs"
        yield f"{'concatenate bf16, odd pieces':30s} {name:48s} {us:9.1f}   {agrees}"


def rotations(clock: Clock, cupy: Any) -> Iterator[str]:
    """A line for each way to rotate words: by shifts, and by products with the power of two, in another unit."""
    values, key = cupy.zeros(1 << 25, "float32"), cupy.asarray(np.array([7, 42], np.uint32))
    module, want = cupy.RawModule(code=_THREEFRY, options=("--std=c++17",)), None
    for name in ("shifts", "products_1_of_4", "products_2_of_4", "products_3_of_4", "products"):
        out = cupy.zeros_like(values)
        us = median(clock, partial(_launch, module.get_function(name), 1 << 16, 128, out, values, key), 1)
        want = out if want is None else want
        agrees = "" if bool((out == want).all()) and float(abs(want.mean() - 0.5)) < 1e-3 else "differs"
        yield f"{'uniform noise added f32':30s} {name:48s} {us:9.1f}   {agrees}"


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a program's name; default: all, and by hand")
    parser.add_argument("--seconds", type=float, default=50.0, help="begin nothing after that")
    given = parser.parse_args()
    start, clock = time.monotonic(), clock_of("cupy")
    import cupy

    by_hand = (scatters, columns, transposes, concatenations, rotations)
    groups = [(f"by hand: {each.__name__}", each(clock, cupy)) for each in by_hand]
    groups += [(name, planned(clock, name)) for name in PLANNED]
    failed = 0
    for name, lines in groups:
        if given.names and not any(part in name for part in given.names):
            continue
        try:
            for line in lines:
                print(line, flush=True)
                if time.monotonic() - start > given.seconds:
                    break
        except Exception as error:
            failed += 1
            print(f"{name}: {type(error).__name__}: {str(error)[:500]}", flush=True)
        if time.monotonic() - start > given.seconds:
            print(f"stopped after {given.seconds:.0f} s")
            break
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
