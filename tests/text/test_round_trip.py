"""Print then parse gives an equal module, for random well-typed modules over the whole op table."""

from __future__ import annotations

import pytest
import random_modules
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opcode_samples import specs_in_xla

import hlo_opt
from hlo_opt.ir import Called, Computation, Instruction, Module, Raw
from hlo_opt.text import STYLES, print_module

OPCODES = [spec.opcode for spec in specs_in_xla()]


def described(instruction: Instruction) -> tuple[object, ...]:
    """All that is in an instruction, by value."""
    attributes = {
        name: tuple(c.name for c in value.computations)
        if isinstance(value, Called)
        else (value.text, None if isinstance(value.value, Raw) else value.value)
        for name, value in instruction.attributes.items()
    }
    return (
        instruction.name,
        instruction.opcode,
        instruction.shape,
        [o.name for o in instruction.operands],
        attributes,
        None if instruction.literal is None else instruction.literal.key(),
        instruction.parameter_number,
        [p.name for p in instruction.control_predecessors],
    )


def contents(module: Module) -> list[object]:
    """All that is in a module, by value."""

    def one(computation: Computation) -> tuple[object, ...]:
        rows = [described(i) for i in computation.instructions]
        return computation.name, computation.root.name, {n: a.text for n, a in computation.attributes.items()}, rows

    header = {name: value.text for name, value in module.attributes.items()}
    return [module.name, header, module.tables, module.entry.name, *(one(c) for c in module.computations)]


def test_there_is_a_recipe_for_every_opcode():
    assert sorted(random_modules.RECIPES) == OPCODES


@pytest.mark.parametrize("opcode", OPCODES)
@given(data=st.data())
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
def test_each_opcode_survives_print_and_parse(opcode, data):
    module = random_modules.build(data.draw, [opcode])
    hlo_opt.verify(module)
    again = hlo_opt.parse(str(module))
    assert contents(again) == contents(module)
    hlo_opt.verify(again)


@given(random_modules.modules())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_modules_survive_print_and_parse(module):
    hlo_opt.verify(module)
    text = str(module)
    again = hlo_opt.parse(text)
    assert contents(again) == contents(module)
    assert str(again) == text
    for style in STYLES:
        hlo_opt.verify(hlo_opt.parse(print_module(again, style)))


@given(random_modules.modules())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_xla_reads_the_same_module(module):
    hlo = pytest.importorskip("jaxlib._hlo")
    text = str(module)
    theirs = hlo.hlo_module_from_text(text)
    found = {c.name: [i.name for i in c.instructions()] for c in theirs.computations()}
    assert set(found) == {c.name for c in module.computations}
    again = {c.name: c for c in hlo_opt.parse(theirs.to_string()).computations}
    for computation in module.computations:
        if computation.name not in again:  # XLA prints `negate-start` for an async-start of it
            assert len(computation.instructions) == 2
            continue
        ours = {i.name: (_short(i.opcode), i.shape.without_layout()) for i in computation.instructions}
        printed = again[computation.name].instructions
        assert {i.name: (_short(i.opcode), i.shape.without_layout()) for i in printed} == ours


def _short(opcode: str) -> str:
    """The link of an asynchronous chain without its operation."""
    return opcode.removeprefix("async-").removeprefix("negate-")
