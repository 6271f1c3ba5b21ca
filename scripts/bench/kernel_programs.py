"""The programs of `kernel_limits`: patterns of real models, each by itself, with what a review by hand said of their
kernels.

The review read the kernels of commit a121473 and their machine code for an H100, without a device: its shares are
reasoned, not measured.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import hlo_opt
from hlo_opt.ir import Module

Array = Any
Function = Callable[..., Any]


@dataclass(frozen=True)
class Program:
    """A pattern.

    name      with its size
    made      its module
    plan      the kinds of its kernels, as the review saw them; none where it saw none
    share     least and most of what the review gave it, in percent of a copy; None where it saw none
    least     bytes that it moves at the least; None: its parameters and results, each once
    finding   of the review, where one names it
    launches  as the review counted them
    loads     bits of the widest load to the largest operand, as the review saw it; 0: it does not say
    since     what the code of its kernels did then, and no longer does
    reason    why it stays further below a copy than others, where that is the device's doing
    """

    name: str
    made: Made
    plan: str = ""
    share: tuple[float, float] | None = None
    least: float | None = None
    finding: str = ""
    launches: int = 1
    loads: int = 0
    since: str = ""
    reason: str = ""


MOST_HELD = 1 << 17
"""Elements of a row that is read once: of f32 in the registers of a cluster of eight blocks."""
PAIRS = "each rounding to bf16 in the slow pipe"


def spec(dtype: Any, *shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


@dataclass(frozen=True)
class Made:
    """Makes the module of a function: that of an entry's text, where there is one, or else the one that JAX makes."""

    function: Function
    arguments: tuple[Any, ...]
    text: str = ""

    def __call__(self) -> Module:
        if self.text:
            return hlo_opt.parse(f"HloModule written\n\nENTRY main {{\n{self.text}}}\n")
        return hlo_opt.parse(str(jax.jit(self.function).lower(*self.arguments).as_text("hlo")))


def traced(function: Function, *arguments: Any) -> Made:
    """The module that JAX makes of a function."""
    return Made(function, arguments)


F32, BF16, F16, S8, U8 = jnp.float32, jnp.bfloat16, jnp.float16, jnp.int8, jnp.uint8
NAMES = {F32: "f32", BF16: "bf16", F16: "f16", S8: "s8", U8: "u8"}


def _chain(x: Array, y: Array, z: Array) -> Array:
    return (x * y + z) * x - y


def _gelu_gradient(x: Array, g: Array) -> Array:
    return jax.vjp(jax.nn.gelu, x)[1](g)[0]


def _norm(x: Array, scale: Array, offset: Array) -> Array:
    wide = x.astype(F32)
    mean = wide.mean(-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(-1, keepdims=True)
    return ((wide - mean) * lax.rsqrt(variance + 1e-5) * scale + offset).astype(x.dtype)


def _norm_gradient(x: Array, scale: Array, offset: Array, g: Array) -> Array:
    return jax.vjp(_norm, x, scale, offset)[1](g)


def _rms_norm(x: Array, scale: Array) -> Array:
    wide = x.astype(F32)
    return x * lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-6).astype(x.dtype) * scale


def _bias_gradient(x: Array, b: Array, g: Array) -> Array:
    return jax.vjp(lambda x, b: x + b, x, b)[1](g)[1]


def _causal(x: Array) -> Array:
    length = x.shape[-1]
    mask = lax.broadcasted_iota(jnp.int32, (length, length), 0) >= lax.broadcasted_iota(jnp.int32, (length, length), 1)
    return jax.nn.softmax(jnp.where(mask, x, jnp.asarray(-1e9, x.dtype)), axis=-1)


def _batch_norm(x: Array, scale: Array, offset: Array) -> Array:
    mean = x.mean((0, 1, 2))
    variance = jnp.square(x - mean).mean((0, 1, 2))
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + offset


