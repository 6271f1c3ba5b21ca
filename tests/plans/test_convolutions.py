"""Prices of convolutions, by what cuDNN and our own kernels do."""

import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.ir import Instruction
from hlo_opt.plans.calls import price_of_call
from hlo_opt.plans.convolutions import convolution_price
from hlo_opt.plans.price import Price

LAST = "{3,2,1,0}"
SAME = "window={size=3x3 pad=1_1x1_1}, dim_labels="


def convolution(left: str, right: str, result: str, how: str) -> Instruction:
    return hlo_opt.parse(
        f"HloModule m\nENTRY e {{\n  a = {left}{LAST} parameter(0)\n  b = {right}{LAST} parameter(1)\n"
        f"  ROOT c = {result}{LAST} convolution(a, b), {how}\n}}\n"
    ).entry.root


def price(left: str, right: str, result: str, how: str) -> Price:
    return price_of_call(convolution(left, right, result, how), target("h200"))


def test_features_first_are_transposed_by_cudnn() -> None:
    last = price("f32[32,28,28,128]", "f32[128,3,3,128]", "f32[32,28,28,128]", SAME + "b01f_o01i->b01f")
    first = price("f32[32,128,28,28]", "f32[128,128,3,3]", "f32[32,128,28,28]", SAME + "bf01_oi01->bf01")
    assert first.launch == pytest.approx(last.launch + 2 * target("h200").kernel_launch_us)
    assert first.us > last.us + 4 * 4 * 32 * 28 * 28 * 128 / (target("h200").copied_per_second / 1e6)


def test_few_features_are_filled_up() -> None:
    few = price("f32[8,64,64,4]", "f32[3,3,4,64]", "f32[8,64,64,64]", SAME + "b01f_01io->b01f")
    more = price("f32[8,64,64,16]", "f32[3,3,16,64]", "f32[8,64,64,64]", SAME + "b01f_01io->b01f")
    assert few.instructions == more.instructions and few.memory < more.memory


def test_with_strides_the_phases_are_features() -> None:
    how = "window={size=16x16 stride=16x16}, dim_labels=b01f_01io->b01f"
    patches = price("f32[32,224,224,3]", "f32[16,16,3,768]", "f32[32,14,14,768]", how)
    product = price("f32[32,14,14,768]", "f32[1,1,768,768]", "f32[32,14,14,768]", "window={size=1x1}, " + how[33:])
    assert patches.instructions == product.instructions and patches.us < 2 * product.us


def test_one_more_block_than_multiprocessors_is_a_wave_more() -> None:
    def of(rows: int) -> Price:
        array = f"f32[1,{rows},64,64]"
        return price(array, "f32[1,1,64,64]", array, "window={size=1x1}, dim_labels=b01f_01io->b01f")

    assert of(133).instructions == pytest.approx(2 * of(132).instructions)
    assert of(132).instructions == of(100).instructions


def test_long_sums_are_divided() -> None:
    how = "window={size=56x56 pad=0_0x0_0}, dim_labels=f01b_i01o->01bf"
    found = price("f32[64,56,56,32]", "f32[32,56,56,256]", "f32[1,1,64,256]", how)
    assert found.us == pytest.approx(48, rel=0.3)


@pytest.mark.parametrize("first", [False, True])
def test_a_depthwise_convolution_is_little_more_than_its_bytes(first: bool) -> None:
    array = "f32[32,96,56,56]" if first else "f32[32,56,56,96]"
    kernel = "f32[96,1,3,3]" if first else "f32[3,3,1,96]"
    labels = "bf01_oi01->bf01" if first else "b01f_01io->b01f"
    found = price(array, kernel, array, f"{SAME}{labels}, feature_group_count=96")
    least = found.launch + 2 * 4 * 32 * 96 * 56 * 56 / (target("h200").memory_bandwidth / 1e6)
    assert least < found.us < 2 * least


def test_other_instructions_have_no_price_here() -> None:
    product = hlo_opt.parse(
        "HloModule m\nENTRY e {\n  a = f32[8,8]{1,0} parameter(0)\n"
        "  ROOT c = f32[8,8]{1,0} dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
    ).entry.root
    assert convolution_price(product, 1.0, 1.0, target("h200")) is None
    whole = convolution("s32[2,6,5,4]", "s32[3,3,4,8]", "s32[2,6,5,8]", SAME + "b01f_01io->b01f")
    assert convolution_price(whole, 1.0, 1.0, target("h200")) is None
