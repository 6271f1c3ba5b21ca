"""The texts of a bundle: the C header, the tables before `bundle.cpp`, and the Python module. Names from the dump are
escaped in all of them."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Sequence
from importlib import resources

import numpy as np

from hlo_opt.ir import Shape
from hlo_opt.jax.native import native_text
from hlo_opt.runtime.host.frozen import FRAME_WORDS, Frozen
from hlo_opt.runtime.host.own_routines import symbol_of

_C_TYPES = {
    **{f"{sign}{bits}": f"{'u' * (sign == 'u')}int{bits}_t" for sign in "su" for bits in (8, 16, 32, 64)},
    "pred": "uint8_t (0 or 1)",
    "f32": "float",
    "f64": "double",
    "c64": "float _Complex",
    "c128": "double _Complex",
    "bf16": "uint16_t (the bits)",
    "f16": "uint16_t (the bits)",
}
_RESERVED = frozenset(
    """
    auto break case char const continue default delete do double else enum export extern float for friend goto
    if inline int long main namespace new operator private protected public register restrict return short
    signed sizeof static struct switch template this throw try catch typedef typename union unsigned using
    virtual void volatile while
    """.split()
)
"""Reserved words of C and C++."""
_LONGEST = 60


def identifier(name: str) -> str:
    """A name that is valid in C, Python and file systems."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)[:_LONGEST] or "module"
    if plain[0].isdigit() or plain in _RESERVED or keyword.iskeyword(plain) or plain.startswith("_"):
        return f"module_{plain.lstrip('_')}"
    return plain


Donated = Sequence[tuple[int, int]]
"""(input, output), both as numbers: the output uses the memory of the donated input."""


