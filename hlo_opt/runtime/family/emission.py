"""The folder that `--emit` writes for a range of sizes: the kernels of a family and a manifest, whose numbers are C
expressions of the size."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.options import compile_options
from hlo_opt.ir import Shape
from hlo_opt.ir.size import NAME, Size, most
from hlo_opt.runtime.driver.emission import check_folder, kernel_files, replacing
from hlo_opt.runtime.family.kernels import Family, SizeVariant
from hlo_opt.runtime.schedule.ops import CallOp, LaunchOp


def emit_family(kernels: Family, directory: str | os.PathLike[str], *, precise: bool = False) -> None:
    """Write the kernels of a family into a folder, which must be new, empty or written before. Raises UsageError when
    it cannot be used."""
    folder, files = check_folder(directory), kernel_files(kernels.kernels)
    with replacing(folder) as partial:
        (partial / "kernels").mkdir()
        for kernel in kernels.kernels:
            (partial / files[kernel.symbol]).write_text(kernel.source, encoding="utf-8")
        text = json.dumps(manifest_of(kernels, files, precise=precise), indent=1)
        (partial / "manifest.json").write_text(text + "\n", encoding="utf-8")


def manifest_of(kernels: Family, files: dict[str, str], *, precise: bool = False) -> dict[str, object]:
    """The content of `manifest.json`.

    `dynamic` has the range, its sizes (`[first, last, step]`) and the dimensions that follow the size. Numbers that do
    are strings: C expressions of `size`, with the values of 32-bit or 64-bit ints. A kernel whose `takes_size` is true
    takes it as its last argument, an `int`. `variants` says for which sizes which instruction launches which kernel.
    """
    return {
        "target": kernels.target.name,
        "options": list(compile_options(precise=precise)),
        "dynamic": {
            "size": NAME,
            "least": kernels.ties.least,
            "most": kernels.ties.most,
            "sizes": runs(kernels.ties.sizes),
            "of": kernels.ties.parameters,
        },
        "kernels": [_described(kernel, files[kernel.symbol]) for kernel in kernels.kernels],
        "variants": [_variant(variant) for variant in kernels.variants],
    }


def _described(kernel: Kernel, file: str) -> dict[str, object]:
    launch = kernel.launch
    return {
        "symbol": kernel.symbol,
        "file": file,
        "plan": kernel.kind,
        "grid": number(launch.grid),
        "block": launch.block,
        "shared_bytes": launch.shared_bytes,
        "cooperative": launch.cooperative,
        "kept_bytes": most(kernel.kept),
        "takes_size": isinstance(kernel.size, Size),
        "inputs": [_buffer(shape) for shape in kernel.inputs],
        "outputs": [_buffer(shape) for shape in kernel.outputs],
    }


def _buffer(shape: Shape) -> dict[str, object]:
    return {
        "type": shape.type.name,
        "dimensions": [number(d) for d in shape.dimensions],
        "minor_to_major": list(shape.minor_to_major),
    }


def _variant(variant: SizeVariant) -> dict[str, object]:
    symbols: dict[tuple[str, str], list[str]] = {}
    library = []
    for routine, op in variant.schedule.ops():
        name = op.instruction.name
        if isinstance(op, LaunchOp):
            symbols.setdefault((routine.computation.name, name), []).append(op.kernel.symbol)
        elif isinstance(op, CallOp) and op.kind != "empty":
            library.append({"instruction": name, "call": op.call})
    launches = [
        {
            "instruction": name,
            "computation": computation,
            "symbol": first,
            **({"further_symbols": more} if more else {}),
        }
        for (computation, name), (first, *more) in symbols.items()
    ]
    return {"sizes": runs(variant.sizes), "launches": launches, "library": library}


def number(value: int) -> int | str:
    """A number of a manifest: plain, or a C expression of the size."""
    return f"{value}" if isinstance(value, Size) else value


def runs(sizes: Sequence[int]) -> list[list[int]]:
    """Ascending sizes as arithmetic sequences, `[first, last, step]` each."""
    rows: list[list[int]] = []
    for size in sizes:
        if rows and (rows[-1][0] == rows[-1][1] or size - rows[-1][1] == rows[-1][2]):
            rows[-1] = [rows[-1][0], size, size - rows[-1][1]]
        else:
            rows.append([size, size, 1])
    return rows


def sizes_of(rows: Iterable[Sequence[int]]) -> list[int]:
    """The sizes that `runs` wrote."""
    return [size for first, last, step in rows for size in range(first, last + 1, step)]
