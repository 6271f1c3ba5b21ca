"""What the coverage table says is what the faces do."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt import VerifyError, parse, verify
from hlo_opt.evaluate import Interpreter
from hlo_opt.ir import ELEMENT_TYPES, Instruction, Shape
from hlo_opt.ops import Arity, OpKind, OpSpec, evaluates, find, register, spec_of, table, unregister
from hlo_opt.ops.coverage import VALUES, element_types, faces, has_evaluation, has_lowering, samples
from hlo_opt.ops.elementwise.declare import array_operands, check_kind, elementwise, same_dimensions
from hlo_opt.plans.choose import lowering_reason

ELEMENTWISE = [s.opcode for s in table() if s.kind is OpKind.ELEMENTWISE and s.opcode != "map"]
F32, C64, S1 = (ELEMENT_TYPES[n] for n in ("f32", "c64", "s1"))


@pytest.mark.parametrize("opcode", ELEMENTWISE)
def test_shape_inference_takes_the_declared_types_and_no_others(opcode: str) -> None:
    spec = find(opcode)
    assert spec is not None
    assert [t for t in VALUES if any(True for _ in samples(spec, t))] == list(spec.element_types)


@pytest.mark.parametrize("opcode", ELEMENTWISE)
def test_a_kernel_can_hold_what_is_said_to_have_a_lowering(opcode: str) -> None:
    spec = find(opcode)
    assert spec is not None
    possible = [t for t in VALUES if any(lowering_reason(i) is None for i in samples(spec, t))]
    assert possible == [t for t in VALUES if has_lowering(spec, t)]


@pytest.mark.parametrize("opcode", ELEMENTWISE)
def test_what_is_said_to_evaluate_does(opcode: str) -> None:
    spec = find(opcode)
    assert spec is not None and spec.evaluate is not None
    for element_type in VALUES:
        for instruction in samples(spec, element_type) if has_evaluation(spec, element_type) else ():
            values = [np.ones(2, operand.shape.type.dtype) for operand in instruction.operands]
            made = np.asarray(spec.evaluate(Interpreter(), instruction, values))
            assert (made.shape, made.dtype) == (instruction.shape.dimensions, instruction.shape.type.dtype), (
                element_type
            )


def test_holes_are_no_errors() -> None:
    assert evaluates("add", "c64") and evaluates("add", F32)
    assert not evaluates("add", "s1")  # NumPy has no such type
    assert not evaluates("not", F32) and not evaluates("rng", F32) and not evaluates("infeed", F32)
    assert not evaluates("add", "f33") and not evaluates("frobnicate", F32)
    assert element_types("frobnicate") == element_types("after-all") == ()


def test_the_last_operand_may_be_an_exponent() -> None:
    def infer(instruction: Instruction) -> Shape:
        value, power = array_operands(instruction)
        check_kind("scale", value.type, ("float",))
        check_kind("scale", power.type, ("s32",))
        return same_dimensions("scale", [value, power], value.type)

    spec = elementwise(
        "scale",
        2,
        lambda call, x, power: call.np.ldexp(x, power),
        accepts=("float",),
        infer=infer,
        cuda={"float": "ldexp{F}({0}, {1})"},
    )
    try:
        assert [t for t in VALUES if any(True for _ in samples(spec, t))] == list(spec.element_types)
        assert has_lowering(spec, F32) and has_evaluation(spec, F32)
    finally:
        unregister(spec.opcode)


def test_faces_come_from_one_entry() -> None:
    spec = elementwise("halve", 1, lambda call, x: x / 2, accepts=("f32", "complex"), cuda={"f32": "{0} / 2"}, ulp=3)
    try:
        assert [t.name for t in spec.element_types] == ["f32", "c64", "c128"]
        assert faces(spec, F32) == faces(spec_of(next(samples(spec, F32))), F32)
        assert (faces(spec, F32).cuda, faces(spec, C64).cuda, faces(spec, C64).evaluate) == (True, False, True)
        assert faces(spec, F32).ulp == 3
        assert not faces(spec, S1).infer and faces(spec, S1).ulp is None
    finally:
        unregister("halve")
    bare = register(OpSpec("bare", OpKind.OPAQUE, Arity(0, None), {}))
    try:
        found = faces(bare, F32)
        assert not (found.infer or found.evaluate or found.cuda or found.expand) and found.ulp is None
    finally:
        unregister("bare")


REFUSED = {
    "cholesky": ("s32", "T[2,2]{1,0} cholesky(T[2,2]{1,0} p), lower=true"),
    "triangular-solve": (
        "s32",
        "T[2,2]{1,0} triangular-solve(T[2,2]{1,0} p, T[2,2]{1,0} p), left_side=true, lower=true, "
        "transpose_a=NO_TRANSPOSE",
    ),
    "fft": ("f16", "c64[2,2]{1,0} fft(T[2,2]{1,0} p), fft_type=RFFT, fft_length={2}"),
    "batch-norm-inference": (
        "s32",
        "T[2,2]{1,0} batch-norm-inference(p, v, v, v, v), epsilon=0.1, feature_index=0",
    ),
    "topk": ("c64", "(T[2,1]{1,0}, s32[2,1]{1,0}) topk(p), k=1, largest=true"),
    "iota": ("pred", "T[2,2]{1,0} iota(), iota_dimension=0"),
}


@pytest.mark.parametrize("opcode", REFUSED)
def test_the_verifier_refuses_what_an_opcode_does_not_take(opcode: str) -> None:
    name, text = REFUSED[opcode]
    assert ELEMENT_TYPES[name] not in element_types(opcode)
    body = f"  p = T[2,2]{{1,0}} parameter(0)\n  v = T[2]{{0}} parameter(1)\n  ROOT r = {text}\n"
    with pytest.raises(VerifyError, match=f"{opcode} r: {opcode} takes .* values, not {name}"):
        verify(parse(f"HloModule m\n\nENTRY e {{\n{body.replace('T[', f'{name}[')}}}\n"))