def header(name: str, inputs: Sequence[Shape], outputs: Sequence[Shape], donated: Donated) -> str:
    """The C header."""
    guard = f"HLO_OPT_{name.upper()}_H"
    lines = [
        f"/* The module {name}, compiled by hlo-opt. Link with -l{name}.",
        " *",
        " * Arrays are dense, the last dimension fastest unless another order is named. They need no alignment; a "
        "multiple "
        "of 16 bytes saves a copy.",
        " * Outputs must not overlap inputs or each other, except where a line below says so. Several threads may "
        "call it at "
        "once. HLO_OPT_THREADS in the environment bounds the threads that it uses.",
        " *",
    ]
    for title, shapes in (("inputs", inputs), ("outputs", outputs)):
        lines += [f" * {title}[{k}]: {_described(shape)}" for k, shape in enumerate(shapes)] or [f" * no {title}"]
    lines += [
        f" * outputs[{result}] may be inputs[{source}]: it is written in place, without a copy"
        for source, result in donated
    ]
    lines += [
        " *",
        " * Returns 0; 1 where there is no memory for intermediate values, 2 where a kernel failed.",
        " */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        f"enum {{ {name}_input_count = {len(inputs)}, {name}_output_count = {len(outputs)} }};",
        *(f"#define {name}_input_{k}_bytes {shape.stored_bytes}ULL" for k, shape in enumerate(inputs)),
        *(f"#define {name}_output_{k}_bytes {shape.stored_bytes}ULL" for k, shape in enumerate(outputs)),
        "",
        f"int {name}(const void* const* inputs, void* const* outputs);",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def _described(shape: Shape) -> str:
    sizes = "".join(f"[{d}]" for d in shape.dimensions)
    order = (
        ""
        if shape.is_row_major
        else f", in memory dimension {', '.join(map(str, shape.minor_to_major))} from fastest to slowest"
    )
    several = f", {shape.type.per_byte} to a byte, the first in the lowest bits" if shape.type.per_byte > 1 else ""
    return (
        f"{shape.type.name}{sizes}, {shape.stored_bytes} bytes of "
        f"{_C_TYPES.get(shape.type.name, 'uint8_t (the bits)')}{order}{several}"
    )


ALIGNED = 64


def blob(frozen: Frozen) -> tuple[bytes, list[int]]:
    """Words and constants of a program in one block, and the offset of each. Each is followed by four bytes, because
    kernels read whole words."""
    data, places = bytearray(), []
    for array in (*frozen.words, *frozen.constants):
        data.extend(bytes(-len(data) % ALIGNED))
        places.append(len(data))
        data.extend(np.ascontiguousarray(array).tobytes() + bytes(4))
    return bytes(data), places


def program(name: str, frozen: Frozen, data: str, places: Sequence[int], handler: str) -> str:
    """The C++ text of a bundle's function. `data` is the path of the file with the `blob`; `handler` is the symbol of
    the FFI handler, or empty. It contains no names from the dump."""
    words, constants = places[: len(frozen.words)], places[len(frozen.words) :]
    # of a routine of the host's own only the address is taken
    functions = [*frozen.launchers, *map(symbol_of, frozen.own)]
    path = data.replace("\\", "\\\\").replace('"', '\\"')
    asm = (
        f".section .rodata\n.balign {ALIGNED}\n.globl hlo_opt_data\n.hidden hlo_opt_data\nhlo_opt_data:\n.incbin "
        f'"{path}"\n.previous\n'
    )
    rows = {
        "Routine routines": [
            f"{{(const Word*)(hlo_opt_data + {at}), {r.buffers}, {r.slots}}}"
            for at, r in zip(words, frozen.routines, strict=True)
        ],
        "Launcher functions": functions,
        "void* const constants": [f"hlo_opt_data + {at}" for at in constants],
        "Array input_arrays": [f"{{{slot}, {size}}}" for slot, size in frozen.inputs],
        "Array output_arrays": [f"{{{slot}, {size}}}" for slot, size in frozen.outputs],
        "Word held_in": [str(dict(frozen.donated).get(k, -1)) for k in range(len(frozen.inputs))],
    }
    numbers = {
        "memory_bytes": frozen.memory,
        "slot_count": frozen.slots,
        "frame_words": frozen.frames * FRAME_WORDS,
        "pointer_count": frozen.pointers,
        "input_count": len(frozen.inputs),
        "output_count": len(frozen.outputs),
    }
    lines = [
        "typedef long long Word;",
        "typedef int (*Launcher)(void**, Word, Word);",
        "struct Routine { const Word* words; Word buffers, slots; };",
        "struct Array { Word slot, bytes; };",
        f"__asm__({json.dumps(asm, ensure_ascii=False)});",
        'extern "C" __attribute__((visibility("hidden"))) const char hlo_opt_data[];',
        *(f'extern "C" int {symbol}(void**, Word, Word);' for symbol in dict.fromkeys(functions)),
        *(f"static const {what}[] = {{{', '.join(row) or '{}'}}};" for what, row in rows.items()),
        f"static Word timings[{2 * max(1, len(frozen.launchers))}];",
        *(f"static const Word {what} = {value};" for what, value in numbers.items()),
        f'#define HLO_ENTRY "{name}"',
        *([f'#define HLO_HANDLER "{handler}"'] if handler else []),
    ]
    return "\n".join(lines) + "\n" + native_text("thread_memory.h", "bundle.cpp")


def python_module(
    name: str,
    target: str,
    handler: str,
    inputs: Sequence[Shape],
    outputs: Sequence[Shape],
    donated: Donated,
    *,
    is_tuple: bool,
) -> str:
    """The Python module that registers the FFI handler and calls it."""
    body = resources.files("hlo_opt.jax").joinpath("bundle_module.txt").read_text(encoding="utf-8")
    values = {
        "NAME": name,
        "TARGET": repr(target),
        "HANDLER": handler,
        "INPUTS": _rows(inputs),
        "OUTPUTS": _rows(outputs),
        "DONATED": repr(dict(donated)),
        "IS_TUPLE": repr(is_tuple),
    }
    for key, text in values.items():
        body = body.replace(f"@{key}@", text)
    return body


def _rows(shapes: Sequence[Shape]) -> str:
    rows = [f"    ({s.type.numpy_name!r}, {s.dimensions!r}, {tuple(reversed(s.minor_to_major))!r}),\n" for s in shapes]
    return f"(\n{''.join(rows)})" if rows else "()"
