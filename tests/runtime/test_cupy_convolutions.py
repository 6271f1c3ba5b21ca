"""Convolutions by cuDNN, beside the evaluator: what cuDNN gets is computed by its definition (`fake_cudnn`)."""

import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import hlo_opt
from hlo_opt.evaluate import evaluate, module_inputs
from hlo_opt.ir import Shape
from hlo_opt.ops.calls.collectives import device_call
from hlo_opt.ops.calls.convolutions import DATA, FILTER, FORWARD, ROLES, Convolution, convolutions_of
from hlo_opt.ops.calls.moves import After
from hlo_opt.ops.calls.products import multiplies_tf32
from hlo_opt.runtime.executable import Executable
from tests.runtime.fake_cudnn import convolve


def text_of(left: str, right: str, result: str, how: str) -> str:
    return f"HloModule m\nENTRY e {{\n  a = {left} parameter(0)\n  b = {right} parameter(1)\n" + (
        f"  ROOT c = {result} convolution(a, b), {how}\n}}\n"
    )


def ways(text: str) -> list[Convolution]:
    call = device_call(hlo_opt.parse(text).entry.root)
    assert call is not None
    return convolutions_of(call)


def check(text: str, rounds: int = 1) -> Executable:
    module = hlo_opt.parse(text)
    inputs = module_inputs(module, 0)
    executable = hlo_opt.compile(module, "cupy")
    wanted = evaluate(module, inputs)
    for _ in range(rounds):
        (got,) = executable(*inputs)
        scale = np.abs(wanted[0].astype(float)).max() + 1e-9
        tolerance = 1e-5 if wanted[0].dtype.itemsize > 2 else 2e-2
        assert np.abs(got.astype(float) - wanted[0].astype(float)).max() <= tolerance * scale
    return executable


