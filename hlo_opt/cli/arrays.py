"""Inputs and outputs as npz files: `in0, in1, ...` (entry parameters, tuples flattened in order) and `out0, ...`.

Types that NumPy lacks (bf16, f8, ...) are stored as their raw bits, unsigned integers of the same size.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence

import numpy as np

from hlo_opt.cli import files
from hlo_opt.diag import EvaluationError, UsageError
from hlo_opt.ir import Module
from hlo_opt.runtime.executable import entry_inputs, entry_shapes
from hlo_opt.runtime.memory import Array, raw_dtype


def load_inputs(name: str, module: Module) -> list[Array]:
    """The inputs in an npz file, in the types of the entry's parameters.

    Raises UsageError (with the path) when the file is no npz, or an array is missing, superfluous, or of another type or shape.
    """
    given = _arrays(name)
    shapes = entry_shapes(module)
    wanted = [f"in{n}" for n in range(len(shapes))]
    missing, extra = [k for k in wanted if k not in given], [k for k in given if k not in wanted]
    if missing or extra:
        raise UsageError(
            f"the module takes {len(shapes)} arrays"
            + (f"; missing: {', '.join(missing[:8])}" if missing else "")
            + (f"; not taken: {', '.join(extra[:8])}" if extra else ""),
            filename=name,
            hint="name them in0, in1, ... in the order of the entry's parameters, tuples flattened",
        )
    try:
        return entry_inputs(module, [given[key] for key in wanted])
    except EvaluationError as error:
        raise UsageError(error.message, code=error.code, filename=name, hint=error.hint) from None


def _arrays(name: str) -> dict[str, Array]:
    try:
        with np.load(name, allow_pickle=False) as stored:
            if not isinstance(stored, np.lib.npyio.NpzFile):
                raise UsageError("not an npz file", filename=name)
            return {key: stored[key] for key in stored.files}
    except FileNotFoundError:
        raise UsageError("no such file", filename=name) from None
    except IsADirectoryError:
        raise UsageError("is a folder, not a file", filename=name) from None
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise UsageError(f"not an npz file of plain arrays: {error}", filename=name) from None


def save_outputs(name: str, outputs: Sequence[Array]) -> None:
    """Write the outputs whole or not at all."""
    arrays = {f"out{n}": np.asarray(a, order="C").view(raw_dtype(a.dtype)) for n, a in enumerate(outputs)}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    with files.whole_file(name) as stream:
        stream.write(buffer.getvalue())
