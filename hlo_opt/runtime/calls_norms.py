"""What batch normalisation asks of CuPy, or None where it cannot: XLA:GPU writes it out before it fuses."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ops.shapes import integer


def batch_norm(instruction: Instruction) -> tuple[str, tuple[Any, ...], str] | None:
    """The call for a batch normalisation, or None for types that CuPy lacks."""
    leaves = [*(o.shape for o in instruction.operands), *instruction.shape.leaves()]
    if not all(leaf.is_array and leaf.type.name in ("bf16", "f16", "f32", "f64") for leaf in leaves):
        return None
    # XLA keeps epsilon as a float of 32 bits (xla/hlo/ir/hlo_instructions.h, HloBatchNormInstruction)
    epsilon = float(np.float32(str(instruction.value("epsilon", 0.0))))
    kind = instruction.opcode.removeprefix("batch-norm-")
    return "batch_norm_call", (kind, integer(instruction, "feature_index"), epsilon), "cupy"
