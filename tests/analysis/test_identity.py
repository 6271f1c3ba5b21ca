"""When a module is as it was when it was copied."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import hlo_opt
from hlo_opt.analysis.graph.identity import identical
from hlo_opt.ir import Attribute, Called, Instruction, Literal, Module, Shape, edit

TEXT = """HloModule m, is_scheduled=true

f {
  x = f32[4]{0} parameter(0)
  ROOT n = f32[4]{0} negate(x)
}

g {
  y = f32[4]{0} parameter(0)
  ROOT z = f32[4]{0} abs(y)
}

ENTRY e {
  p = f32[4]{0} parameter(0)
  q = f32[4]{0} parameter(1)
  c = f32[] constant(1)
  b = f32[4]{0} broadcast(c), dimensions={}
  d = f32[4]{0} divide(p, q)
  w = f32[4]{0} add(d, b), control-predecessors={b}
  ROOT r = f32[4]{0} call(w), to_apply=f
}
"""


def read() -> Module:
    return hlo_opt.parse(TEXT)


def named(module: Module, name: str) -> Instruction:
    return next(i for c in module.computations for i in c.instructions if i.name == name)


def other_name(m: Module) -> None:
    named(m, "d").name = "elsewhere"


def test_a_copy_is_the_same_whatever_its_names():
    module = read()
    copy = edit.clone_module(module)
    other_name(copy)
    assert identical(module, copy) and identical(copy, module)


CHANGES: dict[str, Callable[[Module], object]] = {
    "an attribute": lambda m: edit.set_attribute(named(m, "b"), "dimensions", Attribute.of((0,))),
    "an attribute more": lambda m: edit.set_attribute(named(m, "d"), "sharding", Attribute("{replicated}")),
    "a called computation": lambda m: edit.set_attribute(
        named(m, "r"), "to_apply", Called(next(c for c in m.computations if c.name == "g"))
    ),
    "a constant": lambda m: edit.set_literal(named(m, "c"), Literal(named(m, "c").shape, text="1")),
    "a control dependency": lambda m: edit.stop_waiting(m.entry),
    "a computation less": lambda m: edit.remove_computation(next(c for c in m.computations if c.name == "g")),
    "a shape": lambda m: edit.set_shape(named(m, "d"), Shape(named(m, "d").shape.element_type, (4,))),
    "an instruction more": lambda m: edit.create(m.entry, "n", "negate", named(m, "p").shape, [named(m, "p")]),
    "operands": lambda m: edit.set_operands(named(m, "d"), reversed(named(m, "d").operands)),
    "the header": lambda m: edit.set_header(m, "is_scheduled", Attribute("false")),
    "the root": lambda m: edit.set_root(m.entry, named(m, "w")),
    "the root of a called computation": lambda m: edit.set_root(named(m, "n").computation, named(m, "x")),
}


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_else_changes_is_seen(what: str):
    module = read()
    copy = edit.clone_module(module)
    CHANGES[what](copy)
    assert not identical(module, copy)
