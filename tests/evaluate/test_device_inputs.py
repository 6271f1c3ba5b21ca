"""Which devices get the same random inputs."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt import parse
from hlo_opt.evaluate import device_inputs, module_inputs
from hlo_opt.ir import Module


def module_of(attribute: str, *, shape: str = "f32[8]{0}", replicas: int = 1, partitions: int = 8) -> Module:
    return parse(
        f"HloModule m, replica_count={replicas}, num_partitions={partitions}\n\nENTRY e {{\n"
        f"  ROOT p = {shape} parameter(0){', ' if attribute else ''}{attribute}\n}}\n"
    )


def groups(module: Module, number: int = 0) -> list[list[int]]:
    """The devices that get the same numbers."""
    found: dict[bytes, list[int]] = {}
    for device, inputs in enumerate(device_inputs(module, 7)):
        found.setdefault(inputs[number].tobytes(), []).append(device)
    return list(found.values())


@pytest.mark.parametrize(
    ("sharding", "expected"),
    [
        ("sharding={replicated}", [[0, 1, 2, 3, 4, 5, 6, 7]]),
        ("sharding={maximal device=3}", [[0, 1, 2, 3, 4, 5, 6, 7]]),
        ("sharding={devices=[8]<=[8]}", [[k] for k in range(8)]),
        ("sharding={devices=[2,4]<=[8] last_tile_dim_replicate}", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("sharding={devices=[4,2]<=[2,4]T(1,0) last_tile_dim_replicate}", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("sharding={devices=[2,4]0,2,4,6,1,3,5,7 last_tile_dim_replicate}", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("sharding={devices=[2,2,2]<=[8] last_tile_dims={manual, replicated}}", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("", [[k] for k in range(8)]),
        ("sharding={devices=[3]<=[3]}", [[k] for k in range(8)]),  # another number of devices: not believed
        ("sharding={devices=[8]<=[2,4]T(0,0)}", [[k] for k in range(8)]),
    ],
)
def test_partitions_with_the_same_tile(sharding: str, expected: list[list[int]]) -> None:
    assert groups(module_of(sharding)) == expected


def test_replicas_are_the_same_where_the_module_says_so() -> None:
    assert groups(module_of("", replicas=2, partitions=2)) == [[0], [1], [2], [3]]
    assert groups(module_of("parameter_replication={true}", replicas=2, partitions=2)) == [[0, 2], [1, 3]]
    both = "parameter_replication={true}, sharding={replicated}"
    assert groups(module_of(both, replicas=2, partitions=2)) == [[0, 1, 2, 3]]


def test_tuples_have_one_sharding_for_each_array() -> None:
    module = module_of(
        "sharding={{replicated}, {devices=[2,4]<=[8] last_tile_dim_replicate}}", shape="(f32[8]{0}, f32[8]{0})"
    )
    assert groups(module, 0) == [[0, 1, 2, 3, 4, 5, 6, 7]] and groups(module, 1) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_scalars_are_the_same_everywhere() -> None:
    assert groups(module_of("", shape="s32[]")) == [[0, 1, 2, 3, 4, 5, 6, 7]]


def test_the_first_device_gets_what_a_single_one_would() -> None:
    module = module_of("")
    assert np.array_equal(device_inputs(module, 3)[0][0], module_inputs(module, 3)[0])
    assert not np.array_equal(device_inputs(module, 3)[1][0], device_inputs(module, 4)[1][0])