SAME = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
NHWC, HWIO = "{3,2,1,0}", "{3,2,1,0}"
CASES = {
    "features last": (
        text_of(f"f32[2,6,5,4]{NHWC}", f"f32[3,3,4,8]{HWIO}", f"f32[2,6,5,8]{NHWC}", SAME), FORWARD, "-w-"),
    "the kernel as cuDNN has it": (
        text_of(f"f16[2,6,5,4]{NHWC}", "f16[3,3,4,8]{2,1,0,3}", f"f16[2,6,5,8]{NHWC}", SAME), FORWARD, "---"),
    "features first": (
        text_of("f32[2,4,6,5]{3,2,1,0}", "f32[8,4,3,3]{3,2,1,0}", "f32[2,8,6,5]{3,2,1,0}",
                "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01"), FORWARD, "---"),
    "features first by layout": (
        text_of("f32[2,6,5,4]{2,1,3,0}", "f32[3,3,4,8]{1,0,2,3}", "f32[2,6,5,8]{2,1,3,0}", SAME), FORWARD, "---"),
    "uneven padding": (
        text_of(f"f32[2,8,8,4]{NHWC}", f"f32[3,3,4,8]{HWIO}", f"f32[2,4,4,8]{NHWC}",
                "window={size=3x3 stride=2x2 pad=0_1x0_1}, dim_labels=b01f_01io->b01f"), FORWARD, "-w-"),
    "padding that cuts": (
        text_of(f"f32[2,8,8,4]{NHWC}", f"f32[3,3,4,8]{HWIO}", f"f32[2,5,7,8]{NHWC}",
                "window={size=3x3 pad=-1_0x2_-1}, dim_labels=b01f_01io->b01f"), FORWARD, "xw-"),
    "one dimension, dilated, bf16": (
        text_of("bf16[2,16,4]{2,1,0}", "bf16[3,4,8]{2,1,0}", "bf16[2,16,8]{2,1,0}",
                "window={size=3 pad=2_2 rhs_dilate=2}, dim_labels=b0f_0io->b0f"), FORWARD, "-w-"),
    "three dimensions, f64": (
        text_of("f64[2,4,5,6,3]{4,3,2,1,0}", "f64[2,3,3,3,4]{4,3,2,1,0}", "f64[2,3,5,6,4]{4,3,2,1,0}",
                "window={size=2x3x3 pad=0_0x1_1x1_1}, dim_labels=b012f_012io->b012f"), FORWARD, "-w-"),
    "depthwise": (
        text_of(f"f32[2,6,5,4]{NHWC}", f"f32[3,3,1,8]{HWIO}", f"f32[2,6,5,8]{NHWC}",
                SAME + ", feature_group_count=4"), FORWARD, "-w-"),
    "bf16 to f32": (
        text_of(f"bf16[2,6,5,4]{NHWC}", f"bf16[3,3,4,8]{HWIO}", f"f32[2,6,5,8]{NHWC}", SAME), FORWARD, "xw-"),
    "a reversed kernel": (
        text_of(f"f32[2,6,5,4]{NHWC}", f"f32[3,3,8,4]{HWIO}", f"f32[2,6,5,8]{NHWC}",
                "window={size=3x3 pad=1_1x1_1 rhs_reversal=1x1}, dim_labels=b01f_01oi->b01f"), DATA, "-w-"),
    "one of two dimensions reversed, with a stride": (
        text_of(f"f32[2,6,5,4]{NHWC}", f"f32[3,3,4,8]{HWIO}", f"f32[2,3,3,8]{NHWC}",
                "window={size=3x3 stride=2x2 pad=1_1x1_1 rhs_reversal=0x1}, dim_labels=b01f_01io->b01f"),
        FORWARD, "-w-"),
    "transposed": (
        text_of(f"f32[2,4,4,8]{NHWC}", f"f32[3,3,8,4]{HWIO}", f"f32[2,8,8,4]{NHWC}",
                "window={size=3x3 pad=1_2x1_2 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f"), DATA, "-w-"),
    "transposed, the image cut": (
        text_of(f"f32[2,4,4,8]{NHWC}", f"f32[2,2,8,4]{HWIO}", f"f32[2,9,8,4]{NHWC}",
                "window={size=2x2 pad=2_1x1_1 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f"), DATA, "-wr"),
    "transposed in groups": (
        text_of("f32[2,6,4,4]{3,2,1,0}", "f32[8,3,3,3]{3,2,1,0}", "f32[2,8,8,8]{3,2,1,0}",
                "window={size=3x3 pad=1_2x1_2 lhs_dilate=2x2}, dim_labels=bf01_oi01->bf01, feature_group_count=2"),
        DATA, "-w-"),
    "the gradient of a kernel": (
        text_of(f"f32[2,8,8,4]{NHWC}", f"f32[2,4,4,8]{NHWC}", f"f32[3,3,4,8]{HWIO}",
                "window={size=4x4 pad=0_1x0_1 rhs_dilate=2x2}, dim_labels=f01b_i01o->01bf"), FILTER, "--r"),
    "the gradient of a dilated kernel, whose last rows nothing reads": (
        text_of("f32[2,10,4]{2,1,0}", "f32[2,4,8]{2,1,0}", "f32[2,4,8]{2,1,0}",
                "window={size=4 stride=2 pad=0_-1 rhs_dilate=2}, dim_labels=f0b_i0o->0bf"), FILTER, "--r"),
    "the gradient of a depthwise kernel": (
        text_of("f32[4,6,5,2]{2,1,0,3}", "f32[6,5,8,2]{2,1,0,3}", "f32[1,3,3,8]{2,1,0,3}",
                "window={size=6x5 pad=1_1x1_1}, dim_labels=b01f_01oi->b01f, batch_group_count=4"), FILTER, None),
    "patches": (
        text_of(f"f32[2,8,8,3]{NHWC}", f"f32[4,4,3,8]{HWIO}", f"f32[2,2,2,8]{NHWC}",
                "window={size=4x4 stride=4x4}, dim_labels=b01f_01io->b01f"), FORWARD, "-w-"),
    "a full product": (
        text_of("f32[5,4]{1,0}", "f32[4,3]{1,0}", "f32[5,3]{1,0}", "dim_labels=bf_io->bf"), FORWARD, None),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_convolution_is_one_of_cudnn_on_arrays_as_they_lie(name: str, fake: types.ModuleType) -> None:
    text, direction, moved = CASES[name]
    first = ways(text)[0]
    assert first.direction == direction
    if moved is not None:
        assert "".join("-" if m is None else letter for letter, m in zip("xwr", first.moves, strict=True)) == moved
    executable = check(text)
    assert fake.cudnn.ran and executable.report()["notes"] == {"convolution": "cudnnBackendExecute"}


DEPTHWISE = [
    text_of(f"f32[2,6,5,4]{NHWC}", f"f32[3,3,1,4]{HWIO}", f"f32[2,6,5,4]{NHWC}", SAME + ", feature_group_count=4"),
    text_of("bf16[2,4,9]{2,1,0}", "bf16[4,1,3]{1,0,2}", "bf16[3,4,2]{0,1,2}",
            "window={size=3 stride=2 pad=2_-1 rhs_dilate=2 rhs_reversal=1}, dim_labels=bf0_oi0->0fb, "
            "feature_group_count=4"),
    text_of("bf16[2,5,9,12]{3,2,1,0}", "bf16[2,3,1,12]{3,2,1,0}", "bf16[2,4,4,12]{3,2,1,0}",
            "window={size=2x3 stride=1x2 pad=1_-1x2_0 rhs_dilate=1x2}, dim_labels=b01f_01io->b01f, "
            "feature_group_count=12"),
    text_of("f16[1,4,5,6,6]{4,3,2,1,0}", "f16[6,1,3,3,3]{4,3,2,1,0}", "f16[1,4,5,6,6]{4,3,2,1,0}",
            "window={size=3x3x3 pad=1_1x1_1x1_1 rhs_reversal=0x1x1}, dim_labels=b012f_oi012->b012f, "
            "feature_group_count=6"),
    text_of("f64[2,40,3]{2,1,0}", "f64[5,1,3]{2,1,0}", "f64[2,40,3]{2,1,0}",
            "window={size=5 pad=4_0}, dim_labels=b0f_0io->b0f, feature_group_count=3"),
    text_of("f16[2,40,16]{2,1,0}", "f16[7,1,16]{2,1,0}", "f32[2,34,16]{2,1,0}",
            "window={size=7}, dim_labels=b0f_0io->b0f, feature_group_count=16"),
]  # fmt: skip


@pytest.mark.parametrize("text", DEPTHWISE)
def test_a_depthwise_convolution_is_a_kernel(text: str, fake: types.ModuleType) -> None:
    executable = check(text, rounds=3)
    assert not fake.cudnn.ran and executable.report()["notes"] == {"convolution": "a kernel of its own"}


@pytest.mark.parametrize("name", ["uneven padding", "transposed", "the gradient of a kernel"])
def test_uneven_padding_is_moved_where_cudnn_does_not_take_it(name: str, fake: types.ModuleType) -> None:
    fake.cudnn.takes_uneven = False
    check(CASES[name][0])
    assert fake.cudnn.ran


@pytest.mark.parametrize(
    "text",
    [
        text_of(f"s32[2,6,5,4]{NHWC}", f"s32[3,3,4,8]{HWIO}", f"s32[2,6,5,8]{NHWC}", SAME),
        text_of(f"f8e4m3fn[2,6,5,4]{NHWC}", f"f8e4m3fn[3,3,4,8]{HWIO}", f"f32[2,6,5,8]{NHWC}", SAME),
        text_of(f"f32[2,4,4,8]{NHWC}", f"f32[3,3,8,4]{HWIO}", f"f32[2,4,4,4]{NHWC}",
                "window={size=3x3 stride=2x2 pad=1_2x1_2 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f"),
        text_of(f"f32[0,6,5,4]{NHWC}", f"f32[3,3,4,8]{HWIO}", f"f32[0,6,5,8]{NHWC}", SAME),
    ],
)  # fmt: skip
def test_other_convolutions_are_none_of_cudnn(text: str, fake: types.ModuleType) -> None:
    assert ways(text) == []
    if "s32" in text:
        check(text)
    assert not fake.cudnn.ran


def custom(target: str, left: str, right: str, result: str, how: str) -> str:
    return f"HloModule m\nENTRY e {{\n  a = {left} parameter(0)\n  b = {right} parameter(1)\n" + (
        f'  c = ({result}, u8[0]{{0}}) custom-call(a, b), {how}, custom_call_target="__cudnn$conv{target}"\n'
        f"  ROOT d = {result} get-tuple-element(c), index=0\n}}\n"
    )


IMAGE, KERNEL, OUTPUT = f"[2,8,8,4]{NHWC}", f"[6,3,3,4]{NHWC}", f"[2,4,4,6]{NHWC}"
STRIDED = "window={size=3x3 stride=2x2 pad=0_1x0_1}, dim_labels=b01f_o01i->b01f"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (custom("Forward", "f32" + IMAGE, "f32" + KERNEL, "f32" + OUTPUT, STRIDED), 10),
        (custom("Forward", "bf16" + IMAGE, "bf16" + KERNEL, "bf16" + OUTPUT, STRIDED), 10),
        (custom("BackwardInput", "f32" + OUTPUT, "f32" + KERNEL, "f32" + IMAGE, STRIDED), 12),
        (custom("BackwardFilter", "f32" + IMAGE, "f32" + OUTPUT, "f32" + KERNEL, STRIDED), 11),
    ],
)
def test_custom_calls_of_xla_are_the_same_convolutions(text: str, kind: int, fake: types.ModuleType) -> None:
    executable = check(text, rounds=3)
    assert {k for k, _ in fake.cudnn.ran} == {kind}
    assert list(executable.report()["notes"].values()) == ["cudnnBackendExecute"]
    assert 1 in {engine for _, engine in fake.cudnn.ran}  # f32 may be rounded to TF32


