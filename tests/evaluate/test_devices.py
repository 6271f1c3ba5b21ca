"""Collectives on several simulated devices."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt import EvaluationError, parse
from hlo_opt.evaluate.devices import evaluate_devices

ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"


def run(body: str, *, replicas: int = 1, partitions: int = 1, size: int = 4, functions: str = "") -> list[list[float]]:
    text = f"HloModule m, replica_count={replicas}, num_partitions={partitions}\n{ADD}{functions}\n"
    text += f"ENTRY e {{\n  p = f32[{size}] parameter(0)\n  {body}\n}}\n"
    inputs = [[np.arange(size, dtype=np.float32) + 10 * k] for k in range(replicas * partitions)]
    return [outputs[0].reshape(-1).tolist() for outputs in evaluate_devices(parse(text), inputs)]


def row(device: int) -> np.ndarray:
    return np.arange(4, dtype=np.float32) + 10 * device


@pytest.mark.parametrize(
    ("attributes", "replicas", "partitions", "groups"),
    [
        ("replica_groups={}", 4, 1, [[0, 1, 2, 3]] * 4),
        ("replica_groups={{0,2},{1,3}}", 4, 1, [[0, 2], [1, 3], [0, 2], [1, 3]]),
        ("replica_groups=[2,2]<=[4]", 4, 1, [[0, 1], [0, 1], [2, 3], [2, 3]]),
        ("replica_groups=[2,2]<=[2,2]T(1,0)", 4, 1, [[0, 2], [1, 3], [0, 2], [1, 3]]),
        ("replica_groups={{0,1}}", 2, 2, [[0, 2], [1, 3], [0, 2], [1, 3]]),
        ("replica_groups={{0},{1}}, channel_id=1", 2, 2, [[0, 1], [0, 1], [2, 3], [2, 3]]),
        ("replica_groups={{0,1}}, channel_id=1", 2, 2, [[0, 1, 2, 3]] * 4),
        (
            "replica_groups={{0,3},{1,2}}, channel_id=1, use_global_device_ids=true",
            2,
            2,
            [[0, 3], [1, 2], [1, 2], [0, 3]],
        ),
        (
            "replica_groups=mesh['x'=2,'y'=2] {'x'}, channel_id=1, use_global_device_ids=true",
            1,
            4,
            [[0, 2], [1, 3], [0, 2], [1, 3]],
        ),
        (
            "replica_groups=mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'x'}, channel_id=1, "
            "use_global_device_ids=true",
            1,
            4,
            [[0, 1], [0, 1], [2, 3], [2, 3]],
        ),
        (
            "replica_groups=mesh['x'=4], device_ids=(0,3,1,2) {'x':(1)2}, channel_id=1, use_global_device_ids=true",
            1,
            4,
            [[0, 1], [0, 1], [3, 2], [3, 2]],
        ),
        (
            "replica_groups=mesh['x'=1,'y'=4] {'x','y':(2)2}, channel_id=1, use_global_device_ids=true",
            1,
            4,
            [[0, 1], [0, 1], [2, 3], [2, 3]],
        ),
    ],
)
def test_groups_of_an_all_reduce(attributes: str, replicas: int, partitions: int, groups: list[list[int]]) -> None:
    got = run(f"ROOT r = f32[4] all-reduce(p), {attributes}, to_apply=add", replicas=replicas, partitions=partitions)
    assert got == [sum(row(k) for k in group).tolist() for group in groups]


def test_gather_scatter_and_exchange() -> None:
    everything = np.concatenate([row(0), row(1)])
    assert run("ROOT r = f32[8] all-gather(p), dimensions={0}", replicas=2) == [everything.tolist()] * 2
    total = row(0) + row(1)
    scattered = run("ROOT r = f32[2] reduce-scatter(p), dimensions={0}, to_apply=add", replicas=2)
    assert scattered == [total[:2].tolist(), total[2:].tolist()]
    exchanged = run("ROOT r = f32[4] all-to-all(p), dimensions={0}, replica_groups={{0,1}}", replicas=2)
    assert exchanged == [[0, 1, 10, 11], [2, 3, 12, 13]]
    tuples = run(
        "q = f32[4] negate(p)\n  t = (f32[4], f32[4]) all-to-all(p, q), replica_groups={{0,1}}\n"
        "  ROOT r = f32[4] get-tuple-element(t), index=1",
        replicas=2,
    )
    assert tuples == [row(1).tolist(), (-row(1)).tolist()]


def test_permute_and_broadcast() -> None:
    pairs = "source_target_pairs={{0,1},{1,2}}"
    assert run(f"ROOT r = f32[4] collective-permute(p), {pairs}", replicas=3) == [
        [0.0] * 4,
        row(0).tolist(),
        row(1).tolist(),
    ]
    across = run(f"ROOT r = f32[4] collective-permute(p), {pairs}, channel_id=1", partitions=3)
    assert across[2] == row(1).tolist()
    broadcast = run("ROOT r = f32[4] collective-broadcast(p), replica_groups={{1,0}}", replicas=3)
    assert broadcast == [row(1).tolist(), row(1).tolist(), [0.0] * 4]


def test_identifiers() -> None:
    body = "i = u32[] replica-id()\n  j = u32[] partition-id()\n  t = u32[] constant(10)\n  k = u32[] multiply(i, t)\n"
    got = run(body + "  ROOT r = u32[] add(k, j)", replicas=2, partitions=2)
    assert got == [[0], [1], [10], [11]]


def test_starts_and_loops() -> None:
    loop = """body {
  s = (f32[4], s32[]) parameter(0)
  v = f32[4] get-tuple-element(s), index=0
  i = s32[] get-tuple-element(s), index=1
  a = f32[4] all-reduce-start(v), replica_groups={}, to_apply=add
  b = f32[4] all-reduce-done(a)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (f32[4], s32[]) tuple(b, j)
}
condition {
  s = (f32[4], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=1
  three = s32[] constant(3)
  ROOT l = pred[] compare(i, three), direction=LT
}
"""
    body = "z = s32[] constant(0)\n  t = (f32[4], s32[]) tuple(p, z)\n"
    body += (
        "  w = (f32[4], s32[]) while(t), condition=condition, body=body\n  ROOT r = f32[4] get-tuple-element(w), "
        "index=0"
    )
    total = (row(0) + row(1)) * 4
    assert run(body, replicas=2, functions=loop) == [total.tolist()] * 2


DIVERGE = """sums {
  v = f32[4] parameter(0)
  ROOT a = f32[4] all-reduce(v), replica_groups={}, to_apply=add
}
keeps {
  ROOT v = f32[4] parameter(0)
}
"""


def test_devices_that_go_different_ways_are_an_error() -> None:
    body = "i = u32[] replica-id()\n  s = s32[] convert(i)\n"
    body += "  ROOT r = f32[4] conditional(s, p, p), branch_computations={sums, keeps}"
    with pytest.raises(EvaluationError, match="wait for each other: device 0 at a; ended: 1") as caught:
        run(body, replicas=2, functions=DIVERGE)
    assert caught.value.code == "HLO405"


def test_different_collectives_of_a_group_are_an_error() -> None:
    other = DIVERGE.replace(
        "ROOT v = f32[4] parameter(0)", "v = f32[4] parameter(0)\n  ROOT g = f32[4] all-to-all(v), dimensions={0}"
    )
    body = "i = u32[] replica-id()\n  s = s32[] convert(i)\n"
    body += "  ROOT r = f32[4] conditional(s, p, p), branch_computations={sums, keeps}"
    with pytest.raises(EvaluationError, match="other devices of its group are at"):
        run(body, replicas=2, functions=other)


def test_groups_and_inputs_that_do_not_fit() -> None:
    with pytest.raises(EvaluationError, match="beyond the 2"):
        run("ROOT r = f32[4] all-reduce(p), replica_groups={{0,1,2}}, to_apply=add", replicas=2)
    module = parse(f"HloModule m, replica_count=2\n{ADD}ENTRY e {{\n  ROOT p = f32[4] parameter(0)\n}}\n")
    with pytest.raises(EvaluationError, match="2 devices, but inputs for 3"):
        evaluate_devices(module, [[row(0)]] * 3)
    assert len(evaluate_devices(module, [[row(0)]])) == 2


def test_axes_that_a_mesh_has_not() -> None:
    for axes in ("'z'", "'x':(1)3", "'x','x'"):
        with pytest.raises(EvaluationError, match=r"HLO400 .*replica_groups=mesh"):
            run(f"ROOT r = f32[4] all-reduce(p), replica_groups=mesh['x'=4] {{{axes}}}, to_apply=add", replicas=4)
