"""Inputs and outputs as npz files: `in0, in1, ...` (entry parameters, tuples flattened in order) and `out0, ...`.

A key with a device, `in0.d3`, is for this simulated device alone; a key without one is for all devices that have no key
of their own. A global array is cut as the parameter's sharding says. An output with the same bits on all devices is
stored once, as `out0`; any other once per device, as `out0.d0, out0.d1, ...`.
Types that NumPy lacks (bf16, f8, ...) are stored as their raw bits, unsigned integers of the same size.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from hlo_opt.cli import failure, files
from hlo_opt.cli.npz import Npz
from hlo_opt.diag import EvaluationError, UsageError
from hlo_opt.evaluate.devices import cut, global_forms, is_global
from hlo_opt.ir import Module
from hlo_opt.ir.values import Array
from hlo_opt.library.arrays import raw_dtype
from hlo_opt.ops.collective.module_devices import check_devices
from hlo_opt.ops.control.meaning import same_bits
from hlo_opt.report.page import counted
from hlo_opt.runtime.executable import entry_inputs, entry_shapes

_KEY = re.compile(r"in(\d{1,9})(?:\.d(\d{1,9}))?")


def load_device_inputs(name: str, module: Module) -> list[list[Array]]:
    """The inputs in an npz file for each of the module's devices, in the types of the entry's parameters. Devices share
    the arrays that several of them get; global arrays are cut.

    Raises UsageError (with the path) when the file is no npz, or an array is missing, superfluous, or of another type
    or shape.
    """
    shapes, devices = entry_shapes(module), check_devices(module)
    with Npz(name) as stored:
        keys = _keys(name, stored.files, len(shapes), devices)
        _check_sizes(name, stored, keys, module)
        arrays = {key: stored[key] for key in dict.fromkeys(key for row in keys for key in row)}
    shared = {n: cut(module, n, arrays[f"in{n}"]) for n in range(len(shapes)) if devices > 1 and f"in{n}" in arrays}
    rows = []
    for device, row in enumerate(keys):
        own = [shared[n][device] if n in shared and key == f"in{n}" else arrays[key] for n, key in enumerate(row)]
        try:
            rows.append(entry_inputs(module, own))
        except EvaluationError as error:
            raise UsageError(error.message, code=error.code, filename=name, hint=error.hint) from None
    return rows


def snapshot_inputs(name: str, module: Module, recorded: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """A snapshot's inputs for each of the module's devices: the same for all, or one set for each. Says on stderr that
    they are used.

    Raises UsageError (with the path) where they do not fit the entry's parameters.
    """
    devices = check_devices(module)
    if len(recorded) not in (1, devices):
        raise UsageError(
            f"the snapshot holds inputs of {len(recorded)} devices, and the module runs on {devices}",
            code="HLO401",
            filename=name,
        )
    try:
        rows = [entry_inputs(module, row) for row in recorded]
    except EvaluationError as error:
        raise UsageError(error.message, code=error.code, filename=name, hint=error.hint) from None
    failure.say(f"{name}: the inputs are those of the snapshot")
    return rows * devices if len(rows) == 1 else rows


def inputs_bytes(name: str, module: Module) -> int:
    """Bytes of the arrays that `load_device_inputs` would load; only the file's list of contents is read. Raises as it
    does."""
    shapes, devices = entry_shapes(module), check_devices(module)
    with Npz(name) as stored:
        keys = _keys(name, stored.files, len(shapes), devices)
    return sum(shapes[n].byte_size for n, _ in {(n, key) for row in keys for n, key in enumerate(row)})


def input_dimensions(name: str, module: Module) -> list[tuple[int, ...]]:
    """The dimensions of the arrays that an npz file holds for a module on one device. Raises as `load_device_inputs`
    does for missing keys and unknown ones."""
    with Npz(name) as stored:
        (keys,) = _keys(name, stored.files, len(entry_shapes(module)), 1)
        return [tuple(stored[key].shape) for key in keys]


def _keys(name: str, names: Sequence[str], count: int, devices: int) -> list[list[str]]:
    """For each device the key of each input. Raises UsageError for missing keys and for unknown ones."""
    known = set(names)
    extra = [key for key in names if not _is_input_key(key, count, devices)]
    missing: list[str] = []
    rows: list[list[str]] = []
    for device in range(devices):
        own = [f"in{n}.d{device}" for n in range(count)]
        rows.append([key if key in known else f"in{n}" for n, key in enumerate(own)])
        lacking = [n for n, key in enumerate(rows[-1]) if key not in known]
        missing += [f"in{n}" if devices == 1 else own[n] for n in lacking]
    if missing or extra:
        where = f" on {devices} devices" if devices > 1 else ""
        raise UsageError(
            f"the module takes {counted(count, 'array')}{where}"
            + (f"; missing: {', '.join(missing[:8])}" if missing else "")
            + (f"; no inputs of the module: {', '.join(extra[:8])}" if extra else ""),
            filename=name,
            hint="name them in0, in1, ... in the order of the entry's parameters, tuples flattened"
            + ("; in0.d3 is for device 3 alone" if devices > 1 else ""),
        )
    return rows


def _is_input_key(key: str, count: int, devices: int) -> bool:
    match = _KEY.fullmatch(key)
    if match is None or str(int(match[1])) != match[1] or int(match[1]) >= count:
        return False
    return match[2] is None or (str(int(match[2])) == match[2] and int(match[2]) < devices)


def _check_sizes(name: str, stored: Npz, keys: Sequence[Sequence[str]], module: Module) -> None:
    """Raises UsageError for an array that is no input, nor a global array that is cut into inputs, before it is read: a
    small file can hold a huge one."""
    shapes, devices = entry_shapes(module), len(keys)
    for number, key in {(n, key) for row in keys for n, key in enumerate(row)}:
        sizes = stored.sizes(key)
        if devices > 1 and key == f"in{number}" and is_global(module, number, sizes):
            continue
        shape = shapes[number]
        is_too_large = np.prod(sizes, dtype=object) > shape.element_count >= 0
        if is_too_large or (devices > 1 and sizes != shape.dimensions and not any(shape.dynamic)):
            expected = f"{shape.type}[{','.join(map(str, shape.dimensions))}]"
            raise UsageError(
                f"{key} has dimensions [{','.join(map(str, sizes))}], expected {expected}",
                code="HLO401",
                filename=name,
                hint=_forms(module, number, key) if devices > 1 else None,
            )


def _forms(module: Module, number: int, key: str) -> str:
    """What else may be given for an input of several devices."""
    other = global_forms(module, number)
    own = f"{key} for one device" if "." in key else f"in{number}.d0, in{number}.d1, .. for each device its own"
    return own + (f"; in{number} may be {other}" if other else f"; nothing says how a global in{number} would be cut")


def named_outputs(results: Sequence[Sequence[Array]]) -> dict[str, Array]:
    """The outputs of all devices by their keys: `out0` where all have the same bits, else `out0.d0, out0.d1, ...`."""
    arrays: dict[str, Array] = {}
    for number, first in enumerate(results[0]):
        if all(same_bits(own[number], first) for own in results[1:]):
            arrays[f"out{number}"] = first
        else:
            arrays.update((f"out{number}.d{device}", own[number]) for device, own in enumerate(results))
    return arrays


def save_outputs(name: str, outputs: dict[str, Array]) -> None:
    """Write the outputs under their keys, whole or not at all."""
    with files.whole_file(name) as stream:
        stream.write(as_npz(outputs))


def as_npz(outputs: dict[str, Array]) -> bytes:
    """An .npz file that has the outputs under their keys."""
    arrays: dict[str, Any] = {key: np.asarray(a, order="C").view(raw_dtype(a.dtype)) for key, a in outputs.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()
