"""Instructions of operations, against what machine code for an H100 showed."""

from __future__ import annotations

import pytest

from hlo_opt.ir import ELEMENT_TYPES
from hlo_opt.ir.index_map import delinearize, linearize, variable
from hlo_opt.plans.instructions import NOTHING, Work, divisions, of_fold, of_packing, of_value, takes_long
from tests.small_modules import module_of, named


def work(text: str, operand: str = "f32[8]") -> Work:
    found = module_of(f"x = {operand} parameter(0)", f"r = {text}")
    return of_value(named(found, "r"))


def test_a_sum_is_one_instruction_and_in_a_narrow_type_a_rounding_more() -> None:
    assert work("f32[8] add(x, x)") == Work(1)
    assert work("bf16[8] add(x, x)", "bf16[8]") == Work(1)  # in a pair
    assert work("bf16[8] divide(x, x)", "bf16[8]") == work("f32[8] divide(x, x)") + Work(1)
    assert work("f16[8] add(x, x)", "f16[8]") == Work(3, 1)
    assert work("f8e5m2[8] add(x, x)", "f8e5m2[8]").slots > 10


@pytest.mark.parametrize("text", ["f32[8] exponential(x)", "f32[8] divide(x, x)", "f32[8] rsqrt(x)", "f32[8] tanh(x)"])
def test_functions_use_the_slow_pipe(text: str) -> None:
    found = work(text)
    assert found.slow >= 1 and found.slots >= 4


def test_wide_types_take_more() -> None:
    assert work("f64[8] add(x, x)", "f64[8]") == Work(2, 0, 1)
    assert work("pred[8] compare(x, x), direction=LT", "f64[8]").doubles == 1
    assert work("c128[8] add(x, x)", "c128[8]").doubles == 4
    assert work("s32[8] divide(x, x)", "s32[8]").slots > work("s32[8] multiply(x, x)", "s32[8]").slots


def test_conversions_between_integers_and_floats_and_those_of_f64_use_the_slow_pipe() -> None:
    assert work("f32[8] convert(x)", "s32[8]").slow == 1
    assert work("s32[8] convert(x)", "s8[8]").slow == 0
    assert work("f64[8] convert(x)").slow == work("f32[8] convert(x)", "f64[8]").slow == 1
    assert (work("bf16[8] convert(x)").slow, work("f16[8] convert(x)").slow) == (0, 1)


@pytest.mark.parametrize(
    "text", ["f32[2,4] reshape(x)", "f32[8,2] broadcast(x), dimensions={0}", "f32[8] reverse(x), dimensions={0}"]
)
def test_what_only_moves_computes_nothing(text: str) -> None:
    assert work(text) == NOTHING


def test_a_copy_and_a_wider_float_cost_nothing() -> None:
    assert work("bf16[8] copy(x)", "bf16[8]") == NOTHING
    assert work("f32[8] convert(x)", "bf16[8]") == NOTHING  # registers hold an f32 already


def test_a_logistic_is_an_exponential_and_a_reciprocal() -> None:
    parts = [work(f"f32[8] {text}") for text in ("exponential(x)", "add(x, x)")]
    inverse = work("f32[8] logistic(x)").slots - sum(parts, NOTHING).slots
    assert 0 < inverse < work("f32[8] divide(x, x)").slots
    assert work("f32[8] logistic(x)").slow == 2


def test_a_wide_fold_rounds_nothing_on_its_way() -> None:
    sum_ = "s {\n  a = bf16[] parameter(0)\n  b = bf16[] parameter(1)\n  ROOT c = bf16[] add(a, b)\n}\n"
    import hlo_opt

    text = (
        "HloModule m\n"
        + sum_
        + "ENTRY e {\n  x = bf16[8,8] parameter(0)\n  z = bf16[] constant(0)\n  ROOT r = bf16[8] reduce(x, z), "
        "dimensions={1}, to_apply=s\n}\n"
    )
    module = hlo_opt.parse(text)
    assert of_fold(module.entry.root) == Work(1)


def test_a_product_is_multiplied_and_added_at_once() -> None:
    found = module_of(
        "x = f32[8,8] parameter(0)", "r = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    assert of_fold(named(found, "r")) == Work(1)


def test_narrow_elements_are_unpacked() -> None:
    found = [of_packing(ELEMENT_TYPES[t]).slots for t in ("f32", "s64", "bf16", "s8", "s4", "f8e5m2")]
    assert found == [0, 0, 1, 1, 3, 3]


def test_only_divisions_of_an_index_cost() -> None:
    place = variable("place", 6000)
    row, column = delinearize(place, (60, 100))
    assert list(divisions(linearize((row, column), (60, 100)))) == []
    assert len(list(divisions(linearize((column, row), (100, 60))))) == 2


@pytest.mark.parametrize(("right", "slots"), [(19, 1), (18, 3)])
def test_a_rotation_is_one_instruction(right: int, slots: int) -> None:
    found = module_of(
        "x = u32[8] parameter(0)",
        "m = u32[] constant(13)",
        "ms = u32[8] broadcast(m), dimensions={}",
        f"n = u32[] constant({right})",
        "ns = u32[8] broadcast(n), dimensions={}",
        "a = u32[8] shift-left(x, ms)",
        "b = u32[8] shift-right-logical(x, ns)",
        "r = u32[8] or(a, b)",
    )
    assert sum((of_value(named(found, name)) for name in "abr"), NOTHING) == Work(slots)


@pytest.mark.parametrize("opcode", ["divide", "remainder"])
@pytest.mark.parametrize(("type_", "known", "unknown"), [("s32", 4, 20), ("u8", 4, 20), ("s64", 8, 40)])
def test_integers_divided_by_a_number_take_a_product(opcode: str, type_: str, known: int, unknown: int) -> None:
    found = module_of(
        f"x = {type_}[8] parameter(0)",
        f"y = {type_}[8] parameter(1)",
        f"n = {type_}[] constant(7)",
        f"ns = {type_}[8] broadcast(n), dimensions={{}}",
        f"r = {type_}[8] {opcode}(x, ns)",
        f"q = {type_}[8] {opcode}(x, y)",
    )
    assert of_value(named(found, "r")).slots == known and of_value(named(found, "q")).slots == unknown


def test_what_takes_long() -> None:
    lines = ["x = f32[4,8] parameter(0)", "n = f32[4,8] negate(x)", "t = f32[8,4] transpose(n), dimensions={1,0}"]
    assert not takes_long(named(module_of(*lines), "t"))
    assert takes_long(named(module_of(*lines, "e = f32[8,4] exponential(t)", "m = f32[8,4] negate(e)"), "m"))
    assert takes_long(
        named(module_of(*lines, "d = f32[8,8] dot(t, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"), "d")
    )


def test_functions_of_narrow_floats_are_cheaper() -> None:
    for text in ("tanh(x)", "exponential(x)", "logistic(x)", "log(x)"):
        assert work(f"bf16[8] {text}", "bf16[8]").slots < work(f"f32[8] {text}").slots


def test_what_is_an_operand_is_not_rounded() -> None:
    assert work("bf16[8] maximum(x, x)", "bf16[8]") == work("f32[8] maximum(x, x)")
    assert work("bf16[8] negate(x)", "bf16[8]") == work("f32[8] negate(x)")
