"""The order of equal elements in an unstable sort is that of XLA:CPU."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ops.introsort import Undecided, introsort


def text(count: int, compared: str, is_stable: bool) -> str:
    comparator = "".join(f"  {n} = s32[] parameter({k})\n" for k, n in enumerate("abcd"))
    comparator = f"c {{\n{comparator}  ROOT r = pred[] compare({compared}), direction=LT\n}}\n"
    sort = f"(s32[{count}], s32[{count}]) sort(k, v), dimensions={{0}}, to_apply=c" + ", is_stable=true" * is_stable
    return f"HloModule m\n{comparator}ENTRY e {{\n  k = s32[{count}] parameter(0)\n  v = s32[{count}] parameter(1)\n  ROOT s = {sort}\n}}\n"


@pytest.mark.parametrize("compared", ["a, b", "b, a", "b, c"])  # the last one is no order
@pytest.mark.parametrize("count", [2, 16, 17, 100, 700])
@pytest.mark.parametrize("is_stable", [False, True])
def test_xla_agrees(count: int, compared: str, is_stable: bool) -> None:
    pytest.importorskip("jaxlib")
    from scripts.xla_cpu import Program

    if compared == "b, c" and is_stable:
        pytest.skip("a merge sort's outcome for what is no order")
    generator = np.random.default_rng(count)
    inputs = [generator.integers(0, 8, count).astype(np.int32) for _ in range(2)]
    module = hlo_opt.parse(text(count, compared, is_stable))
    for got, want in zip(
        hlo_opt.evaluate(module, inputs), Program(text(count, compared, is_stable))(inputs), strict=True
    ):
        assert np.array_equal(got, want)


def test_bad_luck_goes_on_with_a_heap() -> None:
    count = 2000
    keys: dict[int, int] = {}
    solid = 0
    candidate = 0

    def killer(i: int, j: int) -> bool:  # McIlroy's adversary: decides keys so that quicksort goes deep
        nonlocal solid, candidate
        if i not in keys and j not in keys:
            keys[i if i == candidate else j] = solid
            solid += 1
        if i not in keys:
            candidate = i
        elif j not in keys:
            candidate = j
        return keys.get(i, count) < keys.get(j, count)

    introsort(count, killer)
    order = introsort(count, lambda i, j: keys.get(i, count) < keys.get(j, count))
    found = [keys.get(k, count) for k in order]
    assert found == sorted(found) and sorted(order) == list(range(count))


def test_what_is_no_order_at_all_is_undecided() -> None:
    with pytest.raises(Undecided):
        introsort(40, lambda i, j: True)
