"""Every library call of the cupy backend over the stand-in, against the NumPy interpreter: on the backend and in an
emitted driver's text."""

import types

import ml_dtypes
import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate import evaluate, module_inputs
from hlo_opt.ir import ELEMENT_TYPES, Module
from hlo_opt.ops.calls.call import call_of
from tests.runtime.calls import close, gives_what_the_interpreter_gives

LESS = (
    "lt { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=LT, type=TOTALORDER }"
)
PAIRS = (
    "by { a = s32[] parameter(0) b = s32[] parameter(1) x = bf16[] parameter(2) y = bf16[] parameter(3)"
    " e = pred[] compare(a, b), direction=EQ g = pred[] compare(a, b), direction=GT l = pred[] compare(x, y), "
    "direction=LT"
    " n = pred[] and(e, l) ROOT r = pred[] or(g, n) }"
)
THREE = PAIRS.replace("by {", "three {").replace(" e = pred", " u = s32[] parameter(4) v = s32[] parameter(5) e = pred")
TOP = (
    "top { x = bf16[] parameter(0) y = bf16[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3) z = s32[] "
    "constant(0) m = s32[] constant(2147483647)"
    " xf = f32[] convert(x) xi = s32[] bitcast-convert(xf) xn = pred[] compare(xi, z), direction=LT xx = s32[] xor(m, "
    "xi) xk = s32[] select(xn, xx, xi)"
    " yf = f32[] convert(y) yi = s32[] bitcast-convert(yf) yn = pred[] compare(yi, z), direction=LT yx = s32[] xor(m, "
    "yi) yk = s32[] select(yn, yx, yi)"
    " g = pred[] compare(xk, yk), direction=GT l = pred[] compare(yk, xk), direction=GT t = pred[] compare(g, l), "
    "direction=EQ"
    " n = pred[] compare(c, d), direction=LT ROOT r = pred[] select(t, n, g) }"
)
ZEROS = (
    "near { a = f32[] parameter(0) b = f32[] parameter(1) z = f32[] constant(0) q = f32[] constant(nan)"
    " az = pred[] compare(a, z), direction=EQ an = pred[] compare(a, a), direction=NE as = f32[] select(az, z, a) aa = "
    "f32[] select(an, q, as)"
    " bz = pred[] compare(b, z), direction=EQ bn = pred[] compare(b, b), direction=NE bs = f32[] select(bz, z, b) bb = "
    "f32[] select(bn, q, bs)"
    " ROOT r = pred[] compare(aa, bb), direction=LT, type=TOTALORDER }"
)

