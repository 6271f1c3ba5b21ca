"""The devices that collectives name. Each fault is one that XLA's verifier refuses as well."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.diag import VerifyError

ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }\n"


def module(line: str, header: str = "") -> str:
    return f"HloModule m{header}\n{ADD}ENTRY e {{\n  p = f32[4,8] parameter(0)\n  ROOT r = {line}\n}}\n"


GATHER = "f32[8,8] all-gather(p), dimensions={0}, replica_groups="
SCATTER = "f32[2,8] reduce-scatter(p), dimensions={0}, to_apply=add, replica_groups="
REDUCE = "f32[4,8] all-reduce(p), to_apply=add, replica_groups="
PERMUTE = "f32[4,8] collective-permute(p), source_target_pairs="
GLOBAL = ", channel_id=1, use_global_device_ids=true"
WRONG = [
    (GATHER + "{{0,1},{1,2}}", "", "name 1 twice"),
    (GATHER + "{{0,1},{2,4}}", "", "name 4, but not 3"),
    (GATHER + "{{0,1},{2}}", "", "differ in size"),
    (GATHER + "{{0,1},{}}", "", "a replica group is empty"),
    (GATHER + "{{0,1}}", ", replica_count=4", "name 2 of 4 replicas"),
    (GATHER + "{{0,1}}" + GLOBAL, ", replica_count=2, num_partitions=2", "name 2 of 4 devices"),
    (GATHER + "{{0,1,2,3}}", "", "groups of 4 do not make 8 of 4"),
    (GATHER + "{{0,1}}, channel_id=1", ", num_partitions=2", "groups of 4 do not make 8 of 4"),
    (GATHER + "[1,4]<=[4]", "", "groups of 4 do not make 8 of 4"),
    (SCATTER + "{{0,1,2,3}}", "", "groups of 4 do not make 4 of 2"),
    ("(f32[4,8], f32[4,8]) all-to-all(p, p), replica_groups={{0,1,2}}", "", "2 operands for groups of 3"),
    ("f32[4,8] all-to-all(p), dimensions={0}, channel_id=1, "
     "replica_groups={{0,1}}", ", num_partitions=4", "2 of 4 partitions"),
    (PERMUTE + "{{0,1},{2,1}}", "", "target 1 is in two pairs"),
    (PERMUTE + "{{0,1},{0,2}}", "", "source 0 is in two pairs"),
    ("f32[8,4] collective-permute(p), source_target_pairs={{0,1}}", "", "collective-permute returns f32[4,8]"),
    ("f32[8,4] all-to-all(p), dimensions={0}, replica_groups={{0,1}}", "", "all-to-all returns f32[4,8]"),
]  # fmt: skip
RIGHT = [
    (GATHER + "{{0,1},{2,3}}", ", replica_count=4"),
    (GATHER + "{}", ""),
    (GATHER + "{{0,1},{3,2}}" + GLOBAL, ", replica_count=2, num_partitions=2"),
    (GATHER + "{{0}}, channel_id=1", ", num_partitions=2"),
    (SCATTER + "[2,2]<=[4]", ""),
    (REDUCE + "{{0,1},{2}}", ", replica_count=3"),
    ("(f32[4,8], f32[4,8]) all-to-all(p, p), replica_groups={{0,1},{2,3}}", ""),
    (PERMUTE + "{{0,1},{1,0}}", ", replica_count=2"),
]


@pytest.mark.parametrize(("line", "header", "message"), WRONG)
def test_refused(line: str, header: str, message: str) -> None:
    with pytest.raises(VerifyError) as caught:
        hlo_opt.verify(hlo_opt.parse(module(line, header), "m.hlo"))
    assert message in caught.value.message and caught.value.line == 5


@pytest.mark.parametrize(("line", "header"), RIGHT)
def test_accepted(line: str, header: str) -> None:
    hlo_opt.verify(hlo_opt.parse(module(line, header)))


@pytest.mark.parametrize("case", [case for case in [w[:2] for w in WRONG] + RIGHT if not case[1]])
def test_xla_thinks_the_same(case: tuple[str, str]) -> None:
    """Compiling for the CPU runs XLA's verifier first, after a conversion that has checks of its own. The header's
    counts do not get there."""
    pytest.importorskip("jaxlib")
    import jax
    import jaxlib._hlo as hlo
    import jaxlib._jax as xla
    from jaxlib import xla_client

    line, header = case
    read = hlo.hlo_module_from_text(module(line, header))
    text = xla.mlir.xla_computation_to_mlir_module(hlo.XlaComputation(read.as_serialized_hlo_module_proto()))
    device = jax.local_devices(backend="cpu")[0]
    try:
        device.client.compile_and_load(text, xla_client.DeviceList((device,)), xla_client.CompileOptions())
        message = ""
    except Exception as error:
        message = str(error)
    refused = any(word in message for word in ("hlo verifier", "error: loc"))
    assert refused == (case not in RIGHT), message[:300]


def test_the_order_of_a_meshs_devices_belongs_to_the_groups() -> None:
    groups = "mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'x'}"
    text = (
        "HloModule m, num_partitions=4\n\nENTRY e {\n  p = f32[4]{0} parameter(0)\n"
        f"  ROOT g = f32[8]{{0}} all-gather(p), replica_groups={groups}, dimensions={{0}}, channel_id=1, "
        f"use_global_device_ids=true\n}}\n"
    )
    module = hlo_opt.parse(text)
    hlo_opt.verify(module)
    assert list(module.entry.root.attributes) == ["replica_groups", "dimensions", "channel_id", "use_global_device_ids"]
    assert f"replica_groups={groups}, dimensions" in str(module)
