"""Bytes and kernels of whole modules against XLA's own cost analysis."""

from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.fusion.summary import module_summary

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


@pytest.mark.parametrize("name", SOME)
def test_bytes_are_those_of_xla(name: str):
    jaxlib = pytest.importorskip("jaxlib._hlo")
    jax = pytest.importorskip("jax")
    private = pytest.importorskip("jaxlib._jax")
    text = (DUMPS / f"{name}.hlo").read_text()
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text))
    for each in (text, str(fused)):
        module = jaxlib.hlo_module_from_text(each)
        client = jax.devices("cpu")[0].client
        wanted = private.hlo_module_cost_analysis(client, module)["bytes accessed"]
        found = module_summary(hlo_opt.parse(each), target("h100_sxm")).bytes
        assert found == pytest.approx(wanted, rel=0.001)
