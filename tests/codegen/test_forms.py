"""Every kind of kernel in both of its forms: the plain one means what the module says, and the lanes give what the
plain one gives."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.ir import Module
from hlo_opt.plans import matmul, matrix_vector, products
from hlo_opt.plans.kinds import KINDS
from hlo_opt.runtime.executable import compile
from hlo_opt.runtime.host.library import HostLibrary, KernelForm, has_compiler
from hlo_opt.runtime.numpy import from_memory, to_memory
from hlo_opt.runtime.schedule import build_schedule
from tests.codegen.conftest import Tool, empty, whole_numbers
from tests.codegen.test_concatenate import joined
from tests.codegen.test_gather import rows as rows_of_table
from tests.codegen.test_matmul import plain
from tests.codegen.test_matrix_vector import DOTS, product
from tests.codegen.test_scan import scan
from tests.codegen.test_sort import sort
from tests.codegen.test_tiled_transpose import transpose as tiles

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

FORMS: tuple[KernelForm, KernelForm] = ("plain", "lanes")
FOLDER = Path(__file__).resolve().parents[2] / "testdata" / "kernels"


def fused(file: Path) -> Module:
    """A module with fusions says what is to be one kernel."""
    module = hlo_opt.parse(file.read_text(encoding="utf-8"), filename=str(file))
    is_fused = any(i.opcode == "fusion" for i in module.entry.instructions)
    return module if is_fused else hlo_opt.fuse(module)[0]


@cache
def rows() -> dict[str, Path]:
    """The first module of each kind of segment."""
    found: dict[str, Path] = {}
    for file in sorted(FOLDER.glob("*.hlo")):
        for kernel in build_schedule(fused(file)).kernels:
            for kind in kernel.kind.split("+"):
                found.setdefault(kind, file)
    return found


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS])
def test_both_forms_agree(kind: str) -> None:
    assert kind in rows(), f"no module of testdata/kernels has a kernel of kind {kind} once it is fused"
    module = fused(rows()[kind])
    given = module_inputs(module, seed=3)
    forms = [compile(module, "host", form=form)(*given) for form in FORMS]
    for one, lanes in zip(*forms, strict=True):
        if one.dtype.kind in "biu":
            np.testing.assert_array_equal(lanes, one)
        else:
            wide = np.complex128 if one.dtype.kind == "c" else np.float64
            least = 1e-5
            if "attention" in kind:  # in lanes, weights are rounded before the product: a sum of few is of their size
                least = 1e-2
            elif kind == "look-back":  # a long line's sums are rounded at the size of the largest, in another order
                least = 1e-5 * float(np.abs(one).max())
            np.testing.assert_allclose(
                lanes.astype(wide), one.astype(wide), rtol=2e-2 if one.itemsize < 4 else 1e-5, atol=least
            )


EDGES = {
    "loop": (1, 3, 31, 127, 128, 129, 511, 513, 1023),
    "matrix-vector": (1, 7, 8, 9, 31, 33, 127, 129),
    "matmul": (1, 9, 15, 17, 31, 33, 63, 65),
    "tensor-matmul": (8, 9, 23, 25, 55, 57),
    "gather": (64, 65, 66, 127, 129),
    "sort": (2, 3, 31, 32, 33, 63, 65, 129, 1000),
}
"""Sizes around what blocks, warps and tiles hold."""
WIDE = (31, 32, 33, 63, 64, 65, 127, 129, 255, 257, 511, 513, 1025)


def reduced(sizes: tuple[int, ...], axis: int) -> str:
    shape, rest = ",".join(map(str, sizes)), ",".join(str(n) for d, n in enumerate(sizes) if d != axis)
    return (
        "HloModule m\n\nadd {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n\n"
        f"ENTRY e {{\n  p = f32[{shape}] parameter(0)\n  z = f32[] constant(1)\n"
        f"  r = f32[{rest}] reduce(p, z), dimensions={{{axis}}}, to_apply=add\n"
        f"  ROOT n = f32[{rest}] negate(r)\n}}\n"
    )


def added(rows: int, columns: int) -> str:
    return (
        f"HloModule m\n\nENTRY e {{\n  p = f32[{rows},{columns}] parameter(0)\n  q = f32[{columns}] parameter(1)\n"
        f"  b = f32[{rows},{columns}] broadcast(q), dimensions={{1}}\n  ROOT a = f32[{rows},{columns}] add(p, b)\n}}\n"
    )


def texts_of(kind: str, draw: Random) -> list[str]:
    """Modules of one kernel of a kind, of drawn sizes."""
    near = EDGES.get(kind, WIDE)

    def size(most: int = 1 << 20) -> int:
        return draw.choice([n for n in near if n <= most])

    match kind:
        case "gather":
            return [rows_of_table(draw.randint(2000, 2500), 4 * size()) for _ in range(3)]
        case "loop":
            return [added(draw.choice((1, 5, 2048)), size()) for _ in range(5)]
        case "row-reduction":
            return [reduced((draw.randint(1, 9), size() + draw.choice((0, 700))), 1) for _ in range(6)]
        case "column-reduction":
            return [reduced((draw.randint(1, 3), max(size(), 129), size(200)), 1) for _ in range(6)]
        case "tiled-transpose":
            return [tiles((size(200), size(200)), (1, 0)) for _ in range(4)] + [tiles((3, size(129), 33), (0, 2, 1))]
        case "sort":
            return [sort(f"{draw.randint(1, 6)},{size()}", ("s32", "f32"), along=1) for _ in range(3)]
        case "scan":
            return [scan(body, (draw.randint(1, 5), size()), 1) for body in ("sum", "exclusive", "swapped")]
        case "matmul":
            return [plain(size() + 16, size() + 16, size() + 8) for _ in range(4)]
        case "tensor-matmul":
            return [plain(size() + 16, size() + 16, size() + 8, kind="bf16") for _ in range(4)]
        case "matrix-vector":
            return [product(form, draw.randint(1, 4), size() + 8, size() + 8) for form in DOTS]
    return [joined([n, n, draw.randint(1, 3) * n], minor=size(129)) for n in (1, 3)]


@pytest.mark.parametrize(
    "kind",
    ["gather", "loop", "row-reduction", "column-reduction", "tiled-transpose", "concatenate", "sort", "scan", "matmul",
        "tensor-matmul", "matrix-vector"],
)  # fmt: skip
def test_both_forms_agree_at_the_edges_of_tiles(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On whole numbers, whose sums are the same in any order."""
    for module, least in (
        (products, "LEAST"),
        (matmul, "SHORTEST"),
        (matrix_vector, "SHORTEST"),
        (matrix_vector, "_LONG"),
    ):
        monkeypatch.setattr(module, least, 0 if module is products else 1)
    texts = texts_of(kind, Random(kind))
    made = [Tool().kernel(text) for text in texts]
    assert all(kind in kernel.kind.split("+") for kernel in made), [kernel.kind for kernel in made]
    found = []
    for form in FORMS:
        library = HostLibrary(made, form=form)
        found.append([launched(library, kernel, text) for kernel, text in zip(made, texts, strict=True)])
    for text, of_plain, of_lanes in zip(texts, *found, strict=True):
        for one, other in zip(of_plain, of_lanes, strict=True):
            np.testing.assert_array_equal(other, one, err_msg=text)


def launched(library: HostLibrary, kernel: Kernel, text: str) -> list[np.ndarray[Any, Any]]:
    given = [whole_numbers(a) for a in module_inputs(hlo_opt.parse(text), seed=5)]
    outputs = [empty(s) for s in kernel.outputs]
    library.launch(kernel, [to_memory(a, s) for a, s in zip(given, kernel.inputs, strict=True)], outputs)
    return [from_memory(o, s) for o, s in zip(outputs, kernel.outputs, strict=True)]
