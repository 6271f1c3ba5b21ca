"""rng-bit-generator against XLA:CPU, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jaxlib")

from hlo_opt.evaluate.interpreter import Interpreter
from hlo_opt.ir import ELEMENT_TYPES, Attribute, Instruction, Shape, array
from hlo_opt.ops import spec_of
from scripts.xla_cpu import Program

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "u32": [(), (1,), (2,), (7,), (3, 5), (3, 4), (4, 3), (5, 5, 3), (2, 3, 4), (3, 2, 3)],
    "u64": [(), (7,), (3, 5)],
    "u16": [(5,)],
    "u8": [(3, 4)],
    "s32": [(3,)],
}


def generator(algorithm: str, state: int, name: str, dimensions: tuple[int, ...]) -> Instruction:
    parameter = Instruction("state", "parameter", array(ELEMENT_TYPES["u64"], state), parameter_number=0)
    shape = Shape.tuple_of(parameter.shape, array(ELEMENT_TYPES[name], *dimensions))
    attributes = {"algorithm": Attribute.of(algorithm)}
    return Instruction("r", "rng-bit-generator", shape, [parameter], attributes)  # type: ignore[arg-type]


def evaluated(instruction: Instruction, state: np.ndarray[Any, Any]) -> Any:
    spec = spec_of(instruction)
    assert spec.evaluate is not None and spec.infer is not None
    assert spec.infer(instruction).same_values(instruction.shape)
    return spec.evaluate(Interpreter(), instruction, [state])


@pytest.mark.parametrize(
    ("algorithm", "size"), [("rng_three_fry", 2), ("rng_philox", 2), ("rng_philox", 3), ("rng_default", 3)]
)
def test_bits_and_state_are_those_of_xla(algorithm: str, size: int) -> None:
    # the counters run over the end of their low words
    states = [[0x0123456789ABCDEF, 2**64 - 2, 5], [7, 2**32 - 3, 2**64 - 1]]
    instructions = [generator(algorithm, size, name, dims) for name, shapes in SHAPES.items() for dims in shapes]
    results = ", ".join(str(i.shape) for i in instructions)
    lines = [f"  r{k} = {i.shape} rng-bit-generator(state), algorithm={algorithm}" for k, i in enumerate(instructions)]
    lines.append(f"  ROOT t = ({results}) tuple({', '.join(f'r{k}' for k in range(len(lines)))})")
    text = f"HloModule m\n\nENTRY e {{\n  state = u64[{size}] parameter(0)\n" + "\n".join(lines) + "\n}\n"
    program = Program(text)
    for numbers in states:
        state = np.array(numbers[:size], np.uint64)
        outputs = program([state])
        for number, instruction in enumerate(instructions):
            new_state, bits = evaluated(instruction, state)
            # XLA:CPU hands s32 out as u32
            np.testing.assert_array_equal(
                bits.view(outputs[2 * number + 1].dtype), outputs[2 * number + 1], str(instruction)
            )
            np.testing.assert_array_equal(new_state, outputs[2 * number], str(instruction))
