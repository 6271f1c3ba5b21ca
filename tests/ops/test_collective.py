"""Collectives on the only device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt import EvaluationError, evaluate, evaluate_devices, parse, verify

VALUE = np.arange(4, dtype=np.float32)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f32[4] all-reduce(f32[4]), replica_groups={}, to_apply=add", [0, 1, 2, 3]),
        ("f32[4] all-gather(f32[4]), dimensions={0}", [0, 1, 2, 3]),
        ("f32[8] all-gather(f32[4]), dimensions={0}", [0, 1, 2, 3, 0, 0, 0, 0]),
        ("f32[2] reduce-scatter(f32[4]), dimensions={0}, to_apply=add", [0, 1]),
        ("f32[4] all-to-all(f32[4]), dimensions={0}", [0, 1, 2, 3]),
        ("f32[4] collective-broadcast(f32[4]), replica_groups={{0}}", [0, 1, 2, 3]),
        ("f32[4] collective-permute(f32[4]), source_target_pairs={{0,0}}", [0, 1, 2, 3]),
        ("f32[4] collective-permute(f32[4]), source_target_pairs={{0,1},{1,2}}", [0, 0, 0, 0]),
    ],
)
def test_the_only_device(family: Any, text: str, expected: list[float]) -> None:
    family.infers(text)
    assert family.run(text, VALUE)[0].tolist() == expected


@pytest.mark.parametrize(
    "body",
    [
        "s = f32[4] all-reduce-start(p), to_apply=add\n  ROOT d = f32[4] all-reduce-done(s)",
        "s = (f32[4], f32[4]) all-reduce-start(p), to_apply=add\n  ROOT d = f32[4] all-reduce-done(s)",
        "s = (f32[4], f32[4]) all-gather-start(p), dimensions={0}\n  ROOT d = f32[4] all-gather-done(s)",
        "s = (f32[4], f32[4], u32[], u32[]) collective-permute-start(p), source_target_pairs={{0,0}}\n"
        "  ROOT d = f32[4] collective-permute-done(s)",
        "s = ((f32[4]), f32[4]) reduce-scatter-start(p), dimensions={0}, to_apply=add\n"
        "  u = ((f32[4]), f32[4]) reduce-scatter-update(s)\n  ROOT d = f32[4] reduce-scatter-done(u)",
        "s = (f32[4], f32[4], u32[]) copy-start(p)\n  ROOT d = f32[4] copy-done(s)",
    ],
)
def test_starts_and_dones_pair_up(body: str) -> None:
    add = "add {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT z = f32[] add(x, y)\n}\n"
    module = parse(f"HloModule m\n\n{add}\nENTRY e {{\n  p = f32[4] parameter(0)\n  {body}\n}}\n")
    assert evaluate(module, [VALUE])[0].tolist() == [0, 1, 2, 3]


def test_a_permute_of_slices_into_a_buffer_is_refused() -> None:
    """Its result has the shape of the buffer, not of what is sent."""
    module = parse(
        "HloModule m\n\nENTRY e {\n  p = f32[4] parameter(0)\n  o = f32[8] parameter(1)\n  z = s32[] constant(0)\n  t "
        "= (s32[]) tuple(z)\n"
        "  s = (f32[4], f32[8], u32[], u32[]) collective-permute-start(p, o, t, t), source_target_pairs={{0,0}}, "
        "slice_sizes={{2}}\n"
        "  ROOT d = f32[8] collective-permute-done(s)\n}\n"
    )
    verify(module)
    with pytest.raises(EvaluationError, match="into existing buffers"):
        evaluate(module, [VALUE, np.zeros(8, np.float32)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f32[6] all-gather(f32[4]), dimensions={0}", "not a multiple"),
        ("f32[3] reduce-scatter(f32[4]), dimensions={0}, to_apply=add", "not a multiple"),
        ("f32[4,2] all-gather(f32[4,1]), dimensions={0}", "only dimension 0 may change"),
    ],
)
def test_refused(family: Any, text: str, message: str) -> None:
    family.refuses(text, message)


@pytest.mark.parametrize(("opcode", "shape"), [("reduce-scatter", "f32[2,4]"), ("all-reduce", "f32[8,4]")])
def test_devices_that_are_not_there_add_nothing(opcode: str, shape: str) -> None:
    """A group may name four of them; what is added up may be a constant or come from outside."""
    along = "dimensions={0}, " if opcode == "reduce-scatter" else ""
    add = "add {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT z = f32[] add(x, y)\n}\n"
    for made, inputs in (("constant(1.5)", []), ("parameter(0)", [np.float32(1.5)])):
        text = f"HloModule m\n{add}ENTRY e {{\n  k = f32[] {made}\n  v = f32[8,4] broadcast(k), dimensions={{}}\n"
        text += f"  ROOT r = {shape} {opcode}(v), {along}replica_groups={{{{0,1,2,3}}}}, to_apply=add\n}}\n"
        assert set(evaluate(parse(text), inputs)[0].reshape(-1).tolist()) == {1.5}


@pytest.mark.parametrize(("element_type", "least"), [("bf16", 256), ("f16", 2048), ("f8e5m2", 8)])
@pytest.mark.parametrize(("opcode", "along"), [("all-reduce", ""), ("reduce-scatter", ", dimensions={0}")])
def test_devices_add_narrow_floats_in_f32(element_type: str, least: int, opcode: str, along: str) -> None:
    t = element_type
    add = f"add {{\n  x = {t}[] parameter(0)\n  y = {t}[] parameter(1)\n  ROOT z = {t}[] add(x, y)\n}}\n"
    shape = "[8]" if opcode == "all-reduce" else "[1]"
    text = f"HloModule m, replica_count=8\n{add}ENTRY e {{\n  p = {element_type}[8] parameter(0)\n"
    text += f"  ROOT r = {element_type}{shape} {opcode}(p), to_apply=add{along}\n}}\n"
    made = parse(text)
    dtype = made.entry.root.shape.type.dtype
    given = [[np.full(8, least if device == 0 else 1, dtype)] for device in range(8)]
    for outputs in evaluate_devices(made, given):
        assert set(outputs[0].tolist()) == {float(np.float32(least + 7).astype(dtype))} != {float(least)}
