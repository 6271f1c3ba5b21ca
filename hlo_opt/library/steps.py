"""Operations one after the other on a GPU. Written as `library.arrays` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from hlo_opt.ir.values import Array
from hlo_opt.library.arrays import Described, flat, logical, narrowed, widened
from hlo_opt.library.products import convolution

Step = tuple[str, Sequence[Any], Sequence[int]]
"""(operation, arguments, numbers of the values that it takes)"""


def computed(
    xp: ModuleType, steps: Sequence[Step], values: Sequence[Array], functions: Mapping[str, Callable[..., Array]]
) -> list[Array]:
    """The values, and behind them those of all steps: each is (operation, arguments, numbers of the values that it takes). bf16 is computed in float32 and rounded where the steps say
    `narrow`. `functions` are further operations by name."""
    found = list(values)
    for operation, arguments, taken in steps:
        parts = [found[n] for n in taken]
        if operation == "constant":
            dtype_name, value = arguments
            made = xp.asarray(float(value) if isinstance(value, str) else value).astype(dtype_name)
        elif operation == "broadcast":
            spread = [1] * len(arguments[1])
            for place, d in enumerate(arguments[0]):
                spread[d] = parts[0].shape[place]
            made = xp.broadcast_to(parts[0].reshape(spread), arguments[1])
        elif operation == "clamp":
            made = xp.minimum(xp.maximum(parts[0], parts[1]), parts[2])
        elif operation == "logistic":
            made = 1 / (1 + xp.exp(-parts[0]))
        elif operation == "narrow":
            made = widened(xp, narrowed(xp, parts[0], "bf16", "uint16"), "bf16")
        elif operation == "view":
            made = xp.ascontiguousarray(parts[0]).view(*arguments).reshape(parts[0].shape)
        elif operation in ("astype", "reshape", "transpose"):
            made = getattr(parts[0], operation)(*arguments)
        elif operation in functions:
            made = functions[operation](xp, *parts, *arguments)
        else:
            made = getattr(xp, operation)(*parts)
        found.append(made)
    return found


def steps_call(
    xp: ModuleType, buffers: Sequence[Array], shapes: Sequence[Described], steps: Sequence[Step], results: Sequence[int]
) -> list[Array]:
    """What a library call means, operation by operation: the first values of the steps are the operands; `results` are numbers of values."""
    given = [logical(widened(xp, b, s[0]), s[2], s[3]) for b, s in zip(buffers, shapes, strict=False)]
    values = computed(xp, steps, given, {"convolution": convolution})
    made = [(values[n], shape) for n, shape in zip(results, shapes[len(buffers) :], strict=True)]
    return [narrowed(xp, flat(xp, value, s[3]), s[0], s[1]) for value, s in made]
