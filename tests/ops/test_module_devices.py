"""For how many devices a module is."""

from __future__ import annotations

import pytest

from hlo_opt import parse
from hlo_opt.ir import Module
from hlo_opt.ops.collective.module_devices import counts, depends_on_devices, exchanges, for_devices, named

ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"


def module_of(body: str, header: str = "") -> Module:
    return parse(f"HloModule m{header}\n{ADD}ENTRY e {{\n  p = f32[8]{{0}} parameter(0)\n  {body}\n}}\n")


@pytest.mark.parametrize(
    ("body", "devices"),
    [
        ("ROOT r = f32[8]{0} negate(p)", (1, 1)),
        ("ROOT r = f32[8]{0} all-reduce(p), replica_groups={}, to_apply=add", (1, 1)),
        ("ROOT r = f32[8]{0} all-reduce(p), replica_groups={{0,1},{2,3}}, to_apply=add", (4, 1)),
        ("ROOT r = f32[8]{0} all-reduce(p), replica_groups={{0,1}}, channel_id=1, to_apply=add", (2, 1)),
        (
            "ROOT r = f32[8]{0} all-reduce(p), replica_groups=[2,4]<=[8], channel_id=1, use_global_device_ids=true, "
            "to_apply=add",
            (1, 8),
        ),
        ("ROOT r = f32[8]{0} collective-permute(p), source_target_pairs={{0,2}}", (3, 1)),
        ("ROOT r = f32[8]{0} collective-permute(p), channel_id=1, source_target_pairs={{0,2}}", (1, 3)),
        ("ROOT r = f32[8]{0} all-to-all(p), dimensions={0}, channel_id=1, replica_groups={{0,1}}", (1, 2)),
        (
            "a = f32[8]{0} all-reduce(p), replica_groups={{0,1}}, to_apply=add\n"
            "  ROOT r = f32[8]{0} all-reduce(a), replica_groups=[1,4]<=[4], channel_id=1, use_global_device_ids=true, "
            "to_apply=add",
            (2, 2),
        ),
        ("ROOT r = f32[8]{0} all-reduce(p), replica_groups=[1,4096]<=[4096], to_apply=add", (1, 1)),
    ],
)
def test_what_collectives_name(body: str, devices: tuple[int, int]) -> None:
    module = module_of(body)
    assert named(module) == devices
    made = for_devices(module, devices)
    assert counts(made) == devices and counts(module) == (1, 1) and (made is module) == (devices == (1, 1))


def test_the_header_has_the_last_word() -> None:
    body = "ROOT r = f32[8]{0} all-reduce(p), replica_groups={{0,1},{2,3}}, to_apply=add"
    assert named(module_of(body, ", replica_count=8, num_partitions=2")) == (8, 2)


def test_where_devices_matter() -> None:
    assert depends_on_devices(module_of("ROOT r = f32[8]{0} negate(p)")) is None
    found = depends_on_devices(module_of("i = u32[] partition-id()\n  ROOT r = f32[8]{0} negate(p)"))
    assert found is not None and found.name == "i" and not exchanges(found)
