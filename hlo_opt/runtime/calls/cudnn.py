"""cuDNN's convolutions, which XLA:GPU writes as custom calls, as steps that CuPy computes one after the other."""

from __future__ import annotations

from typing import Any

from hlo_opt.ir import ElementType, Instruction
from hlo_opt.ops.custom_calls.convolutions import as_hlo
from hlo_opt.ops.spec import ShapeError

Step = tuple[str, tuple[Any, ...], tuple[int, ...]]

_TARGETS = "__cudnn$conv"
_SAME = {
    "add": "add",
    "exponential-minus-one": "expm1",
    "logistic": "logistic",
    "maximum": "maximum",
    "minimum": "minimum",
    "multiply": "multiply",
    "negate": "negative",
    "select": "where",
    "subtract": "subtract",
    "tanh": "tanh",
}
_COMPARED = {"EQ": "equal", "GE": "greater_equal", "GT": "greater", "LE": "less_equal", "LT": "less", "NE": "not_equal"}


def convolution_steps(instruction: Instruction) -> tuple[str, tuple[Any, ...], str] | None:
    """The call for a convolution of cuDNN; None for another custom call, one that means nothing here, or types that CuPy lacks."""
    if not instruction.word("custom_call_target", "").startswith(_TARGETS):
        return None
    try:
        computation = as_hlo(instruction)
    except (KeyError, ShapeError, ValueError):
        return None
    numbers: dict[Instruction, int] = {p: k for k, p in enumerate(computation.parameters)}
    steps: list[Step] = []
    root = computation.root
    for i in computation.instructions:
        if not all(leaf.is_array and _computed(leaf.type) for leaf in i.shape.leaves()):
            return None
        if i.parameter_number is not None or (i is root and i.opcode == "tuple"):
            continue
        made = _steps(i)
        if made is None:
            return None
        taken = tuple(numbers[o] for o in i.operands)
        for operation, arguments in made:
            if operation == "clamp":
                steps.append(("maximum", (), taken[:2]))
                operation, taken = "minimum", (len(computation.parameters) + len(steps) - 1, taken[2])
            steps.append((operation, arguments, taken))
            taken = (len(computation.parameters) + len(steps) - 1,)
        numbers[i] = taken[0]
    results = tuple(numbers[o] for o in root.operands) if root.opcode == "tuple" else (numbers[root],)
    return "steps_call", (tuple(steps), results), "cupy.matmul of laid-out windows"


def _computed(t: ElementType) -> bool:
    return t.name in ("pred", "bf16", "f16", "f32", "f64", "s8", "u8", "s32")


def _steps(i: Instruction) -> list[tuple[str, tuple[Any, ...]]] | None:
    """What one operation is; several where its result must be rounded to bf16, which is computed in f32."""
    rounding: list[tuple[str, tuple[Any, ...]]] = [("narrow", ())] if i.shape.type.name == "bf16" else []
    name = "float32" if i.shape.type.name == "bf16" else i.shape.type.numpy_name
    match i.opcode:
        case "constant":
            if i.literal is None or i.shape.rank:
                return None
            value = i.literal.value
            assert not isinstance(value, tuple)
            return [("constant", (name, str(float(value[()]))))]
        case "broadcast":
            return [("broadcast", (i.ints("dimensions"), i.shape.dimensions))]
        case "reshape":
            return [("reshape", (i.shape.dimensions,))]
        case "transpose":
            return [("transpose", (i.ints("dimensions"),))]
        case "convert":
            return [("astype", (name,)), *rounding]
        case "convolution":
            from hlo_opt.runtime.calls.library import convolution_arguments

            arguments = convolution_arguments(i)
            return [("convolution", (i.shape.dimensions, *arguments)), ("astype", (name,)), *rounding]
        case "compare":
            return [(_COMPARED[i.word("direction")], ())]
        case "clamp":
            return [("clamp", ())]
    return [(_SAME[i.opcode], ()), *rounding] if i.opcode in _SAME else None