def activated(kind: str, config: str, *, side: bool = False) -> str:
    """A convolution with a bias, perhaps with a side input."""
    text = custom("BiasActivationForward", kind + IMAGE, kind + KERNEL, kind + OUTPUT, STRIDED)
    more = f"  e = {kind}[6]{{0}} parameter(2)\n" + f"  f = {kind}{OUTPUT} parameter(3)\n" * side
    text = text.replace("  c = ", f"{more}  c = ").replace("(a, b)", "(a, b, e, f)" if side else "(a, b, e)")
    config = f'{{"cudnn_conv_backend_config":{{{config}}}}}'
    return text.replace('Forward"\n', f'Forward", backend_config={config}\n')


ACTIVATED = [
    activated("f32", '"activation_mode":"kNone"'),
    activated("f32", '"activation_mode":"kRelu","conv_result_scale":0.5'),
    activated("bf16", '"activation_mode":"kRelu","side_input_scale":2', side=True),
    activated("f32", '"activation_mode":"kNone","side_input_scale":1,"conv_result_scale":3', side=True),
]


@pytest.mark.parametrize("text", ACTIVATED)
def test_a_bias_an_activation_and_a_side_input_are_one_call_of_cudnn(text: str, fake: types.ModuleType) -> None:
    executable = check(text, rounds=3)
    assert {k for k, _ in fake.cudnn.ran} == {10}
    assert list(executable.report()["notes"].values()) == ["cudnnBackendExecute"]


