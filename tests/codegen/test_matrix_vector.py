"""Products of few rows: every type, layout and size gives what the table says, and the host runs the text as loops."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hlo_opt.codegen.lanes import as_loops
from hlo_opt.plans import matrix_vector, products

DOTS = {
    "rows": ("{kind}[{r},{k}]{{1,0}}", "{kind}[{k},{c}]{{1,0}}", "{out}[{r},{c}]{{1,0}}", 1, 0),
    "rows, turned": ("{kind}[{r},{k}]{{1,0}}", "{kind}[{c},{k}]{{1,0}}", "{out}[{r},{c}]{{1,0}}", 1, 1),
    "columns": ("{kind}[{c},{k}]{{1,0}}", "{kind}[{k},{r}]{{1,0}}", "{out}[{c},{r}]{{1,0}}", 1, 0),
    "columns, turned": ("{kind}[{k},{c}]{{1,0}}", "{kind}[{r},{k}]{{0,1}}", "{out}[{c},{r}]{{0,1}}", 0, 1),
}


def product(form: str, r: int, c: int, k: int, *, kind: str = "f32", out: str = "f32", last: str = "") -> str:
    left, right, shape, a, b = DOTS[form]
    sizes = {"r": r, "c": c, "k": k, "kind": kind, "out": out}
    made = f"d = {shape.format(**sizes)} dot(p, q), lhs_contracting_dims={{{a}}}, rhs_contracting_dims={{{b}}}"
    lines = [f"p = {left.format(**sizes)} parameter(0)", f"q = {right.format(**sizes)} parameter(1)"]
    lines += [made, f"ROOT {last.replace('SHAPE', shape.format(**sizes))}"] if last else [f"ROOT {made}"]
    return "HloModule m\n\nENTRY e {\n  " + "\n  ".join(lines) + "\n}\n"


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strips for products of any size."""
    monkeypatch.setattr(products, "LEAST", 0)
    monkeypatch.setattr(matrix_vector, "SHORTEST", 1)
    monkeypatch.setattr(matrix_vector, "_LONG", 1)


def all_agree(tool: Any, texts: list[str]) -> None:
    assert {tool.plan(text).kind for text in texts} == {"matrix-vector"}
    tool.all_agree(texts)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("form", DOTS)
def test_sizes(tool: Any, form: str) -> None:
    sizes = [(1, c, 40) for c in (1, 7, 8, 9, 31, 33)] + [(r, 35, 65) for r in (2, 3, 8, 13)]
    sizes += [(2, 33, k) for k in (1, 2, 8, 9, 31, 128, 257, 1000)]
    all_agree(tool, [product(form, *size) for size in sizes])


@pytest.mark.parametrize(
    ("kind", "out"),
    [("f64", "f64"), ("bf16", "bf16"), ("f16", "f32"), ("f8e4m3fn", "f32"), ("s8", "s32"), ("s8", "s8"), ("s64", "s64"),
        ("pred", "pred")],
)  # fmt: skip
@pytest.mark.sweep
def test_types(tool: Any, kind: str, out: str) -> None:
    all_agree(tool, [product(form, 3, 70, 256, kind=kind, out=out) for form in ("rows", "columns")])


def test_batches(tool: Any) -> None:
    text = """HloModule m
ENTRY e {
  p = bf16[4,128,8,56]{3,2,1,0} parameter(0)
  q = bf16[4,8,96,3]{3,2,1,0} parameter(1)
  x = bf16[4,128,8,56]{3,2,1,0} abs(p)
  s = bf16[4,128,8,40]{3,2,1,0} slice(p), slice={[0:4], [0:128], [0:8], [8:48]}
  w = bf16[4,128,8,96]{3,2,1,0} concatenate(x, s), dimensions={3}
  d = f32[4,8,128,3]{3,2,1,0} dot(w, q), lhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_batch_dims={0,1}, rhs_contracting_dims={2}
  n = f32[4,8,128,3]{3,2,1,0} negate(d)
  ROOT b = f32[4,8,3,128]{2,3,1,0} bitcast(n)
}
"""
    all_agree(tool, [text])


def test_what_follows(tool: Any) -> None:
    all_agree(tool, [product(form, 2, 100, 256, last="n = SHAPE negate(d)") for form in DOTS])


@pytest.mark.parametrize("size", [(1, 100), (2, 100), (1, 1), (3, 1)])
def test_other_dimensions_follow(tool: Any, size: tuple[int, int]) -> None:
    count = size[0] * size[1]
    lasts = (f"b = f32[{count}]{{0}} bitcast(d)", f"b = f32[1,{count},1]{{2,1,0}} bitcast(d)")
    all_agree(tool, [product("rows", *size, 1 << 15, last=last) for last in lasts])


def test_the_host_runs_it_as_loops(planner: Any) -> None:
    for form in DOTS:
        assert as_loops(planner.kernel(product(form, 3, 75, 500))) is not None


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_a_warp_along_a_column_reads_16_bytes_a_thread(planner: Any, kind: str) -> None:
    nvrtc = pytest.importorskip("cupy.cuda").nvrtc
    source = planner.kernel(product("columns", 1, 4096, 4096, kind=kind, out=kind)).source
    program = nvrtc.createProgram(source, "k.cu", (), ())
    nvrtc.compileProgram(program, ("-arch=sm_90", "--ptxas-options=-v"))
    assert "0 bytes spill stores, 0 bytes spill loads" in nvrtc.getProgramLog(program)
    program = nvrtc.createProgram(source, "k.cu", (), ())
    nvrtc.compileProgram(program, ("-arch=compute_90",))
    text = nvrtc.getPTX(program)
    text = text.decode() if isinstance(text, bytes) else text
    # the matrix has two columns in two rounds; NVRTC splits loads of the vector, or does not, from call to call
    assert len(re.findall(r"ld\.global(?:\.nc)?\.v4\.[fbu]32", text)) >= 4


def test_packed_elements_of_neighbouring_columns_are_one_load(planner: Any) -> None:
    nvrtc = pytest.importorskip("cupy.cuda").nvrtc
    text = (
        "HloModule m\n\nENTRY e {\n  p = bf16[1,4096] parameter(0)\n  q = s4[4096,4096] parameter(1)\n"
        "  c = bf16[4096,4096] convert(q)\n"
        "  ROOT d = bf16[1,4096] dot(p, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
    )
    program = nvrtc.createProgram(planner.kernel(text).source, "k.cu", (), ())
    nvrtc.compileProgram(program, ("-arch=compute_90",))
    made = nvrtc.getPTX(program)
    made = made.decode() if isinstance(made, bytes) else made
    assert re.search(r"ld\.global(\.nc)?\.(v2\.[fbu]32|v4\.[bu]16|[bu]64)", made)
    assert not re.search(r"ld\.global(\.nc)?\.[fbus]8", made)
