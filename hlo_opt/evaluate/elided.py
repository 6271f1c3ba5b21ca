"""Values for constants that a dump elides: `constant({...})`.

XLA's printer elides large constants. Such a module can be read, fused, explained and emitted, but to run it the user
must say what these constants are: `zeros`, `random`, or arrays by constant name. A constant keeps its original name
through all passes, so a module and its fused form take the same values, and so do two texts that share the name.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hlo_opt.diag import EvaluationError, UsageError
from hlo_opt.evaluate.inputs import draw, raw_dtype
from hlo_opt.ir import Instruction, Literal, Module, Shape, edit
from hlo_opt.ir.values import Array

Elided = str | os.PathLike[str] | Mapping[str, Any] | None
"""`zeros`, `random`, the path of an npz file, or arrays by constant name; None: not specified."""

HINT = "pass --elided zeros, --elided random or --elided FILE.npz (in Python elided=) to supply them"


def elided_constants(module: Module) -> list[Instruction]:
    """The constants whose value, or a part of it, is elided and not supplied yet, in text order."""
    constants = (i for c in module.computations for i in c.instructions if i.literal is not None)
    return [i for i in constants if i.literal is not None and any(_missing(i.literal))]


def _missing(literal: Literal) -> Iterator[Literal]:
    """The parts of a literal without a value."""
    if literal.is_elided:
        if not literal.is_known:
            yield literal
    elif literal.shape.is_tuple and isinstance(literal.value, tuple):
        for element in literal.value:
            yield from _missing(element)


def with_values(module: Module, elided: Elided) -> Module:
    """The module itself where every constant has a value, else a copy with the elided values supplied.

    Raises EvaluationError (HLO407) at the first constant whose value is not specified, or whose array is missing or
    does not fit; UsageError for a file that cannot be read.
    """
    return all_with_values([module], elided)[0]


def all_with_values(modules: Sequence[Module], elided: Elided) -> list[Module]:
    """As `with_values`, for several modules that are to be compared."""
    elided_by_module = [elided_constants(module) for module in modules]
    if not any(elided_by_module):
        return list(modules)
    source = _File(elided) if isinstance(elided, str | os.PathLike) and elided not in ("zeros", "random") else elided
    return [
        _filled(module, missing, source) if missing else module
        for module, missing in zip(modules, elided_by_module, strict=True)
    ]


def missing(module: Module, constants: Sequence[Instruction]) -> EvaluationError:
    """The error for running a module without values for these constants."""
    first, others = constants[0], len(constants) - 1
    more = f", nor {f'those of {others} others' if others > 1 else 'that of one other'}" if others else ""
    return EvaluationError(
        f"the text elides the value of constant {first.name}, {first.shape.without_layout()}{more}",
        code="HLO407",
        span=module.span(first),
        hint=HINT,
    )


class _File(Mapping[str, Any]):
    """The arrays of an npz file."""

    def __init__(self, name: str | os.PathLike[str]) -> None:
        self.name = os.fspath(name)
        try:
            with np.load(self.name, allow_pickle=False) as stored:
                if not isinstance(stored, np.lib.npyio.NpzFile):
                    raise ValueError("it holds one array")
                self._arrays = {key: stored[key] for key in stored.files}
        except OSError as error:
            raise UsageError(error.strerror or str(error), filename=self.name) from None
        except (ValueError, EOFError, TypeError, KeyError, zipfile.BadZipFile) as error:
            raise UsageError(f"not an npz file of plain arrays: {error}", filename=self.name, hint=HINT) from None

    def __getitem__(self, key: str) -> Array:
        return self._arrays[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


def _filled(module: Module, constants: Sequence[Instruction], source: Elided) -> Module:
    if source is None:
        raise missing(module, constants)
    values: dict[Literal, Literal] = {}
    for i in constants:
        assert i.literal is not None
        if i.literal not in values:
            values[i.literal] = _with_value(module, i, i.literal, i.literal.origin or i.name, source)
    copy = edit.clone_module(module)
    for i in elided_constants(copy):
        assert i.literal is not None
        i.literal = values[i.literal]
    return copy


def _with_value(module: Module, constant: Instruction, literal: Literal, key: str, source: Elided) -> Literal:
    shape = literal.shape
    if shape.elements is not None:
        parts = literal.value if not literal.is_elided else [literal.element(k) for k in range(len(shape.elements))]
        elements = []
        for number, part in enumerate(parts):
            assert isinstance(part, Literal)
            elements.append(
                _with_value(module, constant, part, f"{key}.{number}", source) if any(_missing(part)) else part
            )
        return Literal(shape, value=tuple(elements), text=literal.text)
    return Literal(
        shape, value=_value(module, constant, key, shape, source), text=literal.text, is_elided=True, origin=key
    )


def _value(module: Module, constant: Instruction, key: str, shape: Shape, source: Elided) -> Array:
    """The array for a key, checked against the shape."""
    if not isinstance(source, Mapping):
        if source == "zeros":
            return np.zeros(shape.dimensions, shape.type.dtype)
        name = f"{key} {shape.without_layout()}"
        return draw(np.random.default_rng(zlib.crc32(name.encode())), shape)
    where = f"{source.name} has" if isinstance(source, _File) else "there is"
    if key not in source:
        raise EvaluationError(
            f"{where} no array {key} for constant {constant.name}, {shape.without_layout()}",
            code="HLO407",
            span=module.span(constant),
            hint=f"keys are the constants' names; there are {', '.join(sorted(source)[:8]) or 'none'}",
        )
    array = np.asarray(source[key])
    wanted = shape.type.dtype
    if array.dtype != wanted and array.dtype in (raw_dtype(shape.type), np.dtype(f"V{wanted.itemsize}")):
        array = np.ascontiguousarray(array).view(wanted)
    if array.dtype != wanted or array.shape != shape.dimensions:
        raise EvaluationError(
            f"array {key} is {array.dtype}{list(array.shape)}, and constant {constant.name} {shape.without_layout()}",
            code="HLO407",
            span=module.span(constant),
        )
    return array