@pytest.mark.parametrize("text", [*ACTIVATED[:2], ACTIVATED[3], ACTIVATED[1].replace("f32[", "f64[")])
def test_without_epilogues_in_cudnn_a_kernel_follows(text: str, fake: types.ModuleType) -> None:
    fake.cudnn.has_epilogues = False
    assert list(check(text, rounds=3).report()["notes"].values()) == ["cudnnBackendExecute"]
    assert fake.cudnn.ran


def test_without_epilogues_in_cudnn_cupy_computes_what_a_kernel_would_round_twice(fake: types.ModuleType) -> None:
    fake.cudnn.has_epilogues = False
    (note,) = check(ACTIVATED[2]).report()["notes"].values()
    assert "as cuDNN does not" in note and not fake.cudnn.ran


def test_other_activations_are_left_to_cupy(fake: types.ModuleType) -> None:
    check(activated("f32", '"activation_mode":"kElu"'))
    check(activated("f32", '"activation_mode":"kRelu","side_input_scale":0', side=True))
    assert not fake.cudnn.ran


def test_without_a_plan_cupy_computes_it_and_the_report_says_why(fake: types.ModuleType) -> None:
    fake.cudnn.is_broken = True
    executable = check(CASES["features last"][0])
    assert executable.report()["notes"]["convolution"].endswith("as cuDNN does not: cuDNN has no plan for it")


