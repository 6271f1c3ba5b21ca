"""Bundles: a module's kernels for other programs. A bundle is a folder with a shared library and its C header, a Python
module for JAX, and the CUDA texts with their machine code.

Parts that cannot be built on this machine are left out, and the manifest says why: the handler for XLA needs the
headers of jaxlib, machine code for GPUs needs NVRTC.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from hlo_opt.analysis.targets import DeviceTarget, target_of
from hlo_opt.codegen.options import compile_options
from hlo_opt.diag import BackendError, HloOptError, UsageError
from hlo_opt.evaluate.elided import Elided, elided_constants, with_values
from hlo_opt.ir import Module, Shape
from hlo_opt.jax import bundle_texts as texts
from hlo_opt.ops.collective.module_devices import counts
from hlo_opt.runtime.driver.emission import check_folder, described, emit, replacing
from hlo_opt.runtime.executable import entry_shapes
from hlo_opt.runtime.host.compiler import build, find_compiler, portable, processor_called
from hlo_opt.runtime.host.freezing import frozen
from hlo_opt.runtime.host.lanes_schedule import lanes_schedule
from hlo_opt.runtime.host.library import flags_of, units_of
from hlo_opt.runtime.host.own_routines import RUNTIME_FLAGS, routine_text, runtime_text
from hlo_opt.runtime.host.words import words_of
from hlo_opt.runtime.schedule import build_schedule

MANIFEST = "manifest.json"
DATA = "data.bin"
_EXPORTS = "exports.map"


@dataclass
class Bundle:
    """A bundle. `files` are its files and folders; `left_out` has the reason for each part that is missing."""

    name: str
    folder: Path
    files: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def build_bundle(
    module: Module,
    directory: str | os.PathLike[str],
    target: str | DeviceTarget | None = None,
    *,
    name: str | None = None,
    precise: bool = False,
    elided: Elided = None,
    march: str | None = None,
) -> Bundle:
    """Writes the bundle of a fused module.

    directory  a folder that is new, empty or a bundle, which is replaced
    target, precise, elided  as for `compile`
    name       the name of the C function
    march      the processor of the library, as the C++ compiler names it (`native`: this one). None is `x86-64-v3`, or
               on other architectures their baseline

    Raises UsageError for a folder that cannot be used, a module for several devices or an invalid C name; BackendError
    without a C++ compiler, for an unknown processor (HLO511), for a module that needs NumPy (HLO528) or has dynamic
    sizes (HLO514); EvaluationError for elided constants. After an error no files are left.
    """
    folder = check_bundle_folder(directory)
    chosen = texts.identifier(name or module.name)
    if name is not None and chosen != name:
        raise UsageError(f"a function of C cannot be called {name!r}", code="HLO333", hint=f"--name {chosen}")
    if counts(module) != (1, 1):
        raise UsageError("a bundle runs on one device, and the module is for several", code="HLO334")
    march = portable(find_compiler()) if march is None else march
    module = with_values(module, elided)
    if elided_constants(module):
        raise UsageError("the text leaves out values of constants", code="HLO407")
    inputs, outputs = entry_shapes(module), [leaf for leaf in module.entry.root.shape.leaves() if leaf.is_array]
    bundle = Bundle(chosen, folder)
    with replacing(folder) as partial:
        symbols = _host(bundle, module, partial, inputs, outputs, target, march)
        _cuda(bundle, module, partial, target, precise)
        bundle.files.append(MANIFEST)
        manifest = {
            "bundle": chosen,
            "files": bundle.files,
            "inputs": [described(shape) for shape in inputs],
            "outputs": [described(shape) for shape in outputs],
            "kernels": symbols,
            "processor": list(processor_called(find_compiler(), march).flags),
            "target": target_of(module, target).name,
            "left_out": bundle.left_out,
        }
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return bundle


def check_bundle_folder(directory: str | os.PathLike[str]) -> Path:
    """The real path of a folder to build into. Raises UsageError as `check_folder`."""
    return check_folder(directory, _files(Path(os.path.realpath(directory))))


def _files(folder: Path) -> list[str]:
    """The files of a bundle in a folder, by its manifest; none if there is no bundle."""
    try:
        known = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return [str(f) for f in known["files"]] + ["__pycache__"] if "bundle" in known else []
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _host(
    bundle: Bundle,
    module: Module,
    folder: Path,
    inputs: list[Shape],
    outputs: list[Shape],
    target: str | DeviceTarget | None,
    march: str,
) -> list[str]:
    """Builds the library, its header and the Python module. Returns the kernels' symbols."""
    schedule = lanes_schedule(module, target)
    program = frozen(schedule, words_of(schedule, spread=True))
    include, why = _handler_headers([*inputs, *outputs])
    handler = f"{bundle.name}_handler" if include else ""
    data, places = texts.blob(program)
    (folder / DATA).write_bytes(data)
    (folder / _EXPORTS).write_text(
        f"{{ global: {bundle.name}; {handler + ';' if handler else ''} local: *; }};\n", encoding="utf-8"
    )
    text = texts.program(bundle.name, program, str(folder / DATA), places, handler)
    parts = [
        (units_of(schedule.kernels, "lanes") if schedule.kernels else [], flags_of("lanes")),
        ([runtime_text(), *map(routine_text, program.own)], RUNTIME_FLAGS),
        ([text], ("-pthread", *([f"-I{include}"] if include else []))),
    ]
    library = f"lib{bundle.name}.so"
    build(parts, folder / library, ("-pthread", f"-Wl,--version-script={folder / _EXPORTS}"), march)
    (folder / DATA).unlink()
    (folder / _EXPORTS).unlink()
    header = texts.header(bundle.name, inputs, outputs, program.donated)
    (folder / f"{bundle.name}.h").write_text(header, encoding="utf-8")
    bundle.files += [library, f"{bundle.name}.h"]
    if not handler:
        bundle.left_out["jax"] = why
        return [k.symbol for k in schedule.kernels]
    digest = hashlib.sha256((folder / library).read_bytes()).hexdigest()[:16]
    is_tuple = module.entry.root.shape.is_tuple
    shown = texts.python_module(
        bundle.name,
        f"hlo_opt.{bundle.name}.{digest}",
        handler,
        inputs,
        outputs,
        program.donated,
        is_tuple=is_tuple,
    )
    (folder / f"{bundle.name}.py").write_text(shown, encoding="utf-8")
    bundle.files.append(f"{bundle.name}.py")
    return [k.symbol for k in schedule.kernels]


