"""Operations that CuPy computes one after the other: the comparators of sorts, cuDNN's convolutions, which XLA:GPU writes as custom calls, and functions of complex numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hlo_opt.ir import Instruction
from hlo_opt.ops.calls.products import convolution_arguments
from hlo_opt.ops.custom_calls.convolutions import as_hlo
from hlo_opt.ops.elementwise.functions import COMPARISONS, FUNCTIONS, NOT_COMPLEX
from hlo_opt.ops.spec import LibraryCall

Step = tuple[str, tuple[Any, ...], tuple[int, ...]]
"""(operation, arguments, numbers of the values that it takes), as `computed` of `hlo_opt.library` reads it."""

_CONVOLVED = frozenset({"pred", "bf16", "f16", "f32", "f64", "s8", "u8", "s32"})


def steps_of(
    roots: Sequence[Instruction],
    given: Mapping[Instruction, int],
    count: int,
    allowed: Callable[[Instruction], bool],
) -> tuple[tuple[Step, ...], tuple[int, ...]] | None:
    """The steps to some values, and their numbers, behind `count` values of which `given` tells the numbers. None where one of the operations has no steps or is not allowed."""
    numbers = dict(given)
    steps: list[Step] = []
    todo = [(root, False) for root in reversed(roots)]
    while todo:
        i, ready = todo.pop()
        if i in numbers:
            continue
        if not ready:
            todo.append((i, True))
            todo.extend((o, False) for o in reversed(i.operands))
            continue
        made = _steps(i) if allowed(i) else None
        if made is None:
            return None
        taken = tuple(numbers[o] for o in i.operands)
        for operation, arguments in made:
            steps.append((operation, arguments, taken))
            taken = (count + len(steps) - 1,)
        numbers[i] = taken[0]
    return tuple(steps), tuple(numbers[root] for root in roots)


def _steps(i: Instruction) -> list[tuple[str, tuple[Any, ...]]] | None:
    """What one operation is; several where its result must be rounded to bf16, which is computed in f32."""
    t = i.shape.type
    name = "float32" if t.name == "bf16" else t.numpy_name
    rounding: list[tuple[str, tuple[Any, ...]]] = [("narrow", ())] if t.name == "bf16" else []
    match i.opcode:
        case "constant":
            if i.literal is None or i.shape.rank or isinstance(i.literal.value, tuple):
                return None
            value = i.literal.value[()]
            # a NaN or an infinity has no text that Python reads back as itself
            return [("constant", (name, str(float(value)) if t.is_float else int(value)))]
        case "broadcast":
            return [("broadcast", (i.ints("dimensions"), i.shape.dimensions))]
        case "reshape":
            return [("reshape", (i.shape.dimensions,))]
        case "transpose":
            return [("transpose", (i.ints("dimensions"),))]
        case "copy":
            return []
        case "convert":
            return [("astype", (name,)), *rounding]
        case "bitcast" | "bitcast-convert":
            kinds = (i.operands[0].shape.type, t)
            fits = kinds[0].bits == t.bits and all(k.kind != "pred" and k.name != "bf16" for k in kinds)
            return [("view", (name,))] if fits else None
        case "convolution":
            return [("convolution", (i.shape.dimensions, *convolution_arguments(i))), ("astype", (name,)), *rounding]
        case "compare":
            return [(COMPARISONS[i.word("direction")], ())] if i.word("type") != "TOTALORDER" else None
        case "clamp":
            return [("clamp", ())]
    return [(FUNCTIONS[i.opcode], ()), *rounding] if i.opcode in FUNCTIONS else None


def convolution(instruction: Instruction) -> LibraryCall | None:
    """A convolution of cuDNN; None for one of types that CuPy lacks. Raises what `as_hlo` raises."""
    computation = as_hlo(instruction)
    root, parameters = computation.root, computation.parameters
    if not all(leaf.type.name in _CONVOLVED for p in parameters for leaf in p.shape.leaves()):
        return None
    made = steps_of(
        root.operands if root.shape.is_tuple else [root],
        {p: number for number, p in enumerate(parameters)},
        len(parameters),
        lambda i: i.shape.is_array and i.shape.type.name in _CONVOLVED,
    )
    return None if made is None else ("steps_call", made, "cupy.matmul of laid-out windows")


def of_complex(instruction: Instruction) -> LibraryCall | None:
    """An elementwise operation on complex numbers, which kernels of ours do not hold."""
    function = FUNCTIONS.get(instruction.opcode)
    shapes = [*(o.shape for o in instruction.operands), instruction.shape]
    if function is None or instruction.opcode in NOT_COMPLEX:
        return None
    if not any(s.is_array and s.type.is_complex for s in shapes):
        return None
    return "complex_call", (function,), "cupy" if function == "pair" else f"cupy.{function}"