def test_only_engines_that_round_as_asked_are_taken(fake: types.ModuleType) -> None:
    """Number 0 rounds operands to less than TF32; 1 to TF32; 2 is Winograd's; 3 computes in f32 throughout."""
    text = CASES["features last"][0]
    check(text)
    assert {engine for _, engine in fake.cudnn.ran} == {1, 2, 3}
    fake.cudnn.ran.clear()
    check(text.replace(", dim_labels", ", operand_precision={highest,highest}, dim_labels"))
    assert {engine for _, engine in fake.cudnn.ran} == {3}
    fake.cudnn.ran.clear()
    module = hlo_opt.parse(text)
    hlo_opt.compile(module, "cupy", precise=True)(*module_inputs(module, 0))
    assert {engine for _, engine in fake.cudnn.ran} == {3}


def test_convolutions_are_nodes_of_a_graph(fake: types.ModuleType) -> None:
    text = (
        f"HloModule m\nENTRY e {{\n  a = f32[2,6,5,4]{NHWC} parameter(0)\n  w = f32[3,3,4,4]{HWIO} parameter(1)\n"
        f"  b = f32[2,6,5,4]{NHWC} convolution(a, w), {SAME}\n  d = f32[2,6,5,4]{NHWC} tanh(b)\n"
        f"  ROOT c = f32[2,6,5,4]{NHWC} convolution(d, w), {SAME}\n}}\n"
    )
    check(text, rounds=4)
    assert fake.captured


def moved(flat: np.ndarray, move: After | None) -> np.ndarray:
    """The elements of a buffer as a move leaves them."""
    if move is None:
        return flat
    module = hlo_opt.parse(move.text)
    (sizes,) = (p.shape.dimensions for p in module.entry.parameters)
    return np.asarray(evaluate(module, [flat.reshape(sizes)])[0]).reshape(-1)


def by_definition(way: Convolution, buffers: list[np.ndarray]) -> np.ndarray:
    """The buffer of the result."""
    operands, result = ROLES[way.direction][:2], ROLES[way.direction][2]
    flats = {
        role: moved(b, move).astype(np.float64) for role, b, move in zip(operands, buffers, way.moves, strict=False)
    }
    flats[result] = np.zeros(int(np.prod(way.tensors[2].sizes)))
    roles = ("image", "kernel", "output")
    views = [
        as_strided(flats[role], t.sizes, [8 * step for step in t.strides])
        for role, t in zip(roles, (way.image, way.kernel, way.output), strict=True)
    ]
    convolve(roles.index(result), views, way.before, way.after, way.strides, way.dilations)
    return moved(flats[result].astype(buffers[0].dtype), way.moves[2])


