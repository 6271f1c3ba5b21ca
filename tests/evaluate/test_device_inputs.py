"""Which devices get the same random inputs."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt import parse
from hlo_opt.diag import EvaluationError
from hlo_opt.evaluate import device_inputs, module_inputs
from hlo_opt.evaluate.devices import cut, global_forms, spread
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


def test_scalars_are_the_same_everywhere_where_they_may_decide() -> None:
    assert len(groups(module_of("", shape="f32[]"))) == 8
    text = (
        "HloModule m, num_partitions=8\n\nsame {\n  ROOT a = s32[] parameter(0)\n}\n\nENTRY e {\n  p = s32[] "
        "parameter(0)\n"
        "  ROOT r = s32[] conditional(p, p, p), branch_computations={same, same}\n}\n"
    )
    assert groups(parse(text)) == [[0, 1, 2, 3, 4, 5, 6, 7]]


def test_the_first_device_gets_what_a_single_one_would() -> None:
    module = module_of("")
    assert np.array_equal(device_inputs(module, 3)[0][0], module_inputs(module, 3)[0])
    assert not np.array_equal(device_inputs(module, 3)[1][0], device_inputs(module, 4)[1][0])


def test_a_global_array_is_cut_as_the_sharding_says() -> None:
    module = module_of("sharding={devices=[2,4]<=[2,4]T(0,1)}", shape="f32[2,3]{1,0}")
    whole = np.arange(4 * 12, dtype=np.float32).reshape(4, 12)
    tiles = cut(module, 0, whole)
    assert all(np.array_equal(tiles[d], whole[2 * (d // 4) :, 3 * (d % 4) :][:2, :3]) for d in range(8))
    assert global_forms(module, 0) == "[4,12], which its sharding splits"
    own = whole[:2, :3]
    assert all(array is own for array in cut(module, 0, own))
    odd = np.ones((4, 10), np.float32)  # XLA fills the last tiles up
    assert [tile.sum() for tile in cut(module, 0, odd)] == [6, 6, 6, 2, 6, 6, 6, 2]
    other = np.ones((4, 13), np.float32)
    assert cut(module, 0, other) == [other] * 8  # whoever checks the sizes refuses it


def test_replicas_have_a_dimension_of_their_own() -> None:
    module = module_of("sharding={devices=[2]<=[2]}", shape="f32[3]{0}", replicas=2, partitions=2)
    stack = np.arange(12, dtype=np.float32).reshape(2, 6)
    assert [a.tolist() for a in cut(module, 0, stack)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert [a.tolist() for a in cut(module, 0, stack[:, :3])] == [[0, 1, 2]] * 2 + [[6, 7, 8]] * 2
    assert global_forms(module, 0) == "[6], which its sharding splits or [2,3], one for each replica"
    same = module_of("parameter_replication={true}", shape="f32[3]{0}", replicas=2, partitions=1)
    assert global_forms(same, 0) == "" and cut(same, 0, stack[:, :3])[0].shape == (2, 3)


def test_one_list_is_for_all_devices() -> None:
    module = module_of("sharding={devices=[8]<=[8]}", shape="f32[1]{0}")
    assert [own[0].tolist() for own in spread(module, [[np.arange(8)]])] == [[k] for k in range(8)]
    assert spread(module, [[5.0]]) == [[5.0]] * 8
    with pytest.raises(EvaluationError, match="HLO401 the module runs on 8 devices, but inputs for 2 are given"):
        spread(module, [[1.0], [2.0]])
