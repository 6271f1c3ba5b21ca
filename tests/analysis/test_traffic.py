"""Bytes and kernels of whole modules against XLA's own cost analysis."""

from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.analysis.memory.traffic import accesses, bytes_accessed, distinct_bytes, module_bytes
from hlo_opt.analysis.targets import target
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ops.accesses import Accesses

SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"


def of(body: str) -> Accesses:
    return accesses(hlo_opt.parse(f"HloModule m\n\n{SUM}\nENTRY e {{\n{body}\n}}\n").entry.root, 90)


def test_a_transpose_that_moves_nothing_is_free():
    found = of("x = f32[1,64]{1,0} parameter(0)\nROOT r = f32[64,1]{1,0} transpose(x), dimensions={1,0}")
    assert (found.read, found.written) == ((0.0,), 0.0)
    found = of("x = f32[2,64]{1,0} parameter(0)\nROOT r = f32[64,2]{1,0} transpose(x), dimensions={1,0}")
    assert (found.read, found.written) == ((512.0,), 512.0)


def test_a_scatter_moves_its_updates():
    found = of(
        """x = f32[100,64]{1,0} parameter(0)
i = s32[10,1]{1,0} parameter(1)
u = f32[10,1,64]{2,1,0} parameter(2)
ROOT r = f32[100,64]{1,0} scatter(x, i, u), update_window_dims={1,2}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum"""
    )
    assert found.read == (2560.0, 40.0, 2560.0)
    assert found.utilization == (1.0, 1.0, 1.0)
    assert found.written == 2560
    assert found.flops == 7 * 640


def test_an_update_reads_what_it_keeps_through_fusion_only():
    found = of(
        """x = f32[8,64]{1,0} parameter(0)
u = f32[1,64]{1,0} parameter(1)
i = s32[] parameter(2)
ROOT r = f32[8,64]{1,0} dynamic-update-slice(x, u, i, i)"""
    )
    assert found.read == (0.0, 256.0, 4.0, 4.0)
    assert found.utilization == (7 / 8, 1.0, 1.0, 1.0)
    assert found.written == 256


def test_a_window_reads_its_operand_again_and_again():
    found = of(
        "x = f32[64]{0} parameter(0)\nzero = f32[] constant(0)\n"
        "ROOT r = f32[16]{0} reduce-window(x, zero), window={size=8 stride=4 pad=2_2}, to_apply=sum"
    )
    assert found.read == (16 * 8 * 4.0, 4.0)
    assert found.utilization == (2.0, 1.0)
    assert found.flops == 7 * 16 * 7


def test_a_sort_counts_whole_logarithms():
    less = (
        "less {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = pred[] compare(a, b), direction=LT\n}\n"
    )
    text = (
        f"HloModule m\n\n{less}\nENTRY e "
        f"{{\nx = f32[100]{{0}} parameter(0)\nROOT r = f32[100]{{0}} sort(x), dimensions={{0}}, to_apply=less\n}}\n"
    )
    assert accesses(hlo_opt.parse(text).entry.root, 90).flops == 100 * 7


ARRAY = 1024 * 1024 * 4
RESHAPED_TWICE = """f {
  x = f32[1024,1024] parameter(0)
  b = f32[1024,1024] reshape(x)
  c = f32[1024,1024] reshape(x)
  ROOT s = f32[1024,1024] add(b, c)
}
"""


@pytest.mark.parametrize(
    ("called", "root", "own", "by_xla"),
    [
        ("", "ROOT r = f32[1024,1024] add(p, p)", 2, 3),
        ("", "q = f32[1024,1024] parameter(1)\n  ROOT r = f32[1024,1024] add(p, q)", 3, 3),
        (RESHAPED_TWICE, "ROOT r = f32[1024,1024] fusion(p), kind=kLoop, calls=f", 2, 3),
    ],
    ids=["one operand twice", "two operands", "twice in a kernel"],
)
def test_an_array_that_is_read_twice_counts_once_but_twice_for_xla(called: str, root: str, own: int, by_xla: int):
    module = hlo_opt.parse(f"HloModule m\n\n{called}ENTRY e {{\n  p = f32[1024,1024] parameter(0)\n  {root}\n}}\n")
    instruction = module.entry.root
    assert (distinct_bytes(instruction), bytes_accessed(instruction)) == (own * ARRAY, by_xla * ARRAY)
    assert (module_bytes(module), module_bytes(module, each_once=False)) == (own * ARRAY, by_xla * ARRAY)
    summary = module_summary(module, target("h100_sxm"))
    assert (summary.bytes, summary.launched[0].bytes) == (own * ARRAY, own * ARRAY)


DUMPS = Path(__file__).parents[2] / "testdata" / "dumps"
SOME = [
    "adam_one",
    "branch",
    "cache_update",
    "choose",
    "dropout",
    "layer_norm",
    "mlp_forward",
    "nested",
    "pairwise_forces",
    "softmax_bf16",
    "transpose_add",
]


APART = ("mlp_forward", "nested")
"""Where `default` makes what XLA counts otherwise: the tuple that a loop in a fusion begins with is read once more, and
a call of a library reads and writes nothing."""


@pytest.mark.parametrize("name", SOME)
def test_bytes_are_those_of_xla(name: str):
    jaxlib = pytest.importorskip("jaxlib._hlo")
    jax = pytest.importorskip("jax")
    private = pytest.importorskip("jaxlib._jax")
    text = (DUMPS / f"{name}.hlo").read_text()
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text), preset="xla-2026" if name in APART else "default")
    for each in (text, str(fused)):
        module = jaxlib.hlo_module_from_text(each)
        client = jax.devices("cpu")[0].client
        wanted = private.hlo_module_cost_analysis(client, module)["bytes accessed"]
        assert module_bytes(hlo_opt.parse(each), each_once=False) == pytest.approx(wanted, rel=0.001)


def test_of_several_results_those_count_that_the_kernel_returns():
    """Bytes that XLA counts for this text: the operands and one array."""
    prefix = "f32[64,1024]{1,0}"
    called = f"""c {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  x = f32[] parameter(2)
  y = f32[] parameter(3)
  ax = f32[] multiply(a, x)
  bx = f32[] multiply(b, x)
  s = f32[] add(bx, y)
  ROOT t = (f32[], f32[]) tuple(ax, s)
}}

f {{
  p = {prefix} parameter(0)
  q = {prefix} parameter(1)
  one = f32[] constant(1)
  zero = f32[] constant(0)
  w = ({prefix}, {prefix}) reduce-window(p, q, one, zero), window={{size=1x1024 pad=0_0x1023_0}}, to_apply=c
  ROOT r = {prefix} get-tuple-element(w), index=1
}}
"""
    entry = f"ENTRY e {{\n  p = {prefix} parameter(0)\n  q = {prefix} parameter(1)\n"
    text = f"HloModule m\n\n{called}\n{entry}  ROOT r = {prefix} fusion(p, q), kind=kLoop, calls=f\n}}\n"
    assert module_bytes(hlo_opt.parse(text)) == 3 * 64 * 1024 * 4
