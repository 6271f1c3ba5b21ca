"""Values at the edge of a module: entry parameters as a flat list of arrays, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from hlo_opt.diag import EvaluationError
from hlo_opt.evaluate.drawing import PLAIN, Style, draw
from hlo_opt.evaluate.wanted import wanted
from hlo_opt.ir import ElementType, Module, Shape
from hlo_opt.ir.values import Array, DType
from hlo_opt.ops.dynamic import at_bound
from hlo_opt.ops.values import Value


def input_shapes(module: Module) -> list[Shape]:
    """The shapes of the entry's parameters, tuples flattened in order, tokens left out."""
    return [leaf for p in module.entry.parameters for leaf in p.shape.leaves() if leaf.is_array]


def output_shapes(module: Module) -> list[Shape]:
    """The shapes of the entry's results, tuples flattened in order, tokens left out."""
    return [leaf for leaf in module.entry.root.shape.leaves() if leaf.is_array]


def flatten(value: Value) -> list[Array]:
    """The arrays of a value depth first; empty tuples and tokens give none."""
    found: list[Array] = []
    todo = [value]
    while todo:
        top = todo.pop()
        if isinstance(top, tuple):
            todo.extend(reversed(top))
        else:
            found.append(np.asarray(top))
    return found


def unflatten(shapes: Iterable[Shape], arrays: Iterable[Array]) -> list[Value]:
    """One value per shape from a flat list of arrays. Raises StopIteration when there are too few: check the count first."""
    rest = iter(arrays)
    return [_build(shape, rest) for shape in shapes]


def _build(shape: Shape, rest: Iterator[Array]) -> Value:
    """Nested as the shape is; the parser bounds how deep that can be."""
    if shape.elements is not None:
        return tuple(_build(element, rest) for element in shape.elements)
    if not shape.is_array:
        return ()
    return at_bound(shape, next(rest)) if any(shape.dynamic) else next(rest)


def checked(module: Module, inputs: Sequence[Any]) -> list[Array]:
    """The inputs as arrays of the parameters' types. Raises EvaluationError where number, type or dimensions do not fit.

    Python numbers and lists are converted; an array must have the type already, or be the raw bits of a type that NumPy lacks. Arrays of CuPy are copied.
    """
    shapes = input_shapes(module)
    if len(inputs) != len(shapes):
        raise EvaluationError(
            f"the module takes {len(shapes)} inputs, {len(inputs)} are given",
            code="HLO401",
            hint="tuple parameters are flattened in order: one input per array",
        )
    return [_checked(number, shape, given) for number, (shape, given) in enumerate(zip(shapes, inputs, strict=True))]


def _checked(number: int, shape: Shape, given: Any) -> Array:
    dtype = shape.type.dtype
    if _is_of_cupy(given):
        given = as_numpy(given)
    if isinstance(given, np.ndarray | np.generic):
        array = np.asarray(given)
        if array.dtype != dtype and is_raw(shape.type) and array.dtype == raw_dtype(shape.type):
            array = array.view(dtype)
    else:
        try:
            array = np.asarray(given)
            array = array if hasattr(given, "__array__") else array.astype(dtype)
        except (TypeError, ValueError) as fault:
            raise EvaluationError(f"in{number} is no array of {shape.type}: {fault}", code="HLO401") from fault
    if array.dtype != dtype or not _fits(array.shape, shape):
        expected = f"{shape.type}[{','.join(map(str, shape.dimensions))}]"
        raise EvaluationError(
            f"in{number} is {array.dtype}[{','.join(map(str, array.shape))}], expected {expected} ({dtype})",
            code="HLO401",
        )
    return array


def as_numpy(given: Any) -> Array:
    """An array of any library on the host."""
    return np.asarray(given.get() if _is_of_cupy(given) else given)


def _is_of_cupy(given: Any) -> bool:
    """Whether it is an array of CuPy, which makes no NumPy array of its own accord."""
    return not isinstance(given, np.ndarray) and hasattr(given, "__cuda_array_interface__") and hasattr(given, "get")


def _fits(sizes: tuple[int, ...], shape: Shape) -> bool:
    """The declared sizes; in a dynamic dimension any size within the bound."""
    if sizes == shape.dimensions:
        return True
    open_ = shape.dynamic or (False,) * shape.rank
    return len(sizes) == shape.rank and all(
        a == b or b < 0 or (o and a < b) for a, b, o in zip(sizes, shape.dimensions, open_, strict=True)
    )


def is_raw(element_type: ElementType) -> bool:
    """Whether files hold the type as raw bits because NumPy itself lacks it."""
    return element_type.dtype.kind == "V" or element_type.dtype.isbuiltin != 1


def raw_dtype(element_type: ElementType) -> DType:
    """The unsigned type of a value's raw bits."""
    return np.dtype(f"uint{element_type.dtype.itemsize * 8}")


def module_inputs(module: Module, seed: int = 0, *, device: int = 0, style: Style = PLAIN) -> list[Array]:
    """Inputs for the entry, the same for the same seed (and simulated device, and style): what everything that reads them likes to be given, see
    `hlo_opt.ops.wishes`; else normal floats, small integers, coins. Raises EvaluationError (HLO401) for a parameter whose size is open.
    """
    for parameter in module.entry.parameters:
        if any(size < 0 for leaf in parameter.shape.leaves() for size in leaf.dimensions):
            raise EvaluationError(
                f"nothing can be drawn for parameter {parameter.name}: {parameter.shape.without_layout()} is of any size",
                code="HLO401",
                span=module.span(parameter),
                hint="give the inputs",
            )
    parts = [seed, device, style.number] if style.number else [seed, device] if device else seed
    generator = np.random.default_rng(parts)
    return [
        draw(generator, shape, wish, style) for shape, wish in zip(input_shapes(module), wanted(module), strict=True)
    ]
