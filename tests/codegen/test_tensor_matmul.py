"""Products by tensor cores: every layout, type and size around a piece's edge gives what the table says, in the text
for the device (whose instructions of a warp the host plays) and as lanes; the text keeps its sums in registers."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hlo_opt.codegen.lanes import as_loops
from hlo_opt.evaluate import module_inputs
from hlo_opt.plans import Plan, plan, products
from hlo_opt.text import parse
from tests.codegen.conftest import region_of_text
from tests.codegen.test_matmul import BATCHED, PLAIN, module, plain
from tests.small_modules import H100

FORMS = ["plain", "lanes"]


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles for products of any size."""
    monkeypatch.setattr(products, "LEAST", 0)


def agree(tool: Any, form: str, texts: list[str]) -> None:
    assert {tool.plan(text).kind for text in texts} == {"tensor-matmul"}
    replace(tool, form=form).all_agree(texts)


@pytest.mark.parametrize("form", FORMS)
def test_sizes_around_the_edges_of_pieces_and_tiles(tool: Any, form: str) -> None:
    sizes = [(m, n, 16) for m in (16, 17, 33) for n in (16, 17, 31)] + [(65, 67, k) for k in (17, 64, 77)]
    agree(tool, form, [plain(*size, kind="bf16") for size in sizes])


@pytest.mark.parametrize("form", FORMS)
def test_blocks_share_the_contracted_elements_of_a_tile(tool: Any, form: str) -> None:
    texts = [plain(33, 40, 1024, kind="bf16"), plain(16, 130, 2000, kind="bf16")]
    texts += [module("f16[2,17,640]{2,1,0}", "f16[2,640,24]{2,1,0}", f"f32[2,17,24]{{2,1,0}} {BATCHED}")]
    assert all(tool.plan(text).segments[0].part.parts > 1 for text in texts)
    agree(tool, form, texts)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["bf16", "f16"])
@pytest.mark.sweep
def test_layouts_and_contracted_dimensions(tool: Any, form: str, kind: str) -> None:
    """Each side in lines along contracted elements and across them."""
    texts = []
    for a in ("{1,0}", "{0,1}"):
        for b in ("{1,0}", "{0,1}"):
            for ka, kb in ((0, 0), (0, 1), (1, 0), (1, 1)):
                left, right = "48,40" if ka == 0 else "40,48", "48,24" if kb == 0 else "24,48"
                root = f"f32[40,24]{{1,0}} lhs_contracting_dims={{{ka}}}, rhs_contracting_dims={{{kb}}}"
                texts.append(module(f"{kind}[{left}]{a}", f"{kind}[{right}]{b}", root))
    agree(tool, form, texts)


@pytest.mark.parametrize("form", FORMS)
def test_batches_what_leads_to_operands_and_what_follows(tool: Any, form: str) -> None:
    texts = [
        module("bf16[3,33,32]{2,1,0}", "bf16[3,32,35]{2,1,0}", f"bf16[3,33,35]{{2,1,0}} {BATCHED}"),
        module("s8[40,32]{1,0}", "bf16[48]{0}", f"f32[40,48]{{1,0}} {PLAIN}", of="c, b",
               before="c = bf16[40,32]{1,0} convert(p); b = bf16[32,48]{1,0} broadcast(q), "
                      "dimensions={1}", last="n = f32[40,48]{1,0} negate(d)"),
        module("f16[40,32]{1,0}", "f16[32,48]{1,0}", f"f16[40,48]{{1,0}} {PLAIN}",
            last="t = f16[48,40]{1,0} transpose(d), dimensions={1,0}"),
        module("bf16[24,64]{1,0}", "bf16[64,40]{1,0}", f"bf16[24,40]{{1,0}} {PLAIN}",
               last="m = bf16[24,40]{1,0} maximum(d, d); x = (bf16[24,40]{1,0}, bf16[24,40]{1,0}) tuple(d, m)"),
    ]  # fmt: skip
    agree(tool, form, texts)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_no_number_stays_in_its_row_and_column(tool: Any, form: str) -> None:
    text = plain(40, 24, 32, kind="bf16")
    given = [np.ones_like(a) for a in module_inputs(parse(text))]
    given[0][3, 5], given[1][7, 11] = np.nan, np.inf
    (made,) = replace(tool, form=form).run(text, given)
    assert np.isnan(made[3]).all() and np.isposinf(np.delete(made[:, 11], 3)).all()
    assert (np.delete(np.delete(made, 3, 0), 11, 1) == 32).all()


def test_what_tensor_cores_do_not_multiply(planner: Any) -> None:
    """Wider types, two types, fewer contracted elements than a step; and devices that have no such instruction."""
    assert planner.plan(plain(64, 64, 64)).kind == "matmul"
    assert planner.plan(module("bf16[64,64]{1,0}", "f16[64,64]{1,0}", f"f32[64,64]{{1,0}} {PLAIN}")).kind == "matmul"
    assert planner.plan(plain(64, 64, 8, kind="bf16")).kind == "matmul"
    older = plan(region_of_text(plain(64, 64, 64, kind="bf16")), replace(H100, compute_capability=75))
    assert isinstance(older, Plan) and older.kind == "matmul"


def test_the_host_runs_it_as_loops(planner: Any) -> None:
    assert as_loops(planner.kernel(plain(70, 50, 77, kind="bf16"))) is not None


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_sums_stay_in_registers(planner: Any, architecture: str) -> None:
    nvrtc = pytest.importorskip("cupy.cuda").nvrtc
    source = planner.kernel(plain(2048, 2048, 2048, kind="bf16")).source
    program = nvrtc.createProgram(source, "k.cu", (), ())
    nvrtc.compileProgram(program, (f"-arch={architecture}", "--std=c++17", "--ptxas-options=-v"))
    log = nvrtc.getProgramLog(program)
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in log
    assert int(re.findall(r"Used (\d+) registers", log)[0]) <= 128
