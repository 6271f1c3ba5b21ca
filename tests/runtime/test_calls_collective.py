"""Collectives of emitted drivers: two devices in one process, each with a stand-in for the communicator that knows what the other one sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import hlo_opt
from hlo_opt.diag import BackendError
from hlo_opt.runtime import device_collectives
from hlo_opt.runtime.calls_collective import driver_call, exchange_of

MODULE = """HloModule m, num_partitions=2

fold {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT c = {t}[] {fold}(a, b)
}}

ENTRY e {{
  p = {t}[4,6]{{0,1}} parameter(0)
  ROOT r = {result} {opcode}(p), channel_id=1, replica_groups={{{{{group}}}}}, use_global_device_ids=true{more}
}}
"""
CASES = {
    "all-reduce": ("{t}[4,6]{{1,0}}", ", to_apply=fold"),
    "reduce-scatter": ("{t}[4,3]{{1,0}}", ", dimensions={1}, to_apply=fold"),
    "all-gather": ("{t}[8,6]{{0,1}}", ", dimensions={0}"),
}


def module(opcode: str, element_type: str = "f32", fold: str = "add", group: str = "0,1") -> hlo_opt.Module:
    result, more = CASES[opcode]
    shape = result.format(t=element_type)
    return hlo_opt.parse(MODULE.format(t=element_type, fold=fold, result=shape, opcode=opcode, group=group, more=more))


class Communicator:
    """That of device `rank`; `sent` is what each device sends, in turn."""

    ufuncs: ClassVar = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}

    def __init__(self, rank: int, sent: list[Any]) -> None:
        self.rank, self.sent = rank, sent

    def all_reduce(self, given: Any, taken: Any, op: str) -> None:
        taken[...] = self.ufuncs[op](*self.sent)

    def reduce_scatter(self, given: Any, taken: Any, count: int, op: str) -> None:
        assert count == taken.size and given.size == 2 * count
        taken[...] = self.ufuncs[op](*self.sent)[self.rank]

    def all_gather(self, given: Any, taken: Any, count: int) -> None:
        assert count == given.size and taken.size == 2 * count
        taken[...] = self.sent


class ToldError(Exception):
    """Carries what a device sends."""


class Recorder:
    def __getattr__(self, name: str) -> Any:
        def record(given: Any, *rest: Any) -> None:
            raise ToldError(given)

        return record


def exchanged(call: Any, buffers: list[Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    sent = []
    for buffer in buffers:
        monkeypatch.setattr(device_collectives, "COMMUNICATOR", [Recorder()])
        with pytest.raises(ToldError) as told:
            call.run(np, [buffer])
        sent.append(told.value.args[0])
    results = []
    for rank, buffer in enumerate(buffers):
        monkeypatch.setattr(device_collectives, "COMMUNICATOR", [Communicator(rank, sent)])
        results.append(call.run(np, [buffer])[0])
    return results


@pytest.mark.parametrize("opcode", CASES)
@pytest.mark.parametrize(("element_type", "fold"), [("f32", "add"), ("bf16", "maximum"), ("s32", "multiply")])
def test_two_devices_exchange_what_the_evaluator_says(
    opcode: str, element_type: str, fold: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = module(opcode, element_type, fold)
    root, dtype = made.entry.root, made.entry.root.shape.type.dtype
    call = driver_call(root)
    assert call is not None and call.does.startswith("cupyx.distributed ")
    given = [np.arange(24).reshape(4, 6).astype(dtype), (np.arange(24) % 5 - 2).reshape(4, 6).astype(dtype)]
    wanted = hlo_opt.evaluate_devices(made, [[g] for g in given])
    raw = "uint16" if element_type == "bf16" else dtype
    buffers = [np.ascontiguousarray(g.T).reshape(-1).view(raw) for g in given]
    order = root.shape.minor_to_major[::-1]
    for got, want in zip(exchanged(call, buffers, monkeypatch), wanted, strict=True):
        assert got.dtype == raw
        np.testing.assert_array_equal(got.view(dtype), np.asarray(want[0]).transpose(order).reshape(-1))


def test_a_group_of_fewer_devices_or_another_fold_is_none_of_these() -> None:
    assert exchange_of(module("all-reduce", group="0},{1").entry.root) is None
    assert exchange_of(module("all-reduce", fold="subtract").entry.root) is None
    assert exchange_of(module("all-gather", "pred").entry.root) is None


def test_the_driver_asks_for_a_communicator(tmp_path: Path) -> None:
    hlo_opt.emit(module("all-reduce"), tmp_path / "out")
    text = (tmp_path / "out" / "driver.py").read_text()
    assert "def run(*arrays, communicator=None):" in text and "exchange_call(" in text
    call = driver_call(module("all-reduce").entry.root)
    assert call is not None
    with pytest.raises(RuntimeError, match=r"init_process_group\(2, rank\)"):
        call.run(np, [np.zeros(24, np.float32)])


def test_a_kernel_that_asks_which_device_it_is_on_has_no_driver(tmp_path: Path) -> None:
    text = str(module("all-reduce", "u32")).replace(
        "ROOT %r = u32[4,6]{1,0} all-reduce(%p)",
        "%i = u32[] partition-id()\n  %b = u32[4,6]{0,1} broadcast(%i), dimensions={}\n  ROOT %r = u32[4,6]{1,0} all-reduce(%b)",
    )
    assert "partition-id" in text
    with pytest.raises(BackendError, match="partition-id"):
        hlo_opt.emit(hlo_opt.parse(text), tmp_path / "out")
