"""What we ask of CuPy, it has: every attribute that our texts name, looked up in the package itself. Needs no GPU."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from hlo_opt import library, runtime
from hlo_opt.runtime.driver import prelude as driver_prelude

cupy = pytest.importorskip("cupy")

TEXTS = {
    str(path): path.read_text(encoding="utf-8")
    for room in (library, runtime)
    for path in sorted(Path(room.__file__).parent.rglob("*.py"))
}
TEXTS["the driver"] = driver_prelude.PRELUDE.format(module="'m'", imports="", options="()", **driver_prelude.PACKED)
LIBRARIES = frozenset({"cublas", "nccl"})
"""Modules that load libraries, which come with a GPU only."""


def chains(text: str) -> Iterator[tuple[str, ...]]:
    """Attributes of `cupy`, `self.cupy` and `xp`, outermost first: ('cuda', 'Event')."""
    tree = ast.parse(text)
    inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or id(node) in inner:
            continue
        names: list[str] = []
        at: ast.expr = node
        while isinstance(at, ast.Attribute):
            names.insert(0, at.attr)
            at = at.value
        if isinstance(at, ast.Name) and at.id == "self" and names[0] == "cupy":
            yield tuple(names[1:])
        elif isinstance(at, ast.Name) and at.id in ("cupy", "xp"):
            yield tuple(names)


@pytest.mark.parametrize("name", [n for n, text in TEXTS.items() if any(chains(text))])
def test_cupy_has_what_a_text_names(name: str) -> None:
    for chain in dict.fromkeys(chains(TEXTS[name])):
        found = cupy
        for part in chain:
            if part in LIBRARIES or part.startswith("__") or not isinstance(found, type(cupy)):
                break
            assert hasattr(found, part), f"cupy.{'.'.join(chain)}"
            found = getattr(found, part)


def test_functions_called_by_name_are_there() -> None:
    from hlo_opt.ops.calls.steps import _COMBINERS
    from hlo_opt.ops.elementwise.functions import FUNCTIONS
    from hlo_opt.ops.numeric import COMPARISONS

    for function in (*FUNCTIONS.values(), *COMPARISONS.values()):
        assert function in ("pair", "logistic") or hasattr(cupy, function), function
    for function in _COMBINERS.values():
        assert hasattr(getattr(cupy, function), "at"), function


def test_methods_are_there() -> None:
    cuda = cupy.cuda
    for owner, names in (
        (cuda.Stream, ("begin_capture", "end_capture", "wait_event", "record", "__enter__", "__exit__")),
        (cuda.Event, ("record", "synchronize")),
        (cuda.Graph, ("launch",)),
        (cuda.MemoryPointer, ("copy_from_device_async",)),
        (cuda.Memory, ()),
        (cuda.function.Module, ("load", "get_function")),
        (cuda.Device, ("synchronize", "compute_capability")),
        (cupy.ndarray, ("view", "copy", "astype", "item", "real", "imag", "nbytes", "data", "argsort")),
        (importlib.import_module("cupyx"), ("errstate",)),
    ):
        assert all(hasattr(owner, n) for n in names), (owner, names)


def test_the_drivers_calls_take_what_we_pass() -> None:
    """Their parameters, as Cython writes them at the beginning of a docstring."""
    driver, runtime = cupy.cuda.driver, cupy.cuda.runtime
    numbers = "f, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z, shared_mem_bytes, stream"
    for function, wanted in (
        (driver.launchKernel, f"{numbers}, kernel_params, extra"),
        (driver.launchCooperativeKernel, f"{numbers}, kernel_params"),
        (runtime.memcpyAsync, "dst, src, size, kind, stream"),
    ):
        inside = function.__doc__.splitlines()[0].partition("(")[2].partition(")")[0]
        assert ", ".join(part.split()[-1] for part in inside.split(",")) == wanted
    assert callable(runtime.memGetInfo) and hasattr(cupy.cuda.function.Function, "ptr")


def test_kernels_are_compiled_without_flushing_and_with_our_options() -> None:
    from cupy.cuda import compiler

    parameters = list(inspect.signature(compiler.compile_using_nvrtc).parameters.values())
    assert [p.name for p in parameters[:2]] == ["source", "options"]
    assert all(p.default is not inspect.Parameter.empty for p in parameters[1:])
    assert "ftz" not in inspect.getsource(compiler.compile_using_nvrtc)
    inner = getattr(compiler, "_compile_using_nvrtc_no_warning", compiler.compile_using_nvrtc)
    assert "ftz" not in inspect.getsource(inner)


def test_the_kernel_that_decides_compiles_and_leaves_the_decision_to_the_driver() -> None:
    from hlo_opt.codegen.options import compile_options
    from hlo_opt.runtime.cupy.conditional import DECISION

    nvrtc = cupy.cuda.nvrtc
    program = nvrtc.createProgram(DECISION.source, "decision.cu", (), ())
    nvrtc.compileProgram(program, ("-arch=sm_90", *compile_options(precise=False)))
    code = nvrtc.getCUBIN(program)
    nvrtc.destroyProgram(program)
    assert DECISION.symbol.encode() in code and b"cudaGraphSetConditional" in code
