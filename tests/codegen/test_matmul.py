"""Products in tiles: every layout, type and size around a tile's edge gives what the table says; the text is quick on a
GPU and runs as loops on the host."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from hlo_opt.codegen.lanes import as_loops
from hlo_opt.evaluate import module_inputs
from hlo_opt.plans import matmul, products
from hlo_opt.text import parse

PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
BATCHED = "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}"


def module(left: str, right: str, root: str, *, before: str = "", last: str = "d", of: str = "p, q") -> str:
    """An entry with a dot of two parameters. `root` has its shape and dimensions, `last` what follows it."""
    shape, attributes = root.split(" ", 1)
    lines = [f"p = {left} parameter(0)", f"q = {right} parameter(1)", *filter(None, before.split("; "))]
    lines.append(f"{'ROOT ' if last == 'd' else ''}d = {shape} dot({of}), {attributes}")
    if last != "d":
        *more, end = last.split("; ")
        lines += [*more, f"ROOT {end}"]
    return "HloModule m\n\nENTRY e {\n  " + "\n  ".join(lines) + "\n}\n"


def plain(m: int, n: int, k: int, *, kind: str = "f32", out: str = "f32") -> str:
    return module(f"{kind}[{m},{k}]{{1,0}}", f"{kind}[{k},{n}]{{1,0}}", f"{out}[{m},{n}]{{1,0}} {PLAIN}")


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles for products of any size."""
    monkeypatch.setattr(products, "LEAST", 0)
    monkeypatch.setattr(matmul, "SHORTEST", 1)


@pytest.mark.usefixtures("always")
def test_sizes_around_the_edges_of_tiles(tool: Any) -> None:
    sizes = [(m, n, 16) for m in (1, 33) for n in (1, 9, 17, 32, 33)]
    sizes += [(65, 67, k) for k in (1, 15, 17, 40, 77)]
    texts = [plain(*size) for size in sizes]
    assert {tool.plan(text).kind for text in texts} == {"matmul"}
    tool.all_agree(texts)


def test_nothing_to_sum_or_to_write_is_no_product(tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "LEAST", 0)
    monkeypatch.setattr(matmul, "SHORTEST", 0)
    texts = [plain(*size) for size in ((0, 5, 5), (5, 0, 5), (5, 5, 0))]
    assert {tool.plan(text).kind for text in texts} == {"loop"}
    tool.all_agree(texts)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    ("kind", "out"),
    [
        ("f32", "f32"), ("f64", "f64"), ("bf16", "bf16"), ("bf16", "f32"), ("f16", "f16"), ("f8e4m3fn", "f32"),
        ("f8e5m2", "bf16"), ("s8", "s32"), ("s8", "s8"), ("u8", "u32"), ("s16", "s16"), ("s64", "s64"),
        ("pred", "pred"), ("f64", "f32"),
    ],
)  # fmt: skip
@pytest.mark.sweep
def test_types(tool: Any, kind: str, out: str) -> None:
    texts = [plain(35, 40, 24, kind=kind, out=out)]
    assert tool.plan(texts[0]).kind == ("tensor-matmul" if kind in ("bf16", "f16") else "matmul")
    tool.all_agree(texts)


def test_types_that_stay_loops(planner: Any) -> None:
    assert planner.plan(plain(64, 64, 64, kind="c64", out="c64")).kind == "loop"
    assert planner.plan(plain(64, 64, 64, kind="s4", out="s4")).kind == "loop"


@pytest.mark.sweep
def test_layouts_and_contracted_dimensions(tool: Any) -> None:
    texts = []
    for a in ("{1,0}", "{0,1}"):
        for b in ("{1,0}", "{0,1}"):
            for out in ("{1,0}", "{0,1}"):
                for ka, kb in ((0, 0), (0, 1), (1, 0), (1, 1)):
                    left = "44,37" if ka else "37,44"
                    right = "37,36" if kb == 0 else "36,37"
                    root = f"f32[44,36]{out} lhs_contracting_dims={{{ka}}}, rhs_contracting_dims={{{kb}}}"
                    texts.append(module(f"f32[{left}]{a}", f"f32[{right}]{b}", root))
    assert {tool.plan(text).kind for text in texts} == {"matmul"}
    tool.all_agree(texts)


@pytest.mark.usefixtures("always")
def test_batches_and_several_dimensions_of_each_kind(tool: Any) -> None:
    texts = [
        module("f32[6,33,20]{2,1,0}", "f32[6,20,35]{2,1,0}", f"f32[6,33,35]{{2,1,0}} {BATCHED}"),
        module("f32[6,33,20]{0,2,1}", "f32[6,20,35]{1,0,2}", f"f32[6,33,35]{{1,2,0}} {BATCHED}"),
        module("s8[40,4,24]{2,1,0}", "s8[4,24,48]{2,1,0}", "f32[4,40,48]{2,1,0} lhs_batch_dims={1}, "
                                                           "lhs_contracting_dims={2}, rhs_batch_dims={0}, "
                                                           "rhs_contracting_dims={1}"),
        module("f32[3,8,2,9,12]{4,3,2,1,0}", "f32[2,12,3,9,11]{4,3,2,1,0}",
            "f32[3,2,8,11]{3,2,1,0} lhs_batch_dims={0,2}, lhs_contracting_dims={4,3}, rhs_batch_dims={2,0}, rhs_contracting_dims={1,3}"),
        module("f32[5,9,16]{2,1,0}", "f32[4,16,10]{2,1,0}", "f32[5,9,4,10]{2,0,3,1} lhs_contracting_dims={2}, "
                                                            "rhs_contracting_dims={1}"),
    ]  # fmt: skip
    assert {tool.plan(text).kind for text in texts} == {"matmul"}
    tool.all_agree(texts)


