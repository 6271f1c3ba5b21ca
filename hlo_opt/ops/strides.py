"""The `view` faces: which operations NumPy does without copying, and the strides of the views, in elements.

A face gets the strides of the first operand; it returns whether the result is a view, and its strides. `None` stands
for unknown strides; reshaping such a view counts as a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.ir import Instruction, SliceDimension

Strides = tuple[int, ...] | None


def row_major(sizes: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major array."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def broadcast(instruction: Instruction, strides: Strides) -> tuple[bool, Strides]:
    if strides is None:
        return True, None
    result_strides = [0] * instruction.shape.rank
    source = instruction.operands[0].shape.dimensions
    for number, to in enumerate(instruction.ints("dimensions")):
        if source[number] == instruction.shape.dimensions[to]:
            result_strides[to] = strides[number]
    return True, tuple(result_strides)


def transpose(instruction: Instruction, strides: Strides) -> tuple[bool, Strides]:
    order = instruction.ints("dimensions")
    return True, None if strides is None else tuple(strides[d] for d in order)


def slice_(instruction: Instruction, strides: Strides) -> tuple[bool, Strides]:
    value = instruction.value("slice", ())
    steps = [part.stride for part in value if isinstance(part, SliceDimension)] if isinstance(value, tuple) else []
    return True, None if strides is None else tuple(s * n for s, n in zip(strides, steps, strict=True))


def reverse(instruction: Instruction, strides: Strides) -> tuple[bool, Strides]:
    along = instruction.ints("dimensions")
    return True, None if strides is None else tuple(-s if d in along else s for d, s in enumerate(strides))


def dynamic_slice(instruction: Instruction, strides: Strides) -> tuple[bool, Strides]:
    return True, strides


def reshape(instruction: Instruction, strides: Strides) -> tuple[bool, Strides]:
    shape, source = instruction.shape, instruction.operands[0].shape
    strided = reshaped(source.dimensions, strides, shape.dimensions)
    return (False, row_major(shape.dimensions)) if strided is None else (True, strided)


def bitcast(instruction: Instruction, strides: Strides) -> tuple[bool, Strides]:
    """A flat array in memory order, reshaped."""
    source, shape = instruction.operands[0].shape, instruction.shape
    order = source.minor_to_major[::-1]
    sizes = tuple(source.dimensions[d] for d in order)
    flat = reshaped(sizes, None if strides is None else tuple(strides[d] for d in order), (source.element_count,))
    is_view = flat is not None and (flat == (1,) or source.type == shape.type)
    if source.type != shape.type or flat is None:
        flat = (1,)
    to = shape.minor_to_major[::-1]
    strided = reshaped((shape.element_count,), flat, tuple(shape.dimensions[d] for d in to))
    if strided is None:
        return False, None
    result = [0] * shape.rank
    for place, d in enumerate(to):
        result[d] = strided[place]
    return is_view, tuple(result)


def reshaped(sizes: Sequence[int], strides: Strides, wanted: Sequence[int]) -> Strides:
    """The strides after a reshape without copy; None where one is needed (numpy/_core/src/multiarray/shape.c,
    _attempt_nocopy_reshape)."""
    if strides is None:
        return None
    old = [(n, s) for n, s in zip(sizes, strides, strict=True) if n != 1]
    if any(n == 0 for n, _ in old):
        return row_major(wanted)
    new = [n for n in wanted if n != 1]
    result: list[int] = []
    i = j = 0
    while i < len(old) and j < len(new):
        i_end, j_end = i + 1, j + 1
        left, right = old[i][0], new[j]
        while left != right:
            if left < right:
                left *= old[i_end][0]
                i_end += 1
            else:
                right *= new[j_end]
                j_end += 1
        if any(old[k][1] != old[k + 1][0] * old[k + 1][1] for k in range(i, i_end - 1)):
            return None
        step = old[i_end - 1][1]
        part = []
        for n in reversed(new[j:j_end]):
            part.append(step)
            step *= n
        result += reversed(part)
        i, j = i_end, j_end
    rest = iter(result)
    return tuple(0 if n == 1 else next(rest) for n in wanted)
