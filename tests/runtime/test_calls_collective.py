"""Collectives of emitted drivers: two devices in one process, each with a stand-in for the communicator that knows what
the other one sends."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import hlo_opt
from hlo_opt.library import collectives as device_collectives
from hlo_opt.library.arrays import raw_dtype
from hlo_opt.ops.calls.call import call_of

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
    call = call_of(root)
    assert call is not None and call.does.startswith("cupyx.distributed ")
    given = [np.arange(24).reshape(4, 6).astype(dtype), (np.arange(24) % 5 - 2).reshape(4, 6).astype(dtype)]
    wanted = hlo_opt.evaluate_devices(made, [[g] for g in given])
    raw = "uint16" if element_type == "bf16" else dtype
    buffers = [np.ascontiguousarray(g.T).reshape(-1).view(raw) for g in given]
    order = root.shape.minor_to_major[::-1]
    for got, want in zip(exchanged(call, buffers, monkeypatch), wanted, strict=True):
        assert got.dtype == raw
        np.testing.assert_array_equal(got.view(dtype), np.asarray(want[0]).transpose(order).reshape(-1))


def test_what_has_no_fold_or_is_malformed_is_none_of_these() -> None:
    assert call_of(module("all-reduce", fold="subtract").entry.root) is None
    assert call_of(module("all-reduce", "f8e5m2").entry.root) is None
    assert call_of(module("all-reduce", "c64", "maximum").entry.root) is None
    assert call_of(module("all-reduce", group="0},{0,1").entry.root) is None


class Ring:
    """A communicator of threads: each is a device and has a number."""

    def __init__(self, devices: int) -> None:
        self.own = threading.local()
        self.sent: list[Any] = [None] * devices
        self.barrier = threading.Barrier(devices, timeout=30)

    @property
    def rank(self) -> int:
        number: int = self.own.number
        return number

    def all_gather(self, given: Any, taken: Any, count: int) -> None:
        assert count == given.size and taken.size == len(self.sent) * count and given.dtype.name in NCCL_TYPES
        self.sent[self.rank] = given
        self.barrier.wait()
        taken.reshape(len(self.sent), count)[...] = self.sent
        self.barrier.wait()

    def run(self, work: Any) -> list[Any]:
        """What the work gives each device, whose number it is told."""
        made: list[Any] = [None] * len(self.sent)

        def of(number: int) -> None:
            self.own.number = number
            try:
                made[number] = work(number)
            except BaseException:
                self.barrier.abort()
                raise

        threads = [threading.Thread(target=of, args=(number,)) for number in range(len(made))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return made


NCCL_TYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
HEAD = (
    "HloModule m, {counts}\nfold {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT c = {t}[] {fold}(a, "
    "b)\n}}\n"
)
HALVES = "replica_groups={{0,2},{3,1}}"
GROUPED = {
    "all_reduce": ("f32", "add", f"f32[4,6]{{1,0}} all-reduce(p), {HALVES}, to_apply=fold"),
    "of_bf16": ("bf16", "add", f"bf16[4,6]{{0,1}} all-reduce(p), {HALVES}, to_apply=fold"),
    "of_pred": ("pred", "and", "pred[4,6]{1,0} all-reduce(p), to_apply=fold"),
    "of_some": ("s16", "maximum", "s16[4,6]{1,0} all-reduce(p), replica_groups={{1,3}}, to_apply=fold"),
    "reduce_scatter": (
        "s32",
        "multiply",
        f"s32[4,3]{{0,1}} reduce-scatter(p), {HALVES}, dimensions={{1}}, to_apply=fold",
    ),
    "all_gather": ("f8e4m3fn", "add", f"f8e4m3fn[8,6]{{1,0}} all-gather(p), {HALVES}, dimensions={{0}}"),
    "of_all": ("c64", "add", "c64[4,24]{1,0} all-gather(p), replica_groups={{3,1,0,2}}, dimensions={1}"),
    "all_to_all": ("f32", "add", f"f32[4,6]{{0,1}} all-to-all(p), {HALVES}, dimensions={{0}}"),
    "broadcast": ("f64", "add", "f64[4,6]{1,0} collective-broadcast(p), replica_groups={{2,0,1}}"),
    "permute": ("u8", "add", "u8[4,6]{1,0} collective-permute(p), source_target_pairs={{0,1},{1,3},{3,0}}"),
}


@pytest.mark.parametrize("name", GROUPED)
@pytest.mark.parametrize("counted", ["replica_count=4", "num_partitions=4", "replica_count=2, num_partitions=2"])
def test_groups_exchange_what_the_evaluator_says(name: str, counted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    t, fold, operation = GROUPED[name]
    if "num" in counted:
        operation += ", channel_id=1"
        if any(o in operation for o in ("reduce", "gather")) and "{1,3}" not in operation:
            operation += ", use_global_device_ids=true"
    if "replica_count=2" in counted and "use_global" not in operation:
        operation = operation.replace(HALVES, "replica_groups={{1,0}}").replace("{2,0,1}", "{1}")
        operation = operation.replace("{1,3},{3,0}", "{1,0}").replace("{1,3}", "{1,0}")
    text = HEAD.format(t=t, fold=fold, counts=counted)
    made = hlo_opt.parse(f"{text}ENTRY e {{\n  p = {t}[4,6]{{0,1}} parameter(0)\n  ROOT r = {operation}\n}}\n")
    inputs = [[a] for a in device_values(made)]
    wanted = hlo_opt.evaluate_devices(made, inputs)
    call = call_of(made.entry.root)
    assert call is not None
    raw = raw_dtype(inputs[0][0].dtype)
    ring = Ring(4)
    monkeypatch.setattr(device_collectives, "COMMUNICATOR", [ring])
    results = ring.run(lambda n: call.run(np, [np.ascontiguousarray(inputs[n][0].T).reshape(-1).view(raw)]))
    order = made.entry.root.shape.minor_to_major[::-1]
    for got, want in zip(results, wanted, strict=True):
        assert got[0].dtype == raw
        dense = got[0].view(want[0].dtype)
        np.testing.assert_array_equal(dense, np.asarray(want[0]).transpose(order).reshape(-1))


@pytest.mark.parametrize(("t", "least"), [("bf16", 256), ("f16", 2048)])
@pytest.mark.parametrize("group", ["0,1,2,3", "2,0,1,3"])  # one call of NCCL; one to hear from all
def test_narrow_floats_are_added_in_f32(t: str, least: int, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = hlo_opt.parse(
        HEAD.format(t=t, fold="add", counts="replica_count=4")
        + f"ENTRY e {{\n  p = {t}[5]{{0}} parameter(0)\n  ROOT r = {t}[5]{{0}} all-reduce(p), replica_groups={{{{{group}}}}}, to_apply=fold\n}}\n"
    )
    dtype = made.entry.root.shape.type.dtype
    inputs = [[np.full(5, least if n == 0 else 1, dtype)] for n in range(4)]
    wanted = hlo_opt.evaluate_devices(made, inputs)
    assert float(wanted[0][0][0]) == least + 4  # 259 and 2051 are half-way
    call = call_of(made.entry.root)
    assert call is not None
    ring = FoldingRing(4)
    monkeypatch.setattr(device_collectives, "COMMUNICATOR", [ring])
    results = ring.run(lambda n: call.run(np, [inputs[n][0].view(raw_dtype(dtype))]))
    for got, want in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(got[0].view(dtype), want[0])


def device_values(made: hlo_opt.Module) -> list[Any]:
    shape = made.entry.parameters[0].shape
    generator = np.random.default_rng(5)
    return [generator.integers(0, 4, shape.dimensions).astype(shape.type.dtype) for _ in range(4)]


WHOLE = """HloModule m, replica_count=2
ENTRY e {
  p = f32[3]{0} parameter(0)
  q = f32[3]{0} negate(p)
  n = u32[] replica-id()
  k = u32[3]{0} broadcast(n), dimensions={}
  t = (f32[3]{0}, f32[3]{0}) all-to-all(p, q), replica_groups={{1,0}}
  t0 = f32[3]{0} get-tuple-element(t), index=0
  t1 = f32[3]{0} get-tuple-element(t), index=1
  ROOT r = (f32[3]{0}, f32[3]{0}, u32[3]{0}) tuple(t0, t1, k)
}
"""
INSIDE = WHOLE.replace(
    "ENTRY", "inside { n = u32[] replica-id() ROOT k = u32[3]{0} broadcast(n), dimensions={} }\nENTRY"
).replace(
    "  n = u32[] replica-id()\n  k = u32[3]{0} broadcast(n), dimensions={}\n",
    "  k = u32[3]{0} fusion(), kind=kLoop, calls=inside\n",
)
"""A fusion that asks which device it is on: no kernel can tell."""
STARTED = """HloModule m, replica_count=2
fold { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }
alone { a = f32[3]{0} parameter(0) ROOT c = f32[3]{0} all-reduce(a), replica_groups={{0,1}}, to_apply=fold }
ENTRY e {
  p = f32[3]{0} parameter(0)
  s_0 = f32[3]{0} all-reduce-start(p), to_apply=fold
  d_0 = f32[3]{0} all-reduce-done(s_0)
  s_1 = (f32[3]{0}, f32[6]{0}) all-gather-start(p), dimensions={0}
  d_1 = f32[6]{0} all-gather-done(s_1)
  s_2 = (f32[3]{0}, f32[3]{0}, u32[], u32[]) collective-permute-start(p), source_target_pairs={{0,1}}
  d_2 = f32[3]{0} collective-permute-done(s_2)
  s_3 = ((f32[3]{0}), f32[3]{0}, s32[]) async-start(p), calls=alone
  u_3 = ((f32[3]{0}), f32[3]{0}, s32[]) async-update(s_3), calls=alone
  d_3 = f32[3]{0} async-done(u_3), calls=alone
  s_4 = (f32[3]{0}, f32[3]{0}, u32[]) copy-start(p)
  d_4 = f32[3]{0} copy-done(s_4)
  kept = f32[3]{0} get-tuple-element(s_1), index=0
  context = u32[] get-tuple-element(s_2), index=2
  ROOT r = (f32[3]{0}, f32[6]{0}, f32[3]{0}, f32[3]{0}, f32[3]{0}, f32[3]{0}, u32[]) tuple(d_0, d_1, d_2, d_3, d_4, kept, context)
}
"""


@pytest.mark.parametrize("text", [WHOLE, INSIDE, STARTED], ids=["whole", "inside", "started"])
def test_two_drivers_give_what_two_devices_give(text: str, tmp_path: Path, fake: Any) -> None:
    made = hlo_opt.parse(text)
    inputs = [[np.arange(3, dtype=np.float32) + 10 * n] for n in range(2)]
    hlo_opt.emit(made, tmp_path / "out")
    space: dict[str, Any] = {"__name__": "driver", "__file__": str(tmp_path / "out" / "driver.py")}
    exec((tmp_path / "out" / "driver.py").read_text(), space)
    ring = FoldingRing(2)
    results = ring.run(lambda n: space["run"](*inputs[n], communicator=ring))
    for got, want in zip(results, hlo_opt.evaluate_devices(made, inputs), strict=True):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)


class FoldingRing(Ring):
    def all_reduce(self, given: Any, taken: Any, op: str) -> None:
        everyone = np.empty((len(self.sent), given.size), given.dtype)
        self.all_gather(given, everyone, given.size)
        taken[...] = {"max": np.maximum, "sum": np.add}[op].reduce(everyone)


@pytest.mark.parametrize("header", ["m", "m, replica_count=2"])
def test_a_driver_of_one_device_needs_no_other(header: str, tmp_path: Path) -> None:
    made = hlo_opt.parse(STARTED.replace("m, replica_count=2", header))
    hlo_opt.emit(made, tmp_path / "out")
    text = (tmp_path / "out" / "driver.py").read_text()
    assert ("communicator" in text) == ("replica" in header) == ("exchange_call(" in text)


def test_the_driver_asks_for_a_communicator(tmp_path: Path) -> None:
    hlo_opt.emit(module("all-reduce"), tmp_path / "out")
    text = (tmp_path / "out" / "driver.py").read_text()
    assert "def run(*arrays, communicator=None):" in text and "exchange_call(" in text
    for group in ("0,1", "1,0"):
        call = call_of(module("all-reduce", group=group).entry.root)
        assert call is not None
        with pytest.raises(RuntimeError, match=r"init_process_group\(2, rank\)"):
            call.run(np, [np.zeros(24, np.float32)])