def _handler_headers(shapes: list[Shape]) -> tuple[str, str]:
    """(the folder of the headers of XLA's FFI, ""), or ("", the reason why there can be no handler)."""
    packed = next((s for s in shapes if s.type.per_byte > 1 or not s.type.numpy_name), None)
    if packed is not None:
        return "", f"JAX has no arrays that lie as {packed.type.name} does here"
    try:
        spec = find_spec("jaxlib")
    except (ImportError, ValueError):
        spec = None
    places = [Path(p) / "include" for p in (spec.submodule_search_locations or [])] if spec is not None else []
    include = next((p for p in places if (p / "xla" / "ffi" / "api" / "ffi.h").is_file()), None)
    return (str(include), "") if include is not None else ("", "jaxlib is not installed (the extra jax)")


def _cuda(bundle: Bundle, module: Module, folder: Path, target: str | DeviceTarget | None, precise: bool) -> None:
    """Writes the CUDA texts with the driver, and their machine code."""
    try:
        emit(module, folder / "cuda", target, precise=precise)
    except (BackendError, UsageError) as error:
        bundle.left_out["cuda"] = f"{error.code} {error.message}"
        return
    bundle.files.append("cuda")
    try:
        from cupy.cuda import nvrtc
    except ImportError:
        bundle.left_out["cubin"] = "NVRTC is not installed (the extra cuda12 or cuda13)"
        return
    try:
        _machine_code(nvrtc, module, folder / "cuda", target, precise)
    except (HloOptError, OSError, RuntimeError) as error:
        bundle.left_out["cubin"] = str(error).splitlines()[0]


def _machine_code(
    nvrtc: ModuleType, module: Module, folder: Path, target: str | DeviceTarget | None, precise: bool
) -> None:
    from hlo_opt.runtime.cupy.device import architecture, compiled
    from hlo_opt.runtime.driver.emission import kernel_files
    from hlo_opt.runtime.host.compiler import cache_directory

    schedule = build_schedule(module, target)
    files = kernel_files(schedule.kernels)
    arch = architecture(nvrtc, str(schedule.target.compute_capability))
    code = compiled(nvrtc, schedule.kernels, arch, cache_directory(), compile_options(precise=precise))
    suffix = ".cubin" if arch.startswith("sm_") else ".ptx"
    for symbol, data in code.items():
        (folder / files[symbol]).with_suffix(suffix).write_bytes(data)