def in_memory(array: np.ndarray, shape: Shape) -> np.ndarray:
    return np.ascontiguousarray(array.transpose(list(reversed(shape.minor_to_major)))).reshape(-1)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_window_layout_and_order_of_dimensions(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 2), label="rank")
    groups = data.draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 2)]), label="groups")
    small = st.integers(1, 3)
    inputs, outputs, batch = (data.draw(small) for _ in range(3))
    sizes = [data.draw(st.integers(1, 5)) for _ in range(rank)]
    window, out = [], []
    for size in sizes:
        kernel, stride, dilation, base = data.draw(st.tuples(small, small, st.integers(1, 2), st.integers(1, 2)))
        low, high = data.draw(st.tuples(st.integers(-1, 3), st.integers(-1, 3)))
        stride = 1 if base > 1 else stride
        places = (size - 1) * base + 1 + low + high - (kernel - 1) * dilation - 1
        if places < 0 or (size - 1) * base + 1 + min(low, 0) + min(high, 0) <= 0:
            return
        window.append((kernel, stride, low, high, base, dilation, data.draw(st.booleans())))
        out.append(places // stride + 1)
    letters = [str(k) for k in range(rank)]
    orders = [data.draw(st.permutations([*names, *letters])) for names in ("bf", "io", "bf")]
    of = [
        {"b": batch * groups[1], "f": inputs * groups[0], **dict(zip(letters, sizes, strict=True))},
        {"i": inputs, "o": outputs * max(groups), **{k: w[0] for k, w in zip(letters, window, strict=True)}},
        {"b": batch, "f": outputs * max(groups), **dict(zip(letters, out, strict=True))},
    ]
    shapes = [
        f"f64[{','.join(str(by[n]) for n in order)}]"
        f"{{{','.join(map(str, data.draw(st.permutations(range(rank + 2)))))}}}"
        for by, order in zip(of, orders, strict=True)
    ]

    def each(number: int) -> str:
        return "x".join(str(int(w[number])) for w in window)

    pads = "x".join(f"{w[2]}_{w[3]}" for w in window)
    how = f"window={{size={each(0)} stride={each(1)} pad={pads} lhs_dilate={each(4)} rhs_dilate={each(5)} "
    how += f"rhs_reversal={each(6)}}}, dim_labels={'_'.join(''.join(o) for o in orders[:2])}->{''.join(orders[2])}, "
    how += f"feature_group_count={groups[0]}, batch_group_count={groups[1]}"
    module = hlo_opt.parse(text_of(*shapes, how))
    inputs = module_inputs(module, 0)
    buffers = [in_memory(np.asarray(v), p.shape) for v, p in zip(inputs, module.entry.parameters, strict=True)]
    wanted = in_memory(np.asarray(evaluate(module, inputs)[0]), module.entry.root.shape)
    for way in ways(text_of(*shapes, how)):
        assert np.allclose(by_definition(way, buffers), wanted, atol=1e-9)


@pytest.mark.parametrize(
    "text",
    [
        text_of("f32[2,11,10,3]{3,2,1,0}", "f32[5,4,3,6]{3,2,1,0}", "f32[2,6,5,6]{3,2,1,0}",
                "window={size=5x4 stride=2x2 pad=2_3x1_1}, dim_labels=b01f_01io->b01f"),
        text_of("f32[2,2,11,9]{0,3,1,2}", "f32[6,2,3,2]{2,0,1,3}", "f32[2,6,5,3]{3,1,0,2}",
                "window={size=3x2 stride=2x3 pad=-1_1x2_-2}, dim_labels=bf01_oi01->bf01"),
        text_of("f32[2,11,10,3]{2,3,1,0}", "f32[2,6,5,6]{3,2,1,0}", "f32[5,4,3,6]{1,3,0,2}",
                "window={size=6x5 pad=2_2x1_1 rhs_dilate=2x2}, dim_labels=f01b_i01o->01bf"),
        text_of("f16[2,64,1]{2,1,0}", "f16[7,1,4]{2,1,0}", "f16[2,16,4]{2,1,0}",
                "window={size=7 stride=4 pad=3_2}, dim_labels=b0f_0io->b0f"),
    ],
)  # fmt: skip
def test_with_strides_and_few_features_the_phases_are_features(text: str) -> None:
    found = [way for way in ways(text) if way.image.sizes[1] % 4 == 0 and max(way.strides) == 1]
    module = hlo_opt.parse(text)
    inputs = module_inputs(module, 0)
    buffers = [in_memory(np.asarray(v), p.shape) for v, p in zip(inputs, module.entry.parameters, strict=True)]
    wanted = in_memory(np.asarray(evaluate(module, inputs)[0]), module.entry.root.shape).astype(np.float64)
    assert len(found) == 1 and found[0] is not ways(text)[0]
    assert np.allclose(by_definition(found[0], buffers), wanted, rtol=1e-2, atol=1e-4 * np.abs(wanted).max())


def test_a_custom_call_without_results_multiplies_nothing() -> None:
    text = 'HloModule m\nENTRY e {\n  ROOT a = () custom-call(), custom_call_target="outside"\n}\n'
    assert not multiplies_tf32(hlo_opt.parse(text).entry.root)
    assert multiplies_tf32(hlo_opt.parse(CASES["features last"][0]).entry.root)