def _batch_norm_gradient(x: Array, scale: Array, offset: Array, g: Array) -> Array:
    return jax.vjp(_batch_norm, x, scale, offset)[1](g)


def _rotated(x: Array, cosine: Array, sine: Array) -> Array:
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * cosine - b * sine, b * cosine + a * sine], -1)


def _cross_entropy(logits: Array, labels: Array) -> Array:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits, -1), labels[:, None], 1).mean()


def _pool(x: Array) -> Array:
    return lax.reduce_window(x, jnp.asarray(-jnp.inf, x.dtype), lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def _adam(state: Any) -> Any:
    def one(p: Array, g: Array, m: Array, v: Array) -> Any:
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        return p - 1e-3 * (m / 0.1) / (jnp.sqrt(v / 0.001) + 1e-8), m, v

    return [one(*arrays) for arrays in state]


def _adam_state() -> Any:
    shapes = [(768 + 24 * n, 2000) for n in range(33)] + [(768 + 24 * n,) for n in range(17)]
    return [tuple(spec(F32, *shape) for _ in range(4)) for shape in shapes]


def _argmax(x: Array) -> Array:
    return jnp.argmax(x, -1)


def _dequantized(w: Array, scale: Array, x: Array) -> Array:
    return w.astype(BF16) * scale * x


def _noise(key: Array, x: Array) -> Array:
    return x + jax.random.uniform(jax.random.wrap_key_data(key, impl="threefry2x32"), x.shape)


def _softmax(x: Array) -> Array:
    return jax.nn.softmax(x, -1)


def transposed(dtype: Any, given: str, permutation: Sequence[int]) -> Made:
    sizes = [int(n) for n in given.split(",")]
    made = ",".join(str(sizes[d]) for d in permutation)
    order = ",".join(str(d) for d in reversed(range(len(sizes))))
    name = NAMES[dtype]
    text = (
        f"  p = {name}[{given}]{{{order}}} parameter(0)\n"
        f"  ROOT t = {name}[{made}]{{{order}}} transpose(p), dimensions={{{','.join(map(str, permutation))}}}\n"
    )
    return Made(lambda x: jnp.transpose(x, permutation), (spec(dtype, *sizes),), text)


def _scatter(dtype: Any) -> Made:
    arguments = spec(dtype, 131072, 1024), spec(jnp.int32, 65536), spec(dtype, 65536, 1024)
    return traced(lambda t, i, u: t.at[i].add(u), *arguments)


def _update(cache: Array, new: Array, place: Array) -> Array:
    return lax.dynamic_update_slice(cache, new, (0, place, 0))


def _softmaxes() -> list[Program]:
    said = {
        (262144, 128): ((75, 85), (55, 65)),
        (32768, 1024): ((85, 90), (70, 80)),
        (8192, 4096): ((85, 90), (70, 80)),
        (1024, 32768): ((85, 92), (55, 65)),  # f32 as measured on an H200
        (256, 131072): ((40, 50), (40, 50)),
    }
    found = [
        Program(
            f"softmax {NAMES[t]} {r}x{c}",
            traced(_softmax, spec(t, r, c)),
            "row-reduction",
            shares[k],
            1.5 * 2 * r * c * (4, 2)[k] if c > MOST_HELD else None,  # read for the sums, read with them, written
            loads=(128, 64)[k],
            since=PAIRS if t is BF16 else "",
        )
        for (r, c), shares in said.items()
        for k, t in enumerate((F32, BF16))
    ]
    return [
        *found,
        Program(
            "softmax bf16 1024x50257",
            traced(_softmax, spec(BF16, 1024, 50257)),
            "row-reduction",
            (35, 50),
            loads=16,
            since=PAIRS,
        ),
    ]


def _by_element() -> list[Program]:
    def chain(t: Any, rows: int, columns: int, share: tuple[float, float]) -> Program:
        return Program(
            f"chain of 3 {NAMES[t]} {rows}x{columns}",
            traced(_chain, *[spec(t, rows, columns)] * 3),
            "loop",
            share,
            loads=128,
            since=PAIRS if t is BF16 else "",
        )

    square = spec(BF16, 8192, 8192)
    return [
        chain(F32, 8192, 4096, (97, 97)),
        chain(BF16, 8192, 4096, (93, 97)),
        chain(F16, 8192, 4096, (95, 95)),
        chain(S8, 16384, 8192, (95, 95)),
        Program("bias, gelu bf16 16384x4096",
            traced(lambda x, b: jax.nn.gelu(x + b), spec(BF16, 16384, 4096), spec(BF16, 4096)), "loop", (40, 60),
            finding="F6", loads=128, since=PAIRS),
        Program("gelu gradient bf16 8192x8192", traced(_gelu_gradient, square, square), "loop", (30, 60), finding="F6",
            loads=128, since=PAIRS),
        Program("swiglu bf16 8192x8192", traced(lambda x, y: jax.nn.silu(x) * y, square, square), "loop", (70, 80),
            finding="F6", loads=128, since=PAIRS),
        Program("int4 scaled bf16 8192x8192",
            traced(_dequantized, spec(jnp.int4, 8192, 8192), spec(BF16, 8192), square), "loop", (92, 92), loads=128,
            since=PAIRS),
        Program("after a product: bias, gelu bf16 4096x4096",
            traced(lambda x, b: jax.nn.gelu(x + b), spec(BF16, 4096, 4096), spec(BF16, 4096)), "loop", (50, 50),
            finding="F6", loads=128, since=PAIRS),
        Program("Adam f32, 50 arrays", traced(_adam, _adam_state()), "loop", (78, 78), finding="F7", launches=34,
            loads=128),
        Program("uniform noise added f32 33.5M", traced(_noise, spec(jnp.uint32, 2), spec(F32, 1 << 25)), "loop",
            (20, 20), launches=6, loads=128, reason="twenty rounds of threefry for two elements: instructions"),
    ]  # fmt: skip


def _folds() -> list[Program]:
    found = []
    for t, forward, backward in ((F32, (88, 88), (32, 32)), (BF16, (78, 85), (30, 30))):
        x, row = spec(t, 8192, 4096), spec(F32, 4096)
        name = NAMES[t]
        found += [
            Program(f"layer norm {name} 8192x4096", traced(_norm, x, row, row), "row-reduction", forward,
                loads=128 if t is F32 else 64, since=PAIRS if t is BF16 else ""),
            Program(f"layer norm gradient {name} 8192x4096", traced(_norm_gradient, x, row, row, x),
                "row-reduction+loop+column-reduction", backward, finding="F3", launches=9, loads=32 if t is F32 else 16,
                since=PAIRS if t is BF16 else "",
                reason="" if t is F32 else "26 instructions for each element, as in f32, but half the bytes"),
        ]  # fmt: skip
    x = spec(BF16, 8192, 4096)
    found += [
        Program(
            "rms norm bf16 8192x4096",
            traced(_rms_norm, x, spec(BF16, 4096)),
            "row-reduction",
            (78, 85),
            loads=64,
            since=PAIRS,
        )
    ]
    wide = functools.partial(jnp.sum, dtype=F32)
    activations = 64 * 56 * 56 * 256 * 4  # read twice, for the sums and with them; and written
    for t, share in ((F32, (92, 92)), (BF16, (88, 88))):
        found += [
            Program(
                f"row sum {NAMES[t]} 16384x4096",
                traced(lambda x: wide(x, -1), spec(t, 16384, 4096)),
                "row-reduction",
                share,
                loads=128 if t is F32 else 64,
            )
        ]
    columns = [
        (F32, 8388608, 4, (88, 92), 32),
        (F32, 65536, 1000, (75, 85), 32),
        (BF16, 65536, 1000, (60, 75), 16),
        (F32, 1024, 65536, (88, 92), 64),
        (BF16, 1024, 65536, (88, 92), 64),
    ]
    found += [
        Program("row sum f32 1048576x64", traced(lambda x: x.sum(-1), spec(F32, 1 << 20, 64)), "row-reduction",
            (65, 75), loads=64),
        Program("row sum f32 8388608x8", traced(lambda x: x.sum(-1), spec(F32, 1 << 23, 8)), "row-reduction", (60, 70),
            loads=64),
        *(Program(f"column sum {NAMES[t]} {r}x{c}", traced(lambda x: wide(x, 0), spec(t, r, c)), "column-reduction",
            share, finding="" if c != 1000 else "F10", loads=loads) for t, r, c, share, loads in columns),
        Program("bias gradient bf16 16384x4096",
            traced(_bias_gradient, spec(BF16, 16384, 4096), spec(BF16, 4096), spec(BF16, 16384, 4096)), "loop", (2, 4),
            2.0 * 16384 * 4096 + 8192, "F1", loads=16, launches=2),
        Program("full sum f32 33.5M", traced(lambda x: x.sum(), spec(F32, 1 << 25)), "row-reduction", (90, 93),
            loads=128),
        Program("full sum bf16 67M", traced(lambda x: wide(x), spec(BF16, 1 << 26)), "row-reduction", (90, 93),
            loads=64),
        Program("argmax f32 8192x8192", traced(_argmax, spec(F32, 8192, 8192)), "row-reduction", (90, 90), loads=128),
        Program("argmax bf16 8192x8192", traced(_argmax, spec(BF16, 8192, 8192)), "loop", (10, 10), finding="F1",
            loads=16),
        Program("argmax bf16 256x131072", traced(_argmax, spec(BF16, 256, 131072)), "loop", (0.3, 0.3), finding="F1",
            loads=16),
        Program("cumsum f32 8192x4096", traced(lambda x: jnp.cumsum(x, 1), spec(F32, 8192, 4096)), "loop", (0.1, 0.1),
            finding="F2", loads=32),
        Program("cumsum f32 16.7M", traced(jnp.cumsum, spec(F32, 1 << 24)), "loop", (1e-5, 1e-5), finding="F2",
            loads=32),
        Program("batch norm f32 64x56x56x256",
            traced(_batch_norm, spec(F32, 64, 56, 56, 256), spec(F32, 256), spec(F32, 256)), "column-reduction+loop",
            (42, 42), 3.0 * activations, launches=3),
        Program("batch norm gradient f32 64x56x56x256",
            traced(_batch_norm_gradient, spec(F32, 64, 56, 56, 256), spec(F32, 256), spec(F32, 256),
                spec(F32, 64, 56, 56, 256)), "column-reduction+loop", (32, 32), 5.0 * activations, loads=32,
                    launches=11),
        Program("masked softmax bf16 64x1024x1024", traced(_causal, spec(BF16, 64, 1024, 1024)), "row-reduction",
            (70, 80), loads=64, since=PAIRS),
        Program("cross entropy f32 8192x32000", traced(_cross_entropy, spec(F32, 8192, 32000), spec(jnp.int32, 8192)),
            "row-reduction+loop", (45, 45), finding="F3", launches=5, loads=128),
    ]  # fmt: skip
    return found


def _moves() -> list[Program]:
    gathered = 65536 * 1024 * 4
    halves = spec(BF16, 64, 1024, 16, 128), spec(BF16, 1024, 1, 64), spec(BF16, 1024, 1, 64)
    odd = [spec(BF16, 8192, n) for n in (4097, 2049, 1023)]
    return [
        Program("transpose f32 4096x4096", transposed(F32, "4096,4096", (1, 0)), "tiled-transpose", (75, 85),
            loads=32),
        Program("transpose f32 8192x8192", transposed(F32, "8192,8192", (1, 0)), "tiled-transpose", (75, 85),
            loads=32),
        Program("transpose bf16 8192x8192", transposed(BF16, "8192,8192", (1, 0)), "tiled-transpose", (75, 85),
            loads=32),
        Program("transpose bf16 0231", transposed(BF16, "64,256,64,64", (0, 2, 3, 1)), "tiled-transpose", (75, 85),
            loads=32),
        Program("transpose bf16 3210", transposed(BF16, "64,128,64,128", (3, 2, 1, 0)), "tiled-transpose", (75, 85),
            loads=32),
        Program("transpose f32 0213", transposed(F32, "16,1024,32,128", (0, 2, 1, 3)), "loop", (93, 93), loads=128),
        Program("x.T + y f32 8192x8192", traced(lambda x, y: x.T + y, *[spec(F32, 8192, 8192)] * 2), "loop", (12, 20),
            finding="F4", loads=128),
        Program("concatenate f32", traced(lambda *x: jnp.concatenate(x, -1), *[spec(F32, 8192, 2048)] * 2),
            "concatenate", (95, 95), loads=128),
        Program("concatenate bf16", traced(lambda *x: jnp.concatenate(x, -1), *[spec(BF16, 8192, 4096)] * 2),
            "concatenate", (95, 95), loads=64),
        Program("concatenate bf16, odd "
                "pieces", traced(lambda *x: jnp.concatenate(x, -1), *odd), "concatenate", (45, 60), loads=16),
        Program("pad by 1 f32 8192x4096", traced(lambda x: jnp.pad(x, 1), spec(F32, 8190, 4094)), "loop", (85, 90),
            loads=32),
        Program("pad by 1 bf16 8192x8192", traced(lambda x: jnp.pad(x, 1), spec(BF16, 8190, 8190)), "loop", (85, 90)),
        Program("embedding f32 131072x1024",
            traced(lambda t, i: jnp.take(t, i, 0), spec(F32, 131072, 1024), spec(jnp.int32, 65536)), "loop+gather",
            (85, 90), 2.0 * gathered, loads=128, launches=2),
        Program("scatter-add f32 131072x1024", _scatter(F32), "scatter", (45, 60), 3.0 * gathered, "F9", loads=32),
        Program("scatter-add bf16 131072x1024", _scatter(BF16), "scatter", (10, 20), 1.5 * gathered, "F9", loads=16),
        Program("update of a cache of 134 MB bf16",
            traced(_update, spec(BF16, 64, 8192, 128), spec(BF16, 64, 1, 128), spec(jnp.int32)), "dynamic-update-slice",
            (0, 1), 2.0 * 64 * 128 * 2, "F5", loads=16, reason="16 kB: the launch takes longer"),
        Program("max pool f32 128x112x112x64", traced(_pool, spec(F32, 128, 112, 112, 64)), "loop", (65, 75), loads=32),
        Program("max pool bf16 128x112x112x64", traced(_pool, spec(BF16, 128, 112, 112, 64)), "loop", (45, 55),
            loads=16, since=PAIRS),
        Program("rotary embedding bf16", traced(_rotated, *halves), "concatenate", (92, 92), since=PAIRS),
        Program("rotary embedding f32", traced(_rotated, *[spec(F32, *s.shape) for s in halves]), "concatenate",
            (92, 92)),
    ]  # fmt: skip


def programs() -> list[Program]:
    """All of them."""
    return [*_by_element(), *_softmaxes(), *_folds(), *_moves()]


def least_bytes(program: Program, module: Module) -> float:
    """What the program has to move: what it is told, or else its parameters and results, each once."""
    if program.least is not None:
        return program.least
    entry = module.entry
    shapes = [leaf for value in (*entry.parameters, entry.root) for leaf in value.shape.leaves()]
    return float(sum(shape.byte_size / shape.type.per_byte for shape in shapes))
