"""One operation on given inputs: what is compared, and the module that holds many of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hlo_opt.ir import ELEMENT_TYPES

Array = np.ndarray[Any, Any]

NAMES = {t.dtype: t.name for t in ELEMENT_TYPES.values() if t.numpy_name}
"""The element type of each NumPy type."""


@dataclass(frozen=True)
class Case:
    """Instructions that exercise one opcode at one element type.

    body          their lines; `%p0`, `%p1`, .. are the inputs, `%r` is the result
    results       the result's shape, or those of its elements where it is a tuple
    computations  the text of each computation that the lines call, by name
    """

    opcode: str
    type: str
    label: str
    inputs: tuple[Array, ...]
    body: tuple[str, ...]
    results: tuple[str, ...]
    is_tuple: bool = False
    computations: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.opcode} of {self.type}" + (f" ({self.label})" if self.label else "")


Make = Callable[[str, str], Iterable[Case]]
MAKERS: dict[str, Make] = {}


def makes(*opcodes: str) -> Callable[[Make], Make]:
    """Register a function that gives the cases of (opcode, element type)."""

    def register(function: Make) -> Make:
        for opcode in opcodes:
            assert opcode not in MAKERS, opcode
            MAKERS[opcode] = function
        return function

    return register


def shape_of(array: Array) -> str:
    """The HLO shape of an array."""
    return f"{NAMES[array.dtype]}[{','.join(map(str, array.shape))}]"


def operation(
    opcode: str,
    element_type: str,
    inputs: Sequence[Array],
    result: str | Sequence[str],
    attributes: str = "",
    *,
    label: str = "",
    computations: Mapping[str, str] | None = None,
    operands: str | None = None,
) -> Case:
    """A case of one instruction whose operands are the inputs."""
    names = ", ".join(f"%p{k}" for k in range(len(inputs))) if operands is None else operands
    is_tuple = not isinstance(result, str)
    results = (result,) if isinstance(result, str) else tuple(result)
    declared = f"({', '.join(results)})" if is_tuple else results[0]
    line = f"%r = {declared} {opcode}({names}){', ' if attributes else ''}{attributes}"
    return Case(
        opcode, element_type, label or attributes, tuple(inputs), (line,), results, is_tuple, computations or {}
    )  # fmt: skip


_NAME = re.compile(r"%(?=\w)")


def module_of(cases: Sequence[Case]) -> tuple[str, list[Array]]:
    """The text of a module that gives the results of all cases as one flat tuple, and its inputs."""
    lines: list[str] = []
    computations: dict[str, str] = {}
    inputs: list[Array] = []
    roots: list[tuple[str, str]] = []
    for number, case in enumerate(cases):
        prefix = f"%c{number}."
        for k, array in enumerate(case.inputs):
            lines.append(f"{prefix}p{k} = {shape_of(array)} parameter({len(inputs)})")
            inputs.append(array)
        lines += [_NAME.sub(prefix, line) for line in case.body]
        for name, text in case.computations.items():
            assert computations.setdefault(name, text) == text, name
        for k, shape in enumerate(case.results):
            name = f"{prefix}r"
            if case.is_tuple:
                lines.append(f"{name}.{k} = {shape} get-tuple-element({name}), index={k}")
                name = f"{name}.{k}"
            roots.append((name, shape))
    shapes, names = ", ".join(shape for _, shape in roots), ", ".join(name for name, _ in roots)
    lines.append(f"ROOT %all = ({shapes}) tuple({names})")
    entry = "ENTRY %entry {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"
    return "HloModule m\n\n" + "".join(f"{text}\n\n" for text in computations.values()) + entry, inputs
