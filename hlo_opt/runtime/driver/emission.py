"""The folder that `--emit` writes: kernels, driver, manifest and a page on how to run it. It is written completely or
not at all."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.options import compile_options
from hlo_opt.diag import UsageError
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Instruction, Module, Shape
from hlo_opt.ops.sets import launches as does_work
from hlo_opt.runtime.cupy.device import refuse_large_grids
from hlo_opt.runtime.driver.writer import driver_of
from hlo_opt.runtime.schedule import Schedule, build_schedule
from hlo_opt.runtime.schedule.open_sizes import refuse_open_sizes
from hlo_opt.runtime.schedule.ops import CallOp, ConstantOp, LaunchOp
from hlo_opt.text.frames import source_location

_OURS = frozenset({"README.md", "__pycache__", "constants.npz", "driver.py", "kernels", "manifest.json"})

_MOST_LINES = 50  # source lines per kernel in the manifest
_MOST_SHOWN, _LONGEST_LINE = 5, 200  # source lines at the top of a CUDA file, and their longest length

_README = """\
# How to run this

`driver.py` needs CuPy, NumPy and an NVIDIA GPU; nothing else of hlo-opt.

```python
from driver import run
outputs = run(*arrays)   # one NumPy array per entry parameter, tuples flattened in order
```

`run_on_device` does the same from arrays on the GPU (of CuPy, or any DLPack producer) to CuPy arrays, without copies;
with `donate=True` it overwrites the inputs that the header donates (`input_output_alias`), which `DONATED` lists.

`INPUTS` and `OUTPUTS` in `driver.py` list the arrays. Types that NumPy lacks are raw bits: `uint16` for bf16. From a
shell, an `.npz` file holds the inputs as `in0`, `in1`, ... and another receives the outputs as `out0`, `out1`, ...;
without inputs, zeros are used:

    python driver.py in.npz out.npz

- `kernels/*.cu`: {kernels} for {target}, one CUDA text each; CuPy compiles it at its first launch, and caches it
- To launch one of them yourself: blocks and threads are in `manifest.json`; there is no dynamic shared memory. Pass a
  pointer per input and then per output, each aligned to 16 bytes. Where `kept_bytes` is not 0, add a pointer to that
  many bytes, which must be 0 before the first launch, and which concurrent launches must not share. Where `cooperative`
  is true, blocks wait for each other: use `cudaLaunchCooperativeKernel` (CuPy: `enable_cooperative_groups=True`), which
  refuses a launch that could hang. Compile with the `options` of `manifest.json` and without `-ftz=true`, which
  `cupy.RawKernel` adds: it flushes denormal numbers to zero
- `manifest.json`: the compile options; for each kernel its plan, grid, block, shared memory and kept memory (bytes),
  whether its launch is cooperative, the shapes of its buffers and its Python lines; which instruction launches which
  kernel; and the library calls