def test_what_leads_to_operands_and_what_follows(tool: Any) -> None:
    shape, attributes = "f32[40,48]{1,0}", PLAIN
    texts = [
        module("f32[40,32]{1,0}", "f32[48]{0}", f"{shape} lhs_contracting_dims={{1}}, "
                                                f"rhs_contracting_dims={{0}}", of="e, b",
               before="b = f32[32,48]{1,0} broadcast(q), dimensions={1}; e = f32[40,32]{1,0} "
                      "exponential(p)", last="n = f32[40,48]{1,0} negate(d)"),
        module("bf16[32,40]{1,0}", "s8[32,48]{1,0}", f"{shape} {attributes}", of="t, c",
               before="w = f32[32,40]{1,0} convert(p); t = f32[40,32]{1,0} transpose(w), dimensions={1,0}; c = "
                      "f32[32,48]{1,0} convert(q)"),
        module("f32[50,64]{1,0}", "f32[32,24]{1,0}", f"{shape} {attributes}", of="s, c",
               before="s = f32[40,32]{1,0} slice(p), slice={[4:44], [16:48]}; c = f32[32,48]{1,0} concatenate(q, q), "
                      "dimensions={1}"),
        module("f32[1280]{0}", "f32[4,8,48]{2,1,0}", f"{shape} {attributes}", of="b, r",
               before="b = f32[40,32]{1,0} bitcast(p); r = f32[32,48]{1,0} "
                      "reshape(q)", last="o = f32[48,40]{0,1} bitcast(d)"),
        module("f32[40,32]{1,0}", "f32[32,48]{1,0}", f"{shape} {attributes}",
            last="t = f32[48,40]{1,0} transpose(d), dimensions={1,0}"),
        module("f32[40,32]{1,0}", "f32[32,48]{1,0}", f"{shape} {attributes}",
            last="r = f32[5,8,48]{2,1,0} reshape(d); h = bf16[5,8,48]{2,1,0} convert(r)"),
    ]  # fmt: skip
    assert {tool.plan(text).kind for text in texts} == {"matmul"}
    tool.all_agree(texts, relative=1e-5)


def test_several_outputs(tool: Any) -> None:
    text = module(
        "f32[40,32]{1,0}", "f32[32,48]{1,0}", f"f32[40,48]{{1,0}} {PLAIN}",
        last="m = f32[40,48]{1,0} maximum(d, d); t = f32[48,40]{1,0} transpose(m), dimensions={1,0}; x = "
             "(f32[40,48]{1,0}, f32[48,40]{1,0}) tuple(d, t)",
    )  # fmt: skip
    assert tool.plan(text).kind == "matmul"
    tool.all_agree([text])


def test_sums_are_those_of_the_loop(tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The contracted elements are added in the same order, so that every bit is the same."""
    for text in (plain(70, 50, 77), plain(70, 50, 40, kind="f8e5m2", out="bf16")):
        given = module_inputs(parse(text), seed=5)
        assert tool.plan(text).kind == "matmul"
        (tiled,) = tool.run(text, given)
        with monkeypatch.context() as patch:
            patch.setattr(products, "LEAST", 1 << 60)
            assert tool.plan(text).kind == "loop"
            (looped,) = tool.run(text, given)
        np.testing.assert_array_equal(tiled, looped)


def test_the_host_runs_it_as_loops(planner: Any) -> None:
    for text in (plain(64, 64, 64), plain(70, 50, 77), plain(100, 12, 40)):
        assert as_loops(planner.kernel(text)) is not None


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_threads_move_16_bytes_and_spill_nothing(planner: Any, architecture: str) -> None:
    nvrtc = pytest.importorskip("cupy.cuda").nvrtc
    source = planner.kernel(plain(2048, 2048, 2048)).source
    program = nvrtc.createProgram(source, "k.cu", (), ())
    nvrtc.compileProgram(program, (f"-arch={architecture}", "--ptxas-options=-v"))
    log = nvrtc.getProgramLog(program)
    assert "0 bytes spill stores, 0 bytes spill loads" in log
    assert int(re.findall(r"Used (\d+) registers", log)[0]) <= 128
    program = nvrtc.createProgram(source, "k.cu", (), ())
    nvrtc.compileProgram(program, (architecture.replace("sm", "-arch=compute"),))
    text = nvrtc.getPTX(program)
    text = text.decode() if isinstance(text, bytes) else text
    assert re.search(r"ld\.global(\.nc)?\.(v4\.[fb]32|v2\.b64)", text) and re.search(r"ld\.shared\.v4\.[fb]32", text)
    assert not re.search(r"ld\.global(\.nc)?\.[fb]32", text)


def test_tiles_keep_their_registers(planner: Any) -> None:
    """Two blocks at a time are enough; the compiler would spill registers to have more."""
    assert "__launch_bounds__(256, 2)" in planner.kernel(plain(2048, 2048, 64)).source
    assert "__launch_bounds__(256, 1)" in planner.kernel(plain(64, 64, 64)).source
