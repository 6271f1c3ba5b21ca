"""Cases of tuples, calls, loops, branches, markers and asynchronous pairs: each hands values of the type on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from xla_cases.case import Case, makes, operation
from xla_cases.values import shaped

COUNT = 40


def swap(name: str) -> dict[str, str]:
    """A computation that reverses a vector."""
    text = f"swap.{name} {{\n  x = {name}[{COUNT}] parameter(0)\n  ROOT y = {name}[{COUNT}] reverse(x), dimensions={{0}}\n}}"
    return {f"swap.{name}": text}


def keep(name: str) -> dict[str, str]:
    """A computation that gives its parameter."""
    return {f"keep.{name}": f"keep.{name} {{\n  ROOT x = {name}[{COUNT}] parameter(0)\n}}"}


@makes("parameter")
def parameter(opcode: str, name: str) -> Iterator[Case]:
    x = shaped(name, COUNT)
    yield Case(opcode, name, "", (x,), (f"%r = {name}[{COUNT}] copy(%p0)",), (f"{name}[{COUNT}]",))


LITERALS = {
    "pred": "true, false, true",
    "c64": "(1, -2), (-0.0, 0), (inf, -1)",
    "c128": "(1, -2), (-0.0, 0), (inf, -1)",
}


@makes("constant")
def constant(opcode: str, name: str) -> Iterator[Case]:
    from hlo_opt.ir import ELEMENT_TYPES

    element_type = ELEMENT_TYPES[name]
    values = LITERALS.get(name, "1, 0, 1" if not element_type.is_float else "1, 2, 0.5")
    if element_type.bits >= 8 and element_type.is_float and name not in LITERALS and name != "f8e8m0fnu":
        values = "nan, -0.0, 1.5"
    yield Case(opcode, name, "", (), (f"%r = {name}[3] constant({{{values}}})",), (f"{name}[3]",))


@makes("tuple", "get-tuple-element", "opt-barrier")
def several(opcode: str, name: str) -> Iterator[Case]:
    x, y = shaped(name, COUNT), shaped(name, 3, seed=9)
    shape = f"({name}[{COUNT}], {name}[3])"
    body = (f"%t = {shape} tuple(%p0, %p1)", f"%r = {shape} opt-barrier(%t)")
    if opcode == "tuple":
        body = (f"%r = {shape} tuple(%p0, %p1)",)
    yield Case(opcode, name, "", (x, y), body, (f"{name}[{COUNT}]", f"{name}[3]"), True)


@makes("call", "fusion")
def call(opcode: str, name: str) -> Iterator[Case]:
    attributes = f"to_apply=swap.{name}" if opcode == "call" else f"kind=kLoop, calls=swap.{name}"
    yield operation(opcode, name, [shaped(name, COUNT)], f"{name}[{COUNT}]", attributes, computations=swap(name))


@makes("conditional")
def conditional(opcode: str, name: str) -> Iterator[Case]:
    called = {**swap(name), **keep(name)}
    x, y = shaped(name, COUNT), shaped(name, COUNT, seed=9)
    for value in (False, True):
        attributes = f"true_computation=swap.{name}, false_computation=keep.{name}"
        yield operation(
            opcode, name, [np.array(value), x, y], f"{name}[{COUNT}]", attributes, label=str(value), computations=called
        )  # fmt: skip
    for index in (-1, 0, 1, 2, 99):
        attributes = f"branch_computations={{swap.{name}, keep.{name}, swap.{name}}}"
        yield operation(
            opcode, name, [np.array(index, np.int32), x, y, y], f"{name}[{COUNT}]", attributes, label=str(index),
            computations=called
        )  # fmt: skip


@makes("while")
def loop(opcode: str, name: str) -> Iterator[Case]:
    """Three turns, so that what is reversed comes out reversed."""
    state = f"(s32[], {name}[{COUNT}])"
    condition = f"less.{name} {{\n  s = {state} parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n  n = s32[] constant(3)\n"
    condition += "  ROOT b = pred[] compare(i, n), direction=LT\n}"
    body = f"turn.{name} {{\n  s = {state} parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n"
    body += f"  x = {name}[{COUNT}] get-tuple-element(s), index=1\n  one = s32[] constant(1)\n  j = s32[] add(i, one)\n"
    body += f"  y = {name}[{COUNT}] reverse(x), dimensions={{0}}\n  ROOT t = {state} tuple(j, y)\n}}"
    lines = (
        f"%t = {state} tuple(%p0, %p1)",
        f"%r = {state} while(%t), condition=less.{name}, body=turn.{name}",
    )
    called = {f"less.{name}": condition, f"turn.{name}": body}
    inputs = (np.array(0, np.int32), shaped(name, COUNT))
    yield Case(opcode, name, "", inputs, lines, ("s32[]", f"{name}[{COUNT}]"), True, called)


@makes("after-all", "add-dependency")
def order(opcode: str, name: str) -> Iterator[Case]:
    lines = ("%t = token[] after-all()", f"%r = {name}[{COUNT}] add-dependency(%p0, %t)")
    yield Case(opcode, name, "", (shaped(name, COUNT),), lines, (f"{name}[{COUNT}]",))


@makes("domain")
def domain(opcode: str, name: str) -> Iterator[Case]:
    attributes = 'domain={kind="sharding", entry={maximal device=0}, exit={maximal device=0}}'
    yield operation(opcode, name, [shaped(name, COUNT)], f"{name}[{COUNT}]", attributes)


@makes("copy-start", "copy-done")
def copies(opcode: str, name: str) -> Iterator[Case]:
    shape = f"{name}[{COUNT}]"
    lines = (f"%s = ({shape}, {shape}, u32[]) copy-start(%p0)", f"%r = {shape} copy-done(%s)")
    yield Case(opcode, name, "", (shaped(name, COUNT),), lines, (shape,))


@makes("async-start", "async-update", "async-done")
def asynchronous(opcode: str, name: str) -> Iterator[Case]:
    shape = f"{name}[{COUNT}]"
    whole = f"(({shape}), {shape}, u32[])"
    update = (f"%u = {whole} async-update(%s)",) if opcode == "async-update" else ()
    last = "%u" if update else "%s"
    lines = (f"%s = {whole} async-start(%p0), calls=swap.{name}", *update, f"%r = {shape} async-done({last})")
    yield Case(opcode, name, "", (shaped(name, COUNT),), lines, (shape,), False, swap(name))


@makes("partition-id", "replica-id")
def number(opcode: str, name: str) -> Iterator[Case]:
    yield operation(opcode, name, [], "u32[]")


@makes("custom-call")
def custom_call(opcode: str, name: str) -> Iterator[Case]:
    yield operation(
        opcode, name, [shaped(name, COUNT)], f"{name}[{COUNT}]", 'custom_call_target="Sharding", sharding={replicated}',
        label="Sharding"
    )  # fmt: skip