CASES = {
    "sort": (LESS, "a = f32[3,17]{0,1} parameter(0)", "f32[3,17]{1,0} sort(a), dimensions={1}, to_apply=lt"),
    "sort_rows": (LESS, "a = f32[9,4]{1,0} parameter(0)", "f32[9,4]{1,0} sort(a), dimensions={0}, to_apply=lt"),
    "sort_jax": (ZEROS, "a = f32[40]{0} parameter(0)", "f32[40]{0} sort(a), dimensions={0}, to_apply=near"),
    "sort_top": (
        TOP,
        "a = bf16[4,20]{1,0} parameter(0)\n  b = s32[4,20]{1,0} parameter(1)",
        "(bf16[4,20]{1,0}, s32[4,20]{1,0}) sort(a, b), dimensions={1}, to_apply=top",
    ),
    "sort_two": (
        PAIRS,
        "a = s32[50]{0} parameter(0)\n  b = bf16[50]{0} parameter(1)",
        "(s32[50]{0}, bf16[50]{0}) sort(a, b), dimensions={0}, to_apply=by, is_stable=true",
    ),
    "sort_counting": (
        THREE + "\nbody { a = s32[6,5]{1,0} parameter(0) x = bf16[6,5]{0,1} parameter(1) i = s32[6,5]{0,1} iota(), "
        "iota_dimension=0"
        " ROOT s = (s32[6,5]{1,0}, bf16[6,5]{1,0}, s32[6,5]{1,0}) sort(a, x, i), dimensions={0}, to_apply=three, "
        "is_stable=true }\n",
        "a = s32[6,5]{1,0} parameter(0)\n  x = bf16[6,5]{0,1} parameter(1)",
        "(s32[6,5]{1,0}, bf16[6,5]{1,0}, s32[6,5]{1,0}) fusion(a, x), kind=kCustom, calls=body",
    ),
    "sort_narrow_along": (
        "lt { a = s32[] parameter(0) b = s32[] parameter(1) x = s4[] parameter(2) y = s4[] parameter(3) ROOT c = "
        "pred[] compare(a, b), direction=LT }",
        "a = s32[40]{0} parameter(0)\n  b = s4[40]{0} parameter(1)",
        "(s32[40]{0}, s4[40]{0}) sort(a, b), dimensions={0}, is_stable=true, to_apply=lt",
    ),
    "topk": ("", "a = bf16[3,9]{1,0} parameter(0)", "(bf16[3,4]{1,0}, s32[3,4]{1,0}) topk(a), k=4, largest=true"),
    "fft": ("", "a = c64[3,8]{1,0} parameter(0)", "c64[3,8]{1,0} fft(a), fft_type=FFT, fft_length={8}"),
    "rfft": ("", "a = f32[2,9]{0,1} parameter(0)", "c64[2,5]{1,0} fft(a), fft_type=RFFT, fft_length={9}"),
    "irfft": ("", "a = c64[4,5]{1,0} parameter(0)", "f32[4,8]{1,0} fft(a), fft_type=IRFFT, fft_length={4,8}"),
    "solve": (
        "",
        "a = f32[2,4,4]{2,1,0} parameter(0)\n  b = f32[2,4,3]{2,1,0} parameter(1)",
        "f32[2,4,3]{1,2,0} triangular-solve(a, b), left_side=true, lower=true, unit_diagonal=true, "
        "transpose_a=NO_TRANSPOSE",
    ),
    "solve_right": (
        "",
        "a = f32[3,3]{1,0} parameter(0)\n  b = f32[5,3]{1,0} parameter(1)",
        "f32[5,3]{1,0} triangular-solve(a, b), left_side=false, lower=false, unit_diagonal=true, transpose_a=TRANSPOSE",
    ),
    "convolution": (
        "",
        "a = f32[2,9,8,4]{3,2,1,0} parameter(0)\n  b = f32[3,2,2,6]{3,2,1,0} parameter(1)",
        "f32[2,5,9,6]{3,2,1,0} convolution(a, b), window={size=3x2 stride=2x1 pad=1_2x-1_3 lhs_dilate=1x1 "
        "rhs_dilate=1x1 rhs_reversal=1x0},"
        " dim_labels=b01f_01io->b01f, feature_group_count=2",
    ),
    "convolution_dilated": (
        "",
        "a = bf16[4,3,5]{2,1,0} parameter(0)\n  b = bf16[6,3,2]{2,1,0} parameter(1)",
        "bf16[2,6,9]{2,1,0} convolution(a, b), window={size=2 pad=1_1 lhs_dilate=2 rhs_dilate=2}, "
        "dim_labels=bf0_oi0->bf0, batch_group_count=2",
    ),
    "dot_f8": (
        "",
        "a = f8e4m3fn[4,6]{1,0} parameter(0)\n  b = f8e5m2[6,3]{1,0} parameter(1)",
        "f32[4,3]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "dot_to_f8": (
        "",
        "a = f8e4m3fn[40,6]{1,0} parameter(0)\n  b = bf16[6,30]{1,0} parameter(1)",
        "f8e5m2fnuz[40,30]{0,1} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "convolution_f8": (
        "",
        "a = f8e4m3fn[2,9,8,4]{3,2,1,0} parameter(0)\n  b = f8e4m3fn[3,2,4,6]{3,2,1,0} parameter(1)",
        "f8e4m3fn[2,7,7,6]{2,3,1,0} convolution(a, b), window={size=3x2}, dim_labels=b01f_01io->b01f",
    ),
    "convolution_f8_to_f32": (
        "",
        "a = f8e5m2[2,9,4]{2,1,0} parameter(0)\n  b = f8e4m3[3,4,6]{2,1,0} parameter(1)",
        "f32[2,7,6]{2,1,0} convolution(a, b), window={size=3}, dim_labels=b0f_0io->b0f",
    ),
    "dot_bf16": (
        "",
        "a = bf16[2,6,4]{1,2,0} parameter(0)\n  b = bf16[6,2,3]{2,1,0} parameter(1)",
        "f32[2,4,3]{2,1,0} dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}",
    ),
    "dot_vector": (
        "",
        "a = f64[7]{0} parameter(0)\n  b = f64[7,3]{0,1} parameter(1)",
        "f64[3]{0} dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    ),
    "dot_integers": (
        "",
        "a = s8[4,6]{1,0} parameter(0)\n  b = s8[6,3]{1,0} parameter(1)",
        "s32[4,3]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "cudnn_forward": (
        "",
        "a = f32[2,5,5,4]{3,2,1,0} parameter(0)\n  b = f32[6,3,3,4]{3,2,1,0} parameter(1)",
        "(f32[2,5,5,6]{3,2,1,0}, u8[0]{0}) custom-call(a, b), window={size=3x3 pad=1_1x1_1}, "
        'dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convForward"',
    ),
    "cudnn_activation": (
        "",
        "a = bf16[2,5,5,4]{3,2,1,0} parameter(0)\n  b = bf16[6,3,3,4]{3,2,1,0} parameter(1)\n  c = bf16[6]{0} "
        "parameter(2)",
        "(bf16[2,3,3,6]{3,2,1,0}, u8[0]{0}) custom-call(a, b, c), window={size=3x3 stride=2x2 pad=1_1x1_1}, "
        "dim_labels=b01f_o01i->b01f,"
        ' custom_call_target="__cudnn$convBiasActivationForward", '
        'backend_config={"cudnn_conv_backend_config":{"conv_result_scale":2,"activation_mode":"kElu"}}',
    ),
    "cudnn_filter": (
        "",
        "a = f32[2,5,5,4]{3,2,1,0} parameter(0)\n  b = f32[2,3,3,6]{3,2,1,0} parameter(1)",
        "(f32[6,3,3,4]{3,2,1,0}, u8[0]{0}) custom-call(a, b), window={size=3x3 stride=2x2 pad=1_1x1_1}, "
        "dim_labels=b01f_o01i->b01f,"
        ' custom_call_target="__cudnn$convBackwardFilter"',
    ),
    "cudnn_input": (
        "",
        "a = f32[2,3,3,6]{3,2,1,0} parameter(0)\n  b = f32[6,3,3,2]{3,2,1,0} parameter(1)",
        "(f32[2,5,5,4]{3,2,1,0}, u8[0]{0}) custom-call(a, b), window={size=3x3 stride=2x2 pad=1_1x1_1}, "
        "dim_labels=b01f_o01i->b01f, feature_group_count=2,"
        ' custom_call_target="__cudnn$convBackwardInput"',
    ),
    "top_k_call": (
        LESS.replace("LT", "GT"),
        "a = f32[3,20]{0,1} parameter(0)",
        '(f32[3,4]{1,0}, s32[3,4]{1,0}) custom-call(a), custom_call_target="__gpu$TopK", called_computations={lt}',
    ),
    "least_k_call": (
        LESS,
        "a = bf16[30]{0} parameter(0)",
        '(bf16[4]{0}, s32[4]{0}) custom-call(a), custom_call_target="TopK", called_computations={lt}',
    ),
    "radix_keys": (
        "",
        "a = f32[3,20]{1,0} parameter(0)",
        '(f32[3,20]{1,0}, u8[128]{0}) custom-call(a), custom_call_target="xla.gpu.ext.cub_sort_keys", '
        'backend_config={"descending":true}',
    ),
    "radix_pairs": (
        "",
        "a = u16[40]{0} parameter(0)\n  b = f64[40]{0} parameter(1)",
        '(u16[40]{0}, f64[40]{0}, u8[64]{0}) custom-call(a, b), custom_call_target="xla.gpu.ext.cub_sort_pairs", '
        'backend_config={"descending":false}',
    ),
}


def module_of(name: str) -> Module:
    computation, parameters, operation = CASES[name]
    return hlo_opt.parse(f"HloModule m\n{computation}\nENTRY e {{\n  {parameters}\n  ROOT r = {operation}\n}}\n")


@pytest.mark.parametrize("name", CASES)
def test_a_call_gives_what_the_interpreter_gives(name: str, fake: types.ModuleType) -> None:
    module = module_of(name)
    call = call_of(module.entry.root)
    assert call is not None
    gives_what_the_interpreter_gives(call, module, fake)


def test_floats_sort_in_total_order_and_equal_zeros_stay(fake: types.ModuleType) -> None:
    a = np.array([np.nan, 1, -0.0, 0.0, -np.inf, -np.nan, np.inf, -1], np.float32)
    call = call_of(module_of("sort_jax").entry.root)
    assert call is not None
    shapes = (("f32", "float32", (8,), (0,)),) * 2
    (made,) = type(call)(call.function, shapes, call.arguments, "").run(fake, [fake.asarray(a)])
    assert np.array_equal(
        made, np.array([-np.inf, -1, -0.0, 0.0, 1, np.inf, np.nan, np.nan], np.float32), equal_nan=True
    )
    assert np.signbit(made[2]) and not np.signbit(made[3])


def test_cholesky_gives_nan_where_a_matrix_is_not_positive_definite(fake: types.ModuleType) -> None:
    module = hlo_opt.parse(
        "HloModule m\nENTRY e {\n  a = f32[2,2,2]{2,1,0} parameter(0)\n  ROOT r = f32[2,2,2]{2,1,0} cholesky(a), "
        "lower=true\n}\n"
    )
    a = np.array([[[4, 9], [2, 5]], [[1, 0], [3, 1]]], np.float32)
    call = call_of(module.entry.root)
    assert call is not None
    (made,) = call.run(fake, [fake.asarray(a.reshape(-1))])
    assert np.array_equal(np.asarray(made), evaluate(module, [a])[0].reshape(-1), equal_nan=True)
    assert np.isnan(made[4:]).all() and np.array_equal(made[:4], [2, 0, 1, 2])


@pytest.mark.parametrize(
    ("left", "right", "types_", "expected"),
    [
        ("bf16[4,6]{1,0}", "bf16[6,3]{1,0}", "bf16[4,3]{1,0}", (14, 14, 0, 0, 68)),
        ("bf16[4,6]{0,1}", "bf16[6,3]{0,1}", "f32[4,3]{1,0}", (14, 0, 1, 1, 68)),
        ("f16[4,6]{1,0}", "f16[6,3]{0,1}", "f16[4,3]{0,1}", (2, 2, 0, 1, 68)),
        ("f64[4,6]{1,0}", "f64[6,3]{1,0}", "f64[4,3]{1,0}", (1, 1, 0, 0, 70)),
        ("f32[4,6]{1,0}", "f32[6,3]{1,0}", "f32[4,3]{1,0}", (0, 0, 0, 0, 77)),
    ],
)
def test_cublas_gets_types_and_layouts_as_they_are(
    left: str, right: str, types_: str, expected: tuple[int, ...], fake: types.ModuleType
) -> None:
    module = hlo_opt.parse(
        f"HloModule m\nENTRY e {{\n  a = {left} parameter(0)\n  b = {right} parameter(1)\n"
        f"  ROOT r = {types_} dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n}}\n"
    )
    inputs = module_inputs(module, 1)
    assert close(hlo_opt.compile(module, "cupy")(*inputs)[0], evaluate(module, inputs)[0])
    assert fake.gemms == [expected]


@pytest.mark.parametrize(
    ("more", "precise", "compute"),
    [
        ("", True, 68),
        (", operand_precision={highest,highest}", False, 68),
        (", operand_precision={high,default}", False, 77),
        (", algorithm=dot_f32_f32_f32", False, 68),
        (", algorithm=dot_tf32_tf32_f32", False, 77),
    ],
)
def test_f32_is_rounded_to_tf32_where_the_dump_lets_it(
    more: str, precise: bool, compute: int, fake: types.ModuleType
) -> None:
    module = hlo_opt.parse(
        "HloModule m\nENTRY e {\n  a = f32[4,6]{1,0} parameter(0)\n  b = f32[6,3]{1,0} parameter(1)\n"
        f"  ROOT r = f32[4,3]{{1,0}} dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{more}\n}}\n"
    )
    inputs = module_inputs(module, 1)
    assert close(hlo_opt.compile(module, "cupy", precise=precise)(*inputs)[0], evaluate(module, inputs)[0])
    assert fake.gemms == [(0, 0, 0, 0, compute)]


def test_what_has_no_call() -> None:
    computation = (
        "odd { a = f32[] parameter(0) b = f32[] parameter(1) s = f32[] subtract(a, b) z = f32[] constant(0) ROOT c = "
        "pred[] compare(s, z), direction=LT }"
    )
    module = hlo_opt.parse(
        f"HloModule m\n{computation}\nENTRY e "
        f"{{\n  a = f32[4]{{0}} parameter(0)\n  ROOT r = f32[4]{{0}} sort(a), dimensions={{0}}, to_apply=odd\n}}\n"
    )
    assert call_of(module.entry.root) is None
    narrow = hlo_opt.parse(
        "HloModule m\nENTRY e {\n  a = f64[2,2]{1,0} parameter(0)\n"  # rounding to f32 on the way would round twice
        "  ROOT r = f8e5m2[2,2]{1,0} dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
    )
    assert call_of(narrow.entry.root) is None


def test_bytes_are_read_through_their_table() -> None:
    from hlo_opt.ops.calls.products import table

    text = table(ELEMENT_TYPES["f8e4m3fn"])
    assert text is not None
    values = np.frombuffer(bytes.fromhex(text), np.float32)
    assert np.array_equal(
        values, np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32), equal_nan=True
    )
    assert table(ELEMENT_TYPES["bf16"]) is None


@pytest.mark.parametrize("name", [n for n, t in ELEMENT_TYPES.items() if t.is_float and t.bytes == 1])
def test_floats_of_a_byte_round_as_their_type_says(name: str) -> None:
    from hlo_opt.library.arrays import rounded_result
    from hlo_opt.ops.calls.products import rounding_table

    dtype = ELEMENT_TYPES[name].dtype
    every = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    halves = (every[:, None] + every) / 2  # all ties, and more
    bits = (
        np.concatenate([halves.reshape(-1), every, [np.inf, -np.inf, np.nan, -0.0]]).astype(np.float32).view(np.int32)
    )
    near = np.concatenate([bits + 1, bits, bits - 1, np.random.default_rng(1).integers(-(2**31), 2**31, 20000)])
    with np.errstate(all="ignore"):
        values = near.astype(np.int32).view(np.float32)
        wanted = values.astype(dtype).view(np.uint8)
    got = rounded_result(np, values, (name, "uint8", values.shape, (0,)), rounding_table(ELEMENT_TYPES[name]))
    assert got.dtype == np.uint8 and np.array_equal(got, wanted)
