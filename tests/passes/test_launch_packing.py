"""Launch packing: what is ready at the same time, what may wait, what is joined, and what keeps others apart."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from small_modules import H100, module_of

import hlo_opt
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.engine import Engine
from hlo_opt.ir import Instruction, Module
from hlo_opt.passes.launch_packing import LaunchPacking, TurnRanges

ROW, WIDE, TALL = "f32[64]{0}", "f32[64,96]{1,0}", "f32[96,64]{1,0}"
INPUTS = (f"p = {ROW} parameter(0)", f"w = {WIDE} parameter(1)", "z = f32[] constant(0)")
SUMS = "dimensions={1}, to_apply=sum"


def packed(module: Module, options: str = "") -> Module:
    return hlo_opt.fuse(module, passes=f"launch-packing{options},dce")[0]


def kernels(module: Module) -> list[Instruction]:
    return [
        i for i in module.entry.instructions if i.opcode not in ("parameter", "constant", "tuple", "get-tuple-element")
    ]


def test_kernels_of_any_form_are_one_launch() -> None:
    module = module_of(
        *INPUTS,
        f"a = {ROW} cosine(p)",
        f"b = {ROW} reduce(w, z), {SUMS}",
        f"c = {TALL} transpose(w), dimensions={{1,0}}",
        f"r = ({ROW}, {ROW}, {TALL}) tuple(a, b, c)",
    )
    made = packed(module)
    assert len(kernels(made)) == 1
    inputs = [np.linspace(0, 1, 64, dtype=np.float32), np.arange(64 * 96, dtype=np.float32).reshape(64, 96)]
    for old, new in zip(hlo_opt.evaluate(module, inputs), hlo_opt.evaluate(made, inputs), strict=True):
        np.testing.assert_array_equal(old, new)


UPDATES = (
    *INPUTS,
    f"q = {ROW} parameter(2)",
    "u = f32[8]{0} parameter(3)",
    "i = s32[] parameter(4)",
    f"d = {ROW} dynamic-update-slice(p, u, i)",
    f"e = {ROW} dynamic-update-slice(q, u, i)",
)


def test_updates_of_two_buffers_are_one_launch() -> None:
    module = module_of(*UPDATES, f"r = ({ROW}, {ROW}) tuple(d, e)")
    made = packed(module)
    (kernel,) = kernels(made)
    assert [str(i.opcode) for i in kernel.called_by("calls").root.operands] == ["dynamic-update-slice"] * 2


@pytest.mark.parametrize("reader", ["add(q, h)", "add(v, h)"])
def test_an_update_that_waits_for_a_reader_of_its_buffer_is_left(reader: str) -> None:
    """Else the buffer is copied first, whatever its size."""
    module = module_of(
        *UPDATES,
        f"v = {ROW} bitcast(q)",
        f"h = {ROW} cosine(d)",
        f"late = {ROW} {reader}",
        f"r = ({ROW}, {ROW}, {ROW}) tuple(d, e, late)",
    )
    (update,) = (i for i in packed(module).entry.instructions if i.name == "e")
    assert update.opcode == "dynamic-update-slice"


def test_what_needs_another_has_a_later_turn_and_is_left() -> None:
    module = module_of(
        *INPUTS, f"a = {ROW} cosine(p)", f"b = {ROW} reverse(a), dimensions={{0}}", f"r = ({ROW}, {ROW}) tuple(a, b)"
    )
    assert len(kernels(packed(module))) == 2


def test_a_kernel_waits_until_its_last_turn() -> None:
    lines = (
        *INPUTS,
        f"early = {ROW} reverse(p), dimensions={{0}}",
        f"first = {ROW} custom-call(p), custom_call_target=\"library\"",
        f"second = {ROW} cosine(first)",
    )  # fmt: skip
    free = module_of(*lines, f"r = ({ROW}, {ROW}) tuple(early, second)")
    made = kernels(packed(free))
    assert [i.opcode for i in made] == ["custom-call", "fusion"]
    needed = module_of(*lines, f"end = {ROW} custom-call(early), "
                               f"custom_call_target=\"library\"", f"r = ({ROW}, {ROW}) tuple(end, second)")  # fmt: skip
    turns = TurnRanges(needed.entry)
    of = {i.name: (turns.first[i], turns.last[i]) for i in needed.entry.instructions}
    assert (of["early"], of["second"], of["end"]) == ((0, 0), (1, 1), (1, 1))
    assert len(kernels(packed(needed))) == 4


def test_turns_of_elements_and_of_what_waits() -> None:
    module = module_of(
        *INPUTS,
        f"a = ({ROW}, {ROW}) custom-call(p), custom_call_target=\"library\"",
        f"x = {ROW} get-tuple-element(a), index=0",
        f"b = {ROW} cosine(x)",
        f"c = {ROW} sine(p), control-predecessors={{b}}",
        f"d = {ROW} negate(p)",
        f"r = ({ROW}, {ROW}) tuple(c, d)",
    )  # fmt: skip
    turns = TurnRanges(module.entry)
    of = {i.name: (turns.first[i], turns.last[i]) for i in module.entry.instructions}
    assert of["x"] == (1, 1)
    assert (of["a"], of["b"], of["c"], of["d"]) == ((0, 0), (1, 1), (2, 2), (0, 2))


@pytest.mark.parametrize("options", ["{max-us=1.0}", "{worth=0.1}"])
def test_options(options: str) -> None:
    module = module_of(*INPUTS, f"a = {ROW} cosine(p)", f"b = {ROW} reduce(w, z), "
                                                        f"{SUMS}", f"r = ({ROW}, {ROW}) tuple(a, b)")  # fmt: skip
    assert len(kernels(packed(module, options))) == 2
    assert len(kernels(packed(module))) == 1


def test_what_keeps_two_apart_is_told() -> None:
    module = module_of(*INPUTS, f"a = {ROW} cosine(p)", f"b = {ROW} reduce(w, z), "
                                                        f"{SUMS}", f"r = ({ROW}, {ROW}) tuple(a, b)")  # fmt: skip
    engine = Engine(module, PassContext(FuseOptions(H100)))
    (refusal,) = LaunchPacking(worth=0.1).sibling_refusals(engine, module.entry)
    assert (refusal.first.name, refusal.second.name) == ("a", "b")
    assert [r.code for r in refusal.reasons] == ["FUS434"]


def test_too_many_arguments_for_one_launch() -> None:
    names = [f"p{n}" for n in range(2200)]
    lines = [f"{n} = f32[8]{{0}} parameter({k})" for k, n in enumerate(names)]
    for made, some in (("a", names[:1100]), ("b", names[1100:])):
        lines.append(f"{made} = f32[{8 * len(some)}]{{0}} concatenate({', '.join(some)}), dimensions={{0}}")
    module = module_of(*lines, "r = (f32[8800]{0}, f32[8800]{0}) tuple(a, b)")
    assert len(kernels(packed(module))) == 1
    on_a100 = hlo_opt.fuse(module, passes="launch-packing", target="a100_sxm_80")[0]
    assert len(kernels(on_a100)) == 2


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["cosine", "negate", "sine"]), st.integers(0, 9)), min_size=2, max_size=12))
def test_no_kernel_needs_one_of_its_own_launch(operations: list[tuple[str, int]]) -> None:
    """Whatever needs what: the module is proved to be the same, which a cycle could not be."""
    lines, values = [f"p = {ROW} parameter(0)"], ["p"]
    for number, (opcode, place) in enumerate(operations):
        lines.append(f"v{number} = {ROW} {opcode}({values[place % len(values)]})")
        values.append(f"v{number}")
    kinds = ", ".join([ROW] * len(operations))
    module = module_of(*lines, f"r = ({kinds}) tuple({', '.join(values[1:])})")
    made = packed(module)
    turns = TurnRanges(module.entry)
    assert len(kernels(made)) == len({turns.first[i] for i in kernels(module)})
