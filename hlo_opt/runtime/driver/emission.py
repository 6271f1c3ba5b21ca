"""The folder that `--emit` writes: kernels, driver, manifest and a page on how to run it; all of it or nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
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
from hlo_opt.runtime.schedule.ops import Call, Constant, Launch
from hlo_opt.text.frames import source_location

_OURS = frozenset({"README.md", "__pycache__", "constants.npz", "driver.py", "kernels", "manifest.json"})

_MOST_LINES = 50  # source lines of one kernel that the manifest lists
_MOST_SHOWN, _LONGEST_LINE = 5, 200  # that its CUDA text begins with, and characters of each

_README = """\
# How to run this

`driver.py` needs CuPy, NumPy and an NVIDIA GPU; nothing else of hlo-opt.

```python
from driver import run
outputs = run(*arrays)   # one NumPy array per entry parameter, tuples flattened in order
```

`run_on_device` does the same from arrays on the GPU (CuPy, or whatever speaks DLPack) to arrays of CuPy, without copies; with `donate=True` it writes into the inputs that the module's
header gives away (`input_output_alias`), which `DONATED` lists.

`INPUTS` and `OUTPUTS` in `driver.py` list what it takes and gives. Types that NumPy lacks are raw bits: `uint16` for bf16. Or from a shell, where an `.npz` file
holds the inputs as `in0`, `in1`, ... and gets the outputs as `out0`, `out1`, ...; without inputs, zeros are taken:

    python driver.py in.npz out.npz

- `kernels/*.cu`: {kernels} for {target}, one CUDA text each; CuPy compiles it when it is first launched, and keeps it in its own cache
- To launch one of them yourself: blocks and threads as in `manifest.json`, no dynamic shared memory, a pointer per input and then per output, each to a multiple of 16
  bytes, and where `kept_bytes` is not 0 one more to so many bytes, which are 0 before the first launch and which launches that overlap must not share. Where `cooperative` is true, blocks
  wait for each other: launch it with `cudaLaunchCooperativeKernel` (CuPy: `enable_cooperative_groups=True`), which refuses what could hang. Compile with the `options` of
  `manifest.json` and without `-ftz=true`, which `cupy.RawKernel` adds: denormal numbers would be zeros
- `manifest.json`: the options that kernels are compiled with; for each kernel its plan, grid, block, shared memory and memory in which blocks meet (bytes), whether its launch is a cooperative one, the shapes of its buffers and the Python lines that it comes from; which
  instruction launches which; and the library calls
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
    """Write the kernels of a module and a driver that runs them into a folder that is new, empty or one that `emit` wrote (it is replaced).
    Kernels are made for `target`, or for the device that the module was fused for; `precise` as for `compile`.

    Raises UsageError when the folder cannot be used and BackendError when an operation has neither a kernel nor a CuPy call. Then nothing is left behind.
    """
    schedule = build_schedule(module, target)
    folder = check_folder(directory)
    files = kernel_files(schedule.kernels)
    refuse_large_grids(schedule, "no driver", "split the array")
    driver, lines = driver_of(schedule, files, precise=precise), lines_of_kernels(schedule)
    partial = folder.parent / f".{folder.name}.{os.getpid()}.partial"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
    except OSError as error:
        raise _unusable(folder, error) from None
    try:
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
        made = manifest["kernels"], manifest["launches"], manifest["library"]
        counts = {name: _counted(len(rows), noun) for (name, noun), rows in zip(nouns.items(), made, strict=True)}
        text = _README.format(**counts, target=schedule.target.title)
        (partial / "README.md").write_text(text, encoding="utf-8")
        _put_in_place(partial, folder)
    except OSError as error:
        raise _unusable(folder, error) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('ch') else 's'}"


