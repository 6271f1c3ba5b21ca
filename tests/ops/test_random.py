"""Random opcodes: inference, refusals, and expansions that stay cheap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt.diag import EvaluationError
from hlo_opt.evaluate.interpreter import Interpreter
from hlo_opt.ir import ELEMENT_TYPES, Attribute, Instruction, Module, Shape, array
from hlo_opt.ops import OpKind, ShapeError, spec_of


def of(name: str, *dimensions: int) -> Shape:
    return array(ELEMENT_TYPES[name], *dimensions)


def made(opcode: str, result: Shape, *operands: Shape, **attributes: Any) -> Instruction:
    parameters = [Instruction(f"p{k}", "parameter", s, parameter_number=k) for k, s in enumerate(operands)]
    return Instruction("r", opcode, result, parameters, {k: Attribute.of(v) for k, v in attributes.items()})


def generator(result: Shape, state: Shape, algorithm: str = "rng_philox") -> Instruction:
    return made("rng-bit-generator", result, state, algorithm=algorithm)


def test_opcodes_with_a_hidden_state_have_no_value() -> None:
    rng = made("rng", of("f32", 3), of("f32"), of("f32"), distribution="rng_uniform")
    state = made("rng-get-and-update-state", of("u64", 1), delta=1)
    for instruction, values in ((rng, [np.float32(0), np.float32(1)]), (state, [])):
        spec = spec_of(instruction)
        assert spec.side_effects and spec.kind is OpKind.RANDOM
        assert spec.infer is not None and spec.infer(instruction).same_values(instruction.shape)
        assert spec.evaluate is not None
        with pytest.raises(EvaluationError, match="outside the module") as caught:
            spec.evaluate(Interpreter(), instruction, values)
        assert caught.value.code == "HLO405"


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (generator(Shape.tuple_of(of("u64", 2), of("u32", 3)), of("u64", 2), "rng_dice"), "no algorithm 'rng_dice'"),
        (generator(Shape.tuple_of(of("u64", 3), of("u32", 3)), of("u64", 2)), "returns its new state"),
        (generator(Shape.tuple_of(of("u64", 2)), of("u64", 2)), "returns its new state"),
        (made("rng", of("f32", 3), of("f32"), of("f32", 1), distribution="rng_normal"), "must be a scalar"),
        (made("rng", of("f32", 3), of("f32"), of("f32"), distribution="cauchy"), "no distribution 'cauchy'"),
        (made("rng-get-and-update-state", of("u32", 1), delta=1), "vector of u64"),
    ],
)
def test_what_does_not_fit(instruction: Instruction, message: str) -> None:
    infer = spec_of(instruction).infer
    assert infer is not None
    with pytest.raises(ShapeError, match=message):
        infer(instruction)


@pytest.mark.parametrize(
    ("algorithm", "state", "name"), [("rng_three_fry", 3, "u32"), ("rng_philox", 4, "u32"), ("rng_philox", 2, "f32")]
)
def test_states_and_types_without_a_meaning(algorithm: str, state: int, name: str) -> None:
    instruction = generator(Shape.tuple_of(of("u64", state), of(name, 3)), of("u64", state), algorithm)
    spec = spec_of(instruction)
    assert not spec.has_expansion(instruction)
    assert spec.evaluate is not None
    with pytest.raises(ValueError, match="makes no"):
        spec.evaluate(Interpreter(), instruction, [np.zeros(state, np.uint64)])


@pytest.mark.parametrize("algorithm", ["rng_three_fry", "rng_philox", "rng_default"])
def test_expansions_are_small_and_touch_no_module(algorithm: str) -> None:
    instruction = generator(Shape.tuple_of(of("u64", 2), of("u32", 128, 4)), of("u64", 2), algorithm)
    expand = spec_of(instruction).expand
    assert expand is not None
    module = Module("m")
    first, second = expand(module, instruction), expand(module, instruction)
    assert first is not second and not module.computations
    assert len(first.instructions) < 250
    assert first.root.shape.same_values(instruction.shape)
    names = [i.name for i in first.instructions]
    assert names == [i.name for i in second.instructions] and len(set(names)) == len(names)
    # the cipher runs once per counter, not once per word
    words = 2 if algorithm == "rng_three_fry" else 4
    ciphers = [i for i in first.instructions if i.opcode == "xor" and i.shape.rank]
    assert {i.shape.element_count for i in ciphers} == {128 * 4 // words}


def test_the_form_without_a_new_state() -> None:
    state = np.array([1, 2], np.uint64)
    pair = generator(Shape.tuple_of(of("u64", 2), of("u32", 5)), of("u64", 2))
    alone = generator(of("u32", 5), of("u64", 2))
    evaluate = spec_of(pair).evaluate
    assert evaluate is not None
    np.testing.assert_array_equal(evaluate(Interpreter(), alone, [state]), evaluate(Interpreter(), pair, [state])[1])


def test_a_declared_layout_is_kept() -> None:
    import dataclasses

    from hlo_opt.ir import Layout

    bits = dataclasses.replace(of("u32", 4, 6), layout=Layout((0, 1)))
    instruction = generator(Shape.tuple_of(of("u64", 2), bits), of("u64", 2))
    expand = spec_of(instruction).expand
    assert expand is not None
    root = expand(Module("m"), instruction).root
    assert root.shape == instruction.shape


def test_changing_the_state_changes_all_bits() -> None:
    instruction = generator(Shape.tuple_of(of("u64", 2), of("u32", 1000)), of("u64", 2), "rng_three_fry")
    evaluate = spec_of(instruction).evaluate
    assert evaluate is not None
    first, bits = evaluate(Interpreter(), instruction, [np.array([1, 0], np.uint64)])
    _, other = evaluate(Interpreter(), instruction, [first])
    assert first.tolist() == [1, 500]
    assert not (bits == other).any()
    assert abs(float(np.mean(bits / 2.0**32)) - 0.5) < 0.05
