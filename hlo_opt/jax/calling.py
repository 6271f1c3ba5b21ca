"""Bundles inside JAX."""

from __future__ import annotations

import importlib.util
import json
import os
from functools import cache
from pathlib import Path
from types import ModuleType

import jax
from jax.typing import ArrayLike

from hlo_opt.diag import UsageError
from hlo_opt.jax.bundle import MANIFEST


def call(bundle: str | os.PathLike[str], *arrays: ArrayLike) -> jax.Array | tuple[jax.Array, ...]:
    """Runs the module of a bundle (`hlo-opt build`) on arrays, on the CPU, also in a jitted function. The bundle's code
    is loaded into this process.

    Raises UsageError for a folder that is not a bundle or that was built without jaxlib, TypeError for arrays of other
    shapes or types.
    """
    result: jax.Array | tuple[jax.Array, ...] = _loaded(Path(bundle).resolve()).call(*arrays)
    return result


@cache
def _loaded(folder: Path) -> ModuleType:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        name, left_out = str(manifest["bundle"]), dict(manifest["left_out"])
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError("is no bundle", filename=str(folder), hint="hlo-opt build FILE -o DIR makes one") from None
    if "jax" in left_out:
        raise UsageError(f"was built without a module for JAX: {left_out['jax']}", filename=str(folder))
    spec = importlib.util.spec_from_file_location(f"hlo_opt_bundle_{name}", folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except OSError as fault:
        raise UsageError(f"cannot be loaded: {fault}", filename=str(folder)) from None
    return module