def manifest_of(schedule: Schedule, files: dict[str, str], *, precise: bool = False) -> dict[str, Any]:
    """What `manifest.json` holds. `target` is the device that the kernels are made for, `options` are those that NVRTC compiles them with. Each executed instruction that does work is in `launches` or in `library`, once, with the bytes that it reads and writes and the microseconds that it is estimated to take; one that needs several kernels
    (random bits and the generator's new state) names the others in `further_symbols`. `elided`, where there are any, are the constants that the text leaves out: the driver takes them
    as arguments."""
    launches: dict[Instruction, dict[str, Any]] = {}
    library = []
    lines = lines_of_kernels(schedule)
    prices = FusionState(schedule.module, schedule.target).prices
    for routine, op in schedule.ops():
        name = op.instruction.name
        if isinstance(op, Launch):
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
        elif isinstance(op, Call) and does_work(op.instruction):
            library.append({"instruction": name, "call": op.call, "est_us": round(prices.of(op.instruction).us, 3)})
    kernels = [
        {
            "symbol": k.symbol,
            "file": files[k.symbol],
            "plan": k.kind,
            **asdict(k.launch),
            "kept_bytes": k.kept,
            "inputs": [_described(shape) for shape in k.inputs],
            "outputs": [_described(shape) for shape in k.outputs],
            "source": lines[k.symbol][:_MOST_LINES],
        }
        for k in schedule.kernels
    ]
    elided = [
        {"name": literal.origin, "type": literal.shape.type.name, "dimensions": list(literal.shape.dimensions)}
        for _, op in schedule.ops()
        for literal in (op.literals if isinstance(op, Constant) else ())
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
    """The Python lines that kernels come from, by symbol, those of all instructions that launch them."""
    found: dict[str, dict[str, None]] = {k.symbol: {} for k in schedule.kernels}
    for _, op in schedule.ops():
        if isinstance(op, Launch):
            found[op.kernel.symbol].update(dict.fromkeys(source_lines(schedule.module, op.instruction)))
    return {symbol: list(lines) for symbol, lines in found.items()}


def _lines_as_comments(lines: Sequence[str]) -> str:
    """The first of some Python lines as comments of CUDA. They are text of the dump: what does not belong into a plain path becomes `_`, so that no line ends its comment or carries it on."""
    shown = [_NOT_OF_A_PATH.sub("_", line) for line in lines[:_MOST_SHOWN]]
    more = [f"and {len(lines) - len(shown)} more lines: see manifest.json"] if len(lines) > len(shown) else []
    return "".join(f"// from {line[:_LONGEST_LINE]}\n" for line in [*shown, *more])


def source_lines(module: Module, instruction: Instruction) -> list[str]:
    """`file:line` of the Python code that a launched instruction comes from: its own, then those of what is fused into it. They are data: text of the
    dump as it is, and only ever written as JSON strings."""
    found = dict.fromkeys([source_location(module, instruction)])
    for computation in instruction.called() if instruction.opcode == "fusion" else ():
        found.update(dict.fromkeys(source_location(module, i) for i in computation.instructions))
    return [line for line in found if line]


def _described(shape: Shape) -> dict[str, Any]:
    return {
        "type": shape.type.name,
        "dimensions": list(shape.dimensions),
        "minor_to_major": list(shape.minor_to_major),
        "bytes": shape.stored_bytes,
    }


def kernel_files(kernels: tuple[Kernel, ...]) -> dict[str, str]:
    """The file of each kernel by symbol; names differ in more than case, for file systems that ignore it."""
    files: dict[str, str] = {}
    taken: set[str] = set()
    for kernel in kernels:
        assert kernel.symbol.isascii() and kernel.symbol.isidentifier(), kernel.symbol
        stem, number = kernel.symbol, 1
        while stem.lower() in taken:
            number += 1
            stem = f"{kernel.symbol}_{number}"
        taken.add(stem.lower())
        files[kernel.symbol] = f"kernels/{stem}.cu"
    return files


def check_folder(directory: str | os.PathLike[str]) -> Path:
    """The real path of a folder to emit into. Raises UsageError for a path that is no folder, or a folder with anything in it that `emit` does not write."""
    target = Path(os.path.realpath(directory))
    try:
        if not target.exists():
            return target
        if not target.is_dir():
            raise UsageError(f"{target} is not a folder", code="HLO330")
        found = sorted(p.name for p in target.iterdir())
    except OSError as error:
        raise _unusable(target, error) from None
    foreign = [name for name in found if name not in _OURS]
    if found and (foreign or "manifest.json" not in found):
        raise UsageError(
            f"{target} holds {foreign[0] if foreign else found[0]}, which hlo-opt did not write",
            code="HLO331",
            hint="name a new or empty folder",
        )
    return target


def _put_in_place(partial: Path, target: Path) -> None:
    """Rename the finished folder over the target; an older one of ours goes away only after that."""
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


def _unusable(target: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot write {target}: {error.strerror or error}", code="HLO332")