- {launches} and {library} are in the program (those inside loops are counted once)
"""

_NOT_OF_A_PATH = re.compile(r"[^A-Za-z0-9_./: -]")


def emit(
    module: Module,
    directory: str | os.PathLike[str],
    target: str | DeviceTarget | None = None,
    *,
    precise: bool = False,
) -> None:
    """Write the kernels of a module, and a driver that runs them, into a folder.

    The folder must be new, empty or written by `emit` before (it is then replaced). Kernels are planned for `target`,
    or for the device that the module was fused for; `precise` as for `compile`.

    Raises UsageError when the folder cannot be used, and BackendError when an operation has neither a kernel nor a CuPy
    call, or (HLO514) a size is open. Then nothing is left behind.
    """
    refuse_open_sizes(module, "no driver")
    schedule = build_schedule(module, target)
    folder = check_folder(directory)
    files = kernel_files(schedule.kernels)
    refuse_large_grids(schedule, "no driver", "split the array")
    driver, lines = driver_of(schedule, files, precise=precise), lines_of_kernels(schedule)
    with replacing(folder) as partial:
        (partial / "kernels").mkdir()
        for kernel in schedule.kernels:
            text = _lines_as_comments(lines[kernel.symbol]) + kernel.source
            (partial / files[kernel.symbol]).write_text(text, encoding="utf-8")
        (partial / "driver.py").write_text(driver.text, encoding="utf-8")
        if driver.constants:
            np.savez(partial / "constants.npz", **driver.constants)  # type: ignore[arg-type]
        manifest = manifest_of(schedule, files, precise=precise)
        (partial / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        nouns = {"kernels": "distinct kernel", "launches": "kernel launch", "library": "library call"}
        lists = manifest["kernels"], manifest["launches"], manifest["library"]
        counts = {name: _counted(len(rows), noun) for (name, noun), rows in zip(nouns.items(), lists, strict=True)}
        text = _README.format(**counts, target=schedule.target.title)
        (partial / "README.md").write_text(text, encoding="utf-8")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('ch') else 's'}"


def manifest_of(schedule: Schedule, files: dict[str, str], *, precise: bool = False) -> dict[str, Any]:
    """The content of `manifest.json`.

    `target` is the device of the kernels, `options` are NVRTC's. Each executed instruction that does
    work is listed once, in `launches` or in `library`, with the bytes that it reads and writes and its estimated
    microseconds; if it needs several kernels (random bits and the generator's new state), `further_symbols` names the
    others. `elided`, if any, are the constants that the text leaves out, which the driver takes as arguments.
    """
    launches: dict[Instruction, dict[str, Any]] = {}
    library = []
    lines = lines_of_kernels(schedule)
    prices = FusionState(schedule.module, schedule.target).prices
    for routine, op in schedule.ops():
        name = op.instruction.name
        if isinstance(op, LaunchOp):
            if op.instruction in launches:
                launches[op.instruction].setdefault("further_symbols", []).append(op.kernel.symbol)
                continue
            price = prices.of(op.instruction)
            launches[op.instruction] = {
                "instruction": name,
                "symbol": op.kernel.symbol,
                "computation": routine.computation.name,
                "bytes": round(price.bytes),
                "est_us": round(price.us, 3),
            }
        elif isinstance(op, CallOp) and does_work(op.instruction):
            library.append({"instruction": name, "call": op.call, "est_us": round(prices.of(op.instruction).us, 3)})
    kernels = [
        {
            "symbol": k.symbol,
            "file": files[k.symbol],
            "plan": k.kind,
            **asdict(k.launch),
            "kept_bytes": k.kept,
            "inputs": [described(shape) for shape in k.inputs],
            "outputs": [described(shape) for shape in k.outputs],
            "source": lines[k.symbol][:_MOST_LINES],
        }
        for k in schedule.kernels
    ]
    elided = [
        {"name": literal.origin, "type": literal.shape.type.name, "dimensions": list(literal.shape.dimensions)}
        for _, op in schedule.ops()
        for literal in (op.literals if isinstance(op, ConstantOp) else ())
        if not literal.is_known
    ]
    return {
        "target": schedule.target.name,
        "options": list(compile_options(precise=precise)),
        "kernels": kernels,
        "launches": list(launches.values()),
        "library": library,
        **({"elided": elided} if elided else {}),
    }


def lines_of_kernels(schedule: Schedule) -> dict[str, list[str]]:
    """The Python lines behind each kernel, by symbol, from all instructions that launch it."""
    lines_of: dict[str, dict[str, None]] = {k.symbol: {} for k in schedule.kernels}
    for _, op in schedule.ops():
        if isinstance(op, LaunchOp):
            lines_of[op.kernel.symbol].update(dict.fromkeys(source_lines(schedule.module, op.instruction)))
    return {symbol: list(lines) for symbol, lines in lines_of.items()}


def _lines_as_comments(lines: Sequence[str]) -> str:
    """The first of some Python lines as CUDA comments. They are untrusted text of the dump, so that unusual characters
    become `_`: no line can end its comment or continue it."""
    shown = [_NOT_OF_A_PATH.sub("_", line) for line in lines[:_MOST_SHOWN]]
    more = [f"and {len(lines) - len(shown)} more lines: see manifest.json"] if len(lines) > len(shown) else []
    return "".join(f"// from {line[:_LONGEST_LINE]}\n" for line in [*shown, *more])


def source_lines(module: Module, instruction: Instruction) -> list[str]:
    """`file:line` of the Python code behind a launched instruction: its own, then those of its fused instructions.

    They are untrusted text of the dump, to be written only as JSON strings.
    """
    lines = dict.fromkeys([source_location(module, instruction)])
    for computation in instruction.called() if instruction.opcode == "fusion" else ():
        lines.update(dict.fromkeys(source_location(module, i) for i in computation.instructions))
    return [line for line in lines if line]


def described(shape: Shape) -> dict[str, Any]:
    """A buffer in a manifest."""
    return {
        "type": shape.type.name,
        "dimensions": list(shape.dimensions),
        "minor_to_major": list(shape.minor_to_major),
        "bytes": shape.stored_bytes,
    }


def kernel_files(kernels: tuple[Kernel, ...]) -> dict[str, str]:
    """The file of each kernel by symbol. Names differ in more than case, for case-insensitive file systems."""
    files: dict[str, str] = {}
    used: set[str] = set()
    for kernel in kernels:
        assert kernel.symbol.isascii() and kernel.symbol.isidentifier(), kernel.symbol
        stem, number = kernel.symbol, 1
        while stem.lower() in used:
            number += 1
            stem = f"{kernel.symbol}_{number}"
        used.add(stem.lower())
        files[kernel.symbol] = f"kernels/{stem}.cu"
    return files


def check_folder(directory: str | os.PathLike[str], ours: Collection[str] = _OURS) -> Path:
    """The real path of a folder to write into as a whole. Raises UsageError for a path that is not a folder, or for a
    folder that has no manifest or files other than `ours`."""
    target = Path(os.path.realpath(directory))
    try:
        if not target.exists():
            return target
        if not target.is_dir():
            raise UsageError(f"{target} is not a folder", code="HLO330")
        names = sorted(p.name for p in target.iterdir())
    except OSError as error:
        raise unusable(target, error) from None
    foreign = [name for name in names if name not in ours]
    if names and (foreign or "manifest.json" not in names):
        raise UsageError(
            f"{target} holds {foreign[0] if foreign else names[0]}, which hlo-opt did not write",
            code="HLO331",
            hint="name a new or empty folder",
        )
    return target


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A new folder to write into, which takes the place of the target at the end. After an error the target is as it
    was. Raises UsageError (HLO332) for what cannot be written."""
    partial = target.parent / f".{target.name}.{os.getpid()}.partial"
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise unusable(target, error) from None  # a folder that was there is another thread's
    try:
        yield partial
        put_in_place(partial, target)
    except OSError as error:
        raise unusable(target, error) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def put_in_place(partial: Path, target: Path) -> None:
    """Rename the finished folder over the target. An older one is deleted only after that."""
    if not target.exists() or not any(target.iterdir()):
        partial.replace(target)
        return
    old = target.parent / f".{target.name}.{os.getpid()}.old"
    target.rename(old)
    try:
        partial.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def unusable(target: Path, error: OSError) -> UsageError:
    """The error for a folder that cannot be written."""
    return UsageError(f"cannot write {target}: {error.strerror or error}", code="HLO332")
