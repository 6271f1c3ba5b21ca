"""XLA:GPU's convolutions with bias, activation and side input, as cuDNN may compute them: one graph of several
operations; or, where results lie as the convolution leaves them, a convolution and a kernel after it.

Only the activations are here that cuDNN has kernels for without a compiler. Others are left to CuPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hlo_opt.ir import Instruction
from hlo_opt.ir.element_type import ELEMENT_TYPES
from hlo_opt.library.arrays import Described
from hlo_opt.ops.calls.call import TF32, DeviceCall
from hlo_opt.ops.calls.convolutions import FORWARD, Asked, Convolution, Epilogue, convolutions_of, ways_of
from hlo_opt.ops.custom_calls.convolutions import activation_of, scales_of

TARGET = "__cudnn$convBiasActivationForward"
_EXACT = frozenset({"f32", "f64"})
"""Types whose convolution is not rounded before the rest is added."""


@dataclass(frozen=True)
class Finish:
    """What a kernel of our own computes after a convolution: of its result, the bias, and the side input if any, which
    all lie as the result does.

    shape  of the result
    """

    shape: Described
    features: int
    epilogue: Epilogue

    @property
    def bytes(self) -> int:
        """Bytes of the result."""
        return math.prod(self.shape[2]) * ELEMENT_TYPES[self.shape[0]].bytes

    @property
    def text(self) -> str:
        """A module of one fusion that computes it."""
        name, _, sizes, minor_to_major = self.shape
        whole = f"{name}[{','.join(map(str, sizes))}]{{{','.join(map(str, minor_to_major))}}}"
        bias = f"{name}[{sizes[self.features]}]{{0}}"
        shapes = [whole, bias, *[whole] * bool(self.epilogue.side_scale)]
        lines = [f"p{k} = {shape} parameter({k})" for k, shape in enumerate(shapes)]

        def scaled(value: str, factor: float) -> str:
            if factor == 1.0:
                return value
            lines.append(f"number_{value} = {name}[] constant({factor!r})")
            lines.append(f"factor_{value} = {whole} broadcast(number_{value}), dimensions={{}}")
            lines.append(f"scaled_{value} = {whole} multiply({value}, factor_{value})")
            return f"scaled_{value}"

        last = scaled("p0", self.epilogue.scale)
        if self.epilogue.side_scale:
            lines.append(f"sum = {whole} add({last}, {scaled('p2', self.epilogue.side_scale)})")
            last = "sum"
        lines.append(f"bias = {whole} broadcast(p1), dimensions={{{self.features}}}")
        lines.append(f"biased = {whole} add({last}, bias)")
        if self.epilogue.is_relu:
            lines += [f"zero = {name}[] constant(0)", f"zeros = {whole} broadcast(zero), dimensions={{}}"]
            lines.append(f"positive = {whole} maximum(biased, zeros)")
        body = "\n  ".join([*lines[:-1], f"ROOT {lines[-1]}"])
        operands = "\n  ".join(f"a{k} = {shape} parameter({k})" for k, shape in enumerate(shapes))
        names = ", ".join(f"a{k}" for k in range(len(shapes)))
        return (
            f"HloModule finish\n\nbody {{\n  {body}\n}}\n\nENTRY main {{\n  {operands}\n"
            f"  ROOT finish = {whole} fusion({names}), kind=kLoop, calls=body\n}}\n"
        )


def cudnn_ways(instruction: Instruction, call: DeviceCall) -> list[Convolution]:
    """An instruction, whose call this is, as convolutions that cuDNN may compute (`convolutions_of`), also with what
    XLA's custom calls add to them. Empty for other instructions."""
    return convolutions_of(call) or _with_epilogue(instruction, call)


def _with_epilogue(instruction: Instruction, call: DeviceCall) -> list[Convolution]:
    if instruction.opcode != "custom-call" or instruction.word("custom_call_target") != TARGET:
        return []
    if call.function != "steps_call":
        return []
    steps, results, *rest = call.arguments
    count = len(call.shapes) - len(results)
    scale, side_scale = scales_of(instruction)
    activation = activation_of(instruction)
    if steps[0][0] != "convolution" or steps[0][2] != (0, 1) or activation not in ("kNone", "kRelu"):
        return []
    if (count == 4) != bool(side_scale) or any(math.prod(shape[2]) for shape in call.shapes[count + 1 :]):
        return []
    result, others = call.shapes[count], call.shapes[2:count]
    if any(shape[0] != result[0] for shape in (*call.shapes[:2], *others)):
        return []
    if any(shape[3] != result[3] for shape in others[1:]):
        return []
    _, positions, window, groups, _ = steps[0][1]
    asked = Asked((*call.shapes[:2], result), positions, window, groups, TF32 in rest)
    plain = [way for way in ways_of(asked) if way.direction == FORWARD and way.moves[2] is None]
    epilogue = Epilogue(scale, side_scale, activation == "kRelu")
    whole = [replace(way, epilogue=epilogue) for way in plain]
    return whole + _apart(plain[:1], result, positions[2][1], epilogue)


def _apart(ways: Sequence[Convolution], result: Described, features: int, epilogue: Epilogue) -> list[Convolution]:
    """The same by a kernel after the convolution, of types whose convolution is not rounded in between."""
    if result[0] not in _EXACT:
        return []
    finish = Finish(result, features, epilogue)
    apart = replace(epilogue, is_apart=True)
    return [replace(way, epilogue=apart, moves=(*way.moves[:2], finish)) for way in ways]
