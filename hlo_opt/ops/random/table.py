"""Random numbers: rng-bit-generator, which is a function of its state, and the two opcodes that hide theirs.

Semantics: xla/hlo/transforms/expanders/rng_bit_generator_expander.cc. `rng` and `rng-get-and-update-state` draw from a state that a module does not
show; XLA gives other numbers in every process, so they have no value to compare and evaluating them is an error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hlo_opt.diag import EvaluationError
from hlo_opt.ir import ELEMENT_TYPES, Computation, Instruction, Module, Shape
from hlo_opt.ops import element_use
from hlo_opt.ops.lazy import lazy
from hlo_opt.ops.spec import Arity, Evaluator, OpKind, OpSpec, ShapeError, register

ALGORITHMS = {"rng_default": "philox", "rng_philox": "philox", "rng_three_fry": "threefry"}
"""XLA:CPU and XLA:GPU take Philox where the module leaves the choice to them."""


_BITS = tuple(f"{sign}{bits}" for bits in (8, 16, 32, 64) for sign in "su")
"""What the random bits may come as (rng_bit_generator_expander.cc)."""


def _bits_shape(instruction: Instruction) -> Shape:
    """The shape of the random bits: the second element of a pair, or all of the result in the form that drops the new state."""
    shape = instruction.shape
    return shape if shape.elements is None else shape.elements[-1]


def _infer_bit_generator(instruction: Instruction) -> Shape:
    state, shape = instruction.operands[0].shape, instruction.shape
    algorithm = instruction.word("algorithm")
    if algorithm not in ALGORITHMS:
        raise ShapeError(f"rng-bit-generator knows no algorithm {algorithm!r}; there are {', '.join(ALGORITHMS)}")
    if not state.is_array:
        raise ShapeError(f"the state of rng-bit-generator must be an array, not {state}")
    if shape.elements is not None and (len(shape.elements) != 2 or not shape.elements[0].same_values(state)):
        raise ShapeError(f"rng-bit-generator gives its new state, {state.without_layout()}, and the bits, not {shape}")
    if not _bits_shape(instruction).is_array:
        raise ShapeError(f"rng-bit-generator gives an array of bits, not {_bits_shape(instruction)}")
    return shape.without_layout()


def _can_expand(instruction: Instruction) -> bool:
    state = instruction.operands[0].shape
    sizes = {"threefry": ((2,),), "philox": ((2,), (3,))}[ALGORITHMS.get(instruction.word("algorithm"), "philox")]
    return (
        state.element_type == ELEMENT_TYPES["u64"]
        and state.dimensions in sizes
        and _bits_shape(instruction).type.name in _BITS
    )


def _bit_generator(algorithm: str, state: Shape, result: Shape) -> Computation:
    from hlo_opt.ops.random.expand import U32, Writer, philox_bits, threefry_bits

    writer = Writer(algorithm)
    bits_shape = result if result.elements is None else result.elements[1]
    element_type = bits_shape.type
    make = threefry_bits if algorithm == "threefry" else philox_bits
    new_state, bits = make(writer, writer.parameter(0, state), bits_shape)
    assert bits.shape.type is U32 or bits.shape.type.bits == 64
    bits = writer.convert(bits, element_type)
    if result.elements is None:
        return writer.finish([bits], [result])
    return writer.finish([new_state, bits], result.elements)


_known_bit_generator = functools.lru_cache(maxsize=256)(_bit_generator)


def expand_bit_generator(module: Module | None, instruction: Instruction) -> Computation:
    """The generator as elementwise operations: one parameter, the state; root (new state, bits). It is in no module.

    Raises ValueError for a state or a type that XLA's expander refuses.
    """
    return _checked(_bit_generator, instruction)


def _checked(build: Callable[[str, Shape, Shape], Computation], instruction: Instruction) -> Computation:
    if not _can_expand(instruction):
        raise ValueError(
            f"{instruction.word('algorithm')} makes no {_bits_shape(instruction)} of {instruction.operands[0].shape}"
        )
    algorithm = ALGORITHMS[instruction.word("algorithm")]
    return build(algorithm, instruction.operands[0].shape, instruction.shape)


def _evaluate_bit_generator(evaluator: Evaluator, instruction: Instruction, values: list[Any]) -> Any:
    # one computation per shape, so that an interpreter keeps what it knows about it from one loop iteration to the next
    return evaluator.call(_checked(_known_bit_generator, instruction), values)


def _element_flops(instruction: Instruction) -> float:
    # twenty rounds of ThreeFry are about as many operations as ten of Philox
    return 100.0 * _bits_shape(instruction).element_count


register(
    OpSpec(
        "rng-bit-generator",
        OpKind.RANDOM,
        Arity(1, 1),
        {"algorithm": True},
        _BITS,
        infer=_infer_bit_generator,
        evaluate=_evaluate_bit_generator,
        expand=expand_bit_generator,
        expands=_can_expand,
        flops=_element_flops,
        tolerance=lambda element_type: 0.0,
        expensive=lambda instruction: True,
        is_slow=True,
        omitted=None,
        scratch=lazy("scratch", "random"),
    )
)


def _hidden_state(evaluator: Evaluator, instruction: Instruction, values: list[Any]) -> Any:
    raise EvaluationError(
        f"{instruction.name}: {instruction.opcode} draws from a state that the module does not show, so it has no value to compare",
        code="HLO405",
        hint="use rng-bit-generator, or pass the random numbers as a parameter",
    )


def _infer_rng(instruction: Instruction) -> Shape:
    if instruction.word("distribution") not in ("rng_uniform", "rng_normal"):
        raise ShapeError(
            f"rng knows no distribution {instruction.word('distribution')!r}; there are rng_uniform, rng_normal"
        )
    if not instruction.shape.is_array:
        raise ShapeError(f"rng gives an array, not {instruction.shape}")
    for number, operand in enumerate(instruction.operands):
        if not operand.shape.is_array or operand.shape.rank:
            raise ShapeError(f"operand {number} of rng must be a scalar, not {operand.shape}")
        if operand.shape.type != instruction.shape.type:
            raise ShapeError(f"operand {number} of rng is {operand.shape}, its result {instruction.shape}")
    if instruction.word("distribution") == "rng_normal" and not instruction.shape.type.is_float:
        raise ShapeError(f"rng draws floats from rng_normal, not {instruction.shape.type}")
    return instruction.shape.without_layout()


register(
    OpSpec(
        "rng",
        OpKind.RANDOM,
        Arity(2, 2),
        {"distribution": True},
        ("pred", "signed", "unsigned", "float"),
        infer=_infer_rng,
        evaluate=_hidden_state,
        hides_state=True,
        flops=_element_flops,
        side_effects=True,
        expensive=lambda instruction: True,
        omitted=None,
        aligned=element_use.always,
    )
)


def _infer_state(instruction: Instruction) -> Shape:
    shape = instruction.shape
    if shape.element_type != ELEMENT_TYPES["u64"] or shape.rank != 1:
        raise ShapeError(f"rng-get-and-update-state gives a vector of u64, not {shape}")
    return shape.without_layout()


register(
    OpSpec(
        "rng-get-and-update-state",
        OpKind.RANDOM,
        Arity(0, 0),
        {"delta": True},
        ("u64",),
        infer=_infer_state,
        evaluate=_hidden_state,
        hides_state=True,
        flops=lambda instruction: 0.0,
        side_effects=True,
        expensive=lambda instruction: True,
        omitted=None,
    )
)
