import numpy as np
import pytest

from hlo_opt.evaluate import evaluate
from hlo_opt.ops.values import HIGH, LOW, ROWS, Spread
from hlo_opt.runtime.differences import compare_output
from hlo_opt.runtime.rounding import sums
from hlo_opt.runtime.rounding.analysis import analyse
from hlo_opt.runtime.rounding.verdict import enclosures

from .spreads import DTYPES, holds, parsed, run, within

RNG = np.random.default_rng(3)


def normal(*sizes: int, t: str = "f32") -> np.ndarray:  # type: ignore[type-arg]
    return RNG.normal(size=sizes).astype(DTYPES[t])


@pytest.mark.parametrize("t", ["f32", "bf16"])
@pytest.mark.parametrize(
    "body",
    [
        "  a = TYPE[6,40]{1,0} parameter(0)\n  b = TYPE[40,5]{1,0} parameter(1)\n  ROOT c = TYPE[6,5]{1,0} dot(a, b), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "  a = TYPE[1,3,9,9]{3,2,1,0} parameter(0)\n  b = TYPE[4,3,3,3]{3,2,1,0} parameter(1)\n  ROOT c = "
        "TYPE[1,4,7,7]{3,2,1,0} convolution(a, b), window={size=3x3}, dim_labels=bf01_oi01->bf01",
        "  a = TYPE[6,40]{1,0} parameter(0)\n  b = TYPE[] parameter(1)\n  ROOT c = TYPE[6]{0} reduce(a, b), "
        "dimensions={1}, to_apply=add_TYPE",
        "  a = TYPE[6,9]{1,0} parameter(0)\n  b = TYPE[] parameter(1)\n  ROOT c = TYPE[6]{0} reduce(a, b), "
        "dimensions={1}, to_apply=multiply_TYPE",
        "  a = TYPE[6,40]{1,0} parameter(0)\n  b = TYPE[] parameter(1)\n  ROOT c = TYPE[40]{0} reduce(a, b), "
        "dimensions={0}, to_apply=maximum_TYPE",
        "  a = TYPE[6,40]{1,0} parameter(0)\n  b = TYPE[] parameter(1)\n  ROOT c = TYPE[6,38]{1,0} reduce-window(a, "
        "b), window={size=1x3}, to_apply=add_TYPE",
        "  a = TYPE[6,40]{1,0} parameter(0)\n  b = TYPE[] parameter(1)\n  ROOT c = TYPE[6,40]{1,0} reduce-window(a, "
        "b), window={size=1x40 pad=0_0x39_0}, to_apply=add_TYPE",
    ],
)
def test_sums_of_values_within_bounds_are_within_bounds(body: str, t: str) -> None:
    module = parsed(body.replace("TYPE", t))
    inputs = [normal(*p.shape.dimensions, t=t) for p in module.entry.parameters]
    for radius in (1e-4, 0.1):
        holds(body.replace("TYPE", t), *inputs, radius=radius)


def test_sums_of_no_rows_have_no_bounds() -> None:
    body = (
        "  a = f32[0,3]{1,0} parameter(0)\n  b = f32[] parameter(1)\n  e = f32[0,3]{1,0} exponential(a)\n  ROOT c = "
        "f32[0]{0} reduce(e, b), dimensions={1}, to_apply=add_f32"
    )
    holds(body, normal(0, 3), normal(), radius=0.1)


def scattered(t: str = "f32", reducer: str = "add") -> str:
    return (
        f"  a = {t}[30]{{0}} parameter(0)\n  u = {t}[50]{{0}} parameter(1)\n  i = s32[50,1]{{1,0}} iota(), "
        f"iota_dimension=0\n"
        "  k = s32[] constant(7)\n  s = s32[50,1]{1,0} broadcast(k), dimensions={}\n  j = s32[50,1]{1,0} remainder(i, "
        "s)\n"
        f"  ROOT c = {t}[30]{{0}} scatter(a, j, u), update_window_dims={{}}, inserted_window_dims={{0}}, "
        f"scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply={reducer}_{t}"
    )


@pytest.mark.parametrize("reducer", ["add", "maximum", "multiply"])
def test_scatters_hold_their_bounds_and_untouched_elements_stay_certain(reducer: str) -> None:
    a, u = normal(30), normal(50)
    holds(scattered(reducer=reducer), a, u, radius=0.01)
    (made,) = run(parsed(scattered(reducer=reducer)), [a, u])
    rows = made.rows if isinstance(made, Spread) else np.stack([made] * 3)
    assert (rows[LOW][7:] == rows[HIGH][7:]).all() and np.array_equal(rows[LOW][7:], a[7:])
    assert (rows[LOW][:7] < rows[HIGH][:7]).all() == (reducer != "maximum")


@pytest.mark.parametrize("t", ["f32", "bf16"])
def test_a_scatter_that_multiplies_has_an_open_order(t: str) -> None:
    a, u = normal(30, t=t), normal(50, t=t)
    (made,) = run(parsed(scattered(t, "multiply")), [a, u])
    assert isinstance(made, Spread)
    assert np.array_equal(made.rows[LOW][7:], a[7:]) and np.array_equal(made.rows[HIGH][7:], a[7:])
    for order in (np.arange(50), np.arange(50)[::-1], RNG.permutation(50)):
        product = a.copy()
        for k in order:
            product[k % 7] *= u[k]
        assert ((made.rows[LOW] <= product) & (product <= made.rows[HIGH])).all()
    width = (made.rows[HIGH].astype(np.float64) - made.rows[LOW])[:7] / np.abs(a[:7].astype(np.float64))
    assert (width > 0).all()


def complex_normal(*sizes: int) -> np.ndarray:  # type: ignore[type-arg]
    return (RNG.normal(size=sizes) + 1j * RNG.normal(size=sizes)).astype(np.complex64)


def rounds_otherwise(made: Spread, exact: np.ndarray, n: int) -> None:  # type: ignore[type-arg]
    """The bounds of the first n elements hold the exact value and are narrow."""
    for name in ("real", "imag"):
        low, high, part = (getattr(x, name)[:n] for x in (made.rows[LOW], made.rows[HIGH], exact))
        assert ((low < part) & (part < high)).all()
    assert (np.abs(made.rows[HIGH] - made.rows[LOW])[:n] < 1e-3 * np.abs(exact[:n]).max()).all()


def test_a_scatter_that_multiplies_complex_numbers_has_an_open_order() -> None:
    a, u = complex_normal(30), complex_normal(50)
    (made,) = run(parsed(scattered("c64", "multiply")), [a, u])
    assert isinstance(made, Spread)
    assert np.array_equal(made.rows[LOW][7:], a[7:]) and np.array_equal(made.rows[HIGH][7:], a[7:])
    product = a.astype(np.complex128)
    for k in range(50):
        product[k % 7] *= u[k]
    rounds_otherwise(made, product, 7)


BOTH = """both {
  a = f32[] parameter(0)
  b = s32[] parameter(1)
  c = f32[] parameter(2)
  d = s32[] parameter(3)
  e = f32[] exponential(c)
  f = f32[] add(a, e)
  g = s32[] maximum(b, d)
  ROOT t = (f32[], s32[]) tuple(f, g)
}

"""
SCATTER_OF_TWO = """  a = f32[30]{0} parameter(0)
  u = f32[50]{0} parameter(1)
  k = s32[50,1]{1,0} iota(), iota_dimension=0
  seven = s32[] constant(7)
  s = s32[50,1]{1,0} broadcast(seven), dimensions={}
  i = s32[50,1]{1,0} remainder(k, s)
  e = f32[50]{0} exponential(u)
  n = s32[50]{0} convert(e)
  z = s32[30]{0} iota(), iota_dimension=0
  ROOT c = (f32[30]{0}, s32[30]{0}) scatter(a, z, i, u, n), update_window_dims={}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=both"""


def test_a_scatter_with_a_reducer_of_its_own_rounds_where_it_updates() -> None:
    a, u = normal(30), normal(50)
    floats, integers = run(parsed(SCATTER_OF_TWO, BOTH), [a, u])
    assert isinstance(floats, Spread)
    assert (floats.rows[LOW][:7] < floats.rows[HIGH][:7]).all() and np.array_equal(floats.rows[LOW][7:], a[7:])
    kept = integers.rows[LOW] if isinstance(integers, Spread) else integers
    assert np.array_equal(kept[7:], np.arange(7, 30))


def test_a_scatter_of_a_narrow_type_rounds_on_the_way() -> None:
    a, u = normal(30, t="bf16"), normal(50, t="bf16")
    holds(scattered("bf16"), a, u, radius=0.01)
    (made,) = run(parsed(scattered("bf16")), [a, u])
    assert isinstance(made, Spread)
    for order in (np.arange(50), np.arange(50)[::-1], RNG.permutation(50)):
        total = a.copy()
        for k in order:
            total[k % 7] += u[k]
        assert ((made.rows[LOW] <= total) & (total <= made.rows[HIGH])).all()


def test_what_a_window_selects_adds_up() -> None:
    body = "  a = f32[9]{0} parameter(0)\n  s = f32[4]{0} parameter(1)\n  z = f32[] constant(0)\n"
    body += "  ROOT c = f32[9]{0} select-and-scatter(a, s, z), window={size=3 stride=2}, select=least, scatter=add_f32"
    most = (
        "least {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT z = pred[] compare(x, y), "
        "direction=GE\n}\n\n"
    )
    a, s = np.array([1, 2, 9, 3, 8, 1, 1.5, 5, 2], np.float32), normal(4)
    (made,) = run(parsed(body, most), [a, s])
    rows = made.rows if isinstance(made, Spread) else np.stack([made] * 3)
    assert (rows[HIGH] == rows[LOW])[rows[0] == 0].all() and np.count_nonzero(rows[0]) == 3
    holds(body, a, s, radius=1e-3, computations=most)


@pytest.mark.parametrize("t", ["f32", "f64"])
def test_the_order_of_a_sum_is_open(t: str) -> None:
    body = (
        f"  a = {t}[20,900]{{1,0}} parameter(0)\n  b = {t}[900,10]{{1,0}} parameter(1)\n  ROOT c = {t}[20,10]{{1,0}} "
        f"dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    )
    a, b = normal(20, 900, t=t), normal(900, 10, t=t)
    (made,) = run(parsed(body), [a, b])
    assert isinstance(made, Spread)
    for order in (np.arange(900), np.arange(900)[::-1], RNG.permutation(900)):
        total = np.zeros((20, 10), DTYPES[t])
        for k in order:
            total += a[:, k, None] * b[k]
        assert ((made.rows[LOW] <= total) & (total <= made.rows[HIGH])).all()
    far = np.median((made.rows[HIGH] - made.rows[LOW]) / np.abs(made.rows[0]))
    assert far < 2000 * np.finfo(DTYPES[t]).eps


def test_alike_terms_may_all_be_rounded_one_way() -> None:
    a = np.full((1, 20000), 0.1, np.float32)
    body = (
        "  a = f32[1,20000]{1,0} parameter(0)\n  z = f32[] constant(0)\n  ROOT s = f32[1]{0} reduce(a, z), "
        "dimensions={1}, to_apply=add_f32"
    )
    (made,) = run(parsed(body), [a])
    total = np.add.accumulate(a, axis=1)[:, -1]
    assert isinstance(made, Spread) and made.rows[LOW] <= total <= made.rows[HIGH]


def test_whole_numbers_are_added_up_exactly() -> None:
    a = RNG.integers(-9, 9, (5, 400)).astype(np.float32)
    body = (
        "  a = f32[5,400]{1,0} parameter(0)\n  z = f32[] constant(0)\n  ROOT s = f32[5]{0} reduce(a, z), "
        "dimensions={1}, to_apply=add_f32"
    )
    (made,) = run(parsed(body), [a])
    assert isinstance(made, np.ndarray)
    (made,) = run(parsed(body), [a + np.float32(0.3)])
    assert isinstance(made, Spread)


def test_large_sums_are_made_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    body = (
        "  a = f32[20,90]{1,0} parameter(0)\n  b = f32[90,30]{1,0} parameter(1)\n  ROOT c = f32[20,30]{1,0} dot(a, b), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    a, b = normal(20, 90), normal(90, 30)
    (whole,) = run(parsed(body), [a, b])
    monkeypatch.setattr(sums, "_PIECE", 64)
    (pieces,) = run(parsed(body), [a, b])
    assert isinstance(whole, Spread) and isinstance(pieces, Spread)
    assert np.array_equal(whole.rows[: HIGH + 1], pieces.rows[: HIGH + 1])


@pytest.mark.parametrize("size", [1e-15, 1e15])
def test_sums_of_very_small_and_very_large_products_have_the_bounds_of_others(size: float) -> None:
    body = (
        "  a = f32[20,90]{1,0} parameter(0)\n  b = f32[90,30]{1,0} parameter(1)\n  ROOT c = f32[20,30]{1,0} dot(a, b), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    a, b = normal(20, 90), normal(90, 30)
    widths = []
    for scale in (1.0, size):
        (made,) = run(parsed(body), [a * np.float32(scale), b * np.float32(scale)])
        assert isinstance(made, Spread)
        widths.append(np.median((made.rows[HIGH] - made.rows[LOW]) / np.abs(made.rows[0])))
    assert 0.5 < widths[1] / widths[0] < 2


ADD_C64 = "add_c64 {\n  x = c64[] parameter(0)\n  y = c64[] parameter(1)\n  ROOT z = c64[] add(x, y)\n}\n\n"


@pytest.mark.parametrize(
    "body",
    [
        "  a = c64[6,400]{1,0} parameter(0)\n  b = c64[] parameter(1)\n  ROOT c = c64[6]{0} reduce(a, b), "
        "dimensions={1}, to_apply=add_c64",
        "  a = c64[6,400]{1,0} parameter(0)\n  b = c64[] parameter(1)\n  ROOT c = c64[6,1]{1,0} reduce-window(a, b), "
        "window={size=1x400}, to_apply=add_c64",
    ],
)
def test_the_parts_of_complex_sums_have_bounds_of_their_own(body: str) -> None:
    a, b = complex_normal(6, 400) * np.complex64(1 + 1000j), complex_normal(1)[0]
    module = parsed(body, ADD_C64)
    (made,) = run(module, [a, b])
    assert isinstance(made, Spread)
    low, high = made.rows[LOW].reshape(6), made.rows[HIGH].reshape(6)
    for order in (np.arange(400), np.arange(400)[::-1], RNG.permutation(400)):
        total = np.full(6, b)
        for k in order:
            total += a[:, k]
        assert ((low.real <= total.real) & (total.real <= high.real)).all()
        assert ((low.imag <= total.imag) & (total.imag <= high.imag)).all()
    value = made.rows[0].reshape(6)
    assert (high.real - low.real < 0.01 * np.abs(value)).all() and (high.imag - low.imag < 0.01 * np.abs(value)).all()


@pytest.mark.parametrize("is_known", [False, True])
def test_a_product_of_complex_numbers_has_an_open_order(is_known: bool) -> None:
    body = (
        "  a = c64[6,40]{1,0} parameter(0)\n  b = c64[] parameter(1)\n  s = c64[6,40]{1,0} sine(a)\n  "
        f"ROOT c = c64[6]{{0}} reduce({'a' if is_known else 's'}, b), dimensions={{1}}, to_apply=mul_c64"
    )
    a, b = complex_normal(6, 40), complex_normal(1)[0]
    (made,) = run(parsed(body, ADD_C64.replace("add", "mul").replace("mul(x", "multiply(x")), [a, b])
    assert isinstance(made, Spread)
    low, high, value = made.rows[LOW], made.rows[HIGH], made.rows[0]
    factors = a if is_known else np.sin(a)
    for order in (np.arange(40), np.arange(40)[::-1], RNG.permutation(40)):
        total = np.full(6, b)
        for k in order:
            total *= factors[:, k]
        assert ((low.real <= total.real) & (total.real <= high.real)).all()
        assert ((low.imag <= total.imag) & (total.imag <= high.imag)).all()
    assert (np.abs(high - low) < 1e-3 * np.abs(value)).all()


def test_a_complex_scatter_that_adds_has_an_open_order() -> None:
    body = scattered("c64")
    a, u = complex_normal(30), complex_normal(50)
    (made,) = run(parsed(body, ADD_C64), [a, u])
    assert isinstance(made, Spread)
    low, high = made.rows[LOW], made.rows[HIGH]
    assert np.array_equal(low[7:], a[7:]) and np.array_equal(high[7:], a[7:])
    total = a.copy()
    for k in range(49, -1, -1):
        total[k % 7] += u[k]
    assert (low.real <= total.real).all() and (total.real <= high.real).all()
    assert (low.imag <= total.imag).all() and (total.imag <= high.imag).all()
    assert (low[:7] != high[:7]).all() and (np.abs(high - low) < 1e-3).all()


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(
    "how",
    [
        "  ROOT c = f32[6,5]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "  ROOT c = f32[6,5]{1,0} convolution(a, b), dim_labels=bf_io->bf",
        "  d = (f32[6,5]{1,0}, u8[0]{0}) custom-call(a, b), dim_labels=bf_io->bf, "
        'custom_call_target="__cudnn$convForward"\n  ROOT c = f32[6,5]{1,0} get-tuple-element(d), index=0',
    ],
)
def test_operands_as_tensor_cores_take_them_are_within_bounds(how: str, cut: bool) -> None:
    text = "  a = f32[6,40]{1,0} parameter(0)\n  b = f32[40,5]{1,0} parameter(1)\n" + how
    module, a, b = parsed(text), np.abs(normal(6, 40)), np.abs(normal(40, 5))
    narrow = [((x.view(np.uint32) + (0 if cut else 1 << 12)) & np.uint32(0xFFFFE000)).view(np.float32) for x in (a, b)]
    (wanted,) = evaluate(module, [a, b])
    got = (narrow[0].astype(np.float64) @ narrow[1].astype(np.float64)).astype(np.float32)
    loose, tight = (enclosures(analyse(module, [a, b], precise=precise), [wanted])[0] for precise in (False, True))
    assert compare_output(0, wanted, got, loose).ok and not compare_output(0, wanted, got, tight).ok


def test_a_sum_that_overflows_on_the_way_may_be_anything() -> None:
    big = np.float32(3e38)
    module = parsed(
        "  a = f32[2,4]{1,0} parameter(0)\n  z = f32[] constant(0)\n  ROOT b = f32[2]{0} reduce(a, z), "
        "dimensions={1}, to_apply=sum",
        "sum {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT s = f32[] add(x, y)\n}\n\n",
    )
    (made,) = run(module, [np.array([[big, big, -big, -big], [1, 2, 3, 4.5]], np.float32)])
    assert within(made, np.array([np.nan, 10.5], np.float32)).tolist() == [True, True]
    assert within(made, np.array([np.inf, 11], np.float32)).tolist() == [True, False]


def test_a_product_that_overflows_on_the_way_may_be_anything_unless_an_operand_is_infinite() -> None:
    big, inf = np.float32(1e19), np.float32(np.inf)
    module = parsed(
        "  a = f32[2,4]{1,0} parameter(0)\n  b = f32[4,1]{1,0} parameter(1)\n  ROOT d = f32[2,1]{1,0} dot(a, b), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    a = np.array([[3 * big, 3 * big, -3 * big, -3 * big], [inf, -inf, 1, 1]], np.float32)
    (made,) = run(module, [a, np.full((4, 1), big, np.float32)])
    assert isinstance(made, Spread)
    assert within(made, np.array([[np.inf], [np.nan]], np.float32)).all()
    assert (made.rows[LOW] < made.rows[HIGH])[:, 0].tolist() == [True, False]


def test_a_product_with_a_factor_that_may_be_anything_may_be_anything() -> None:
    module = parsed(
        "  a = f32[2,3]{1,0} parameter(0)\n  o = f32[] constant(1)\n  ROOT b = f32[2]{0} reduce(a, o), "
        "dimensions={1}, to_apply=product",
        "product {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT s = f32[] multiply(x, y)\n}\n\n",
    )
    rows = np.repeat(np.array([[np.nan, 2, 3], [1, 2, 3]], np.float32)[None], ROWS, axis=0)
    rows[LOW, 0, 0], rows[HIGH, 0, 0] = -np.inf, np.inf
    (made,) = run(module, [Spread(rows)])
    for anything in (np.nan, 12, -np.inf):
        assert within(made, np.array([anything, 6], np.float32)).tolist() == [True, True]
    assert not within(made, np.array([1, 7], np.float32))[1]


def test_a_sum_with_a_term_that_is_not_finite_is_known() -> None:
    inf, nan = np.inf, np.nan
    a = np.array([[inf, 2, 3], [inf, -inf, 1], [nan, 1, 2], [-inf, 5, 6]], np.float32)
    wanted = np.array([inf, nan, nan, -inf], np.float32)
    total = parsed(
        "  a = f32[4,3]{1,0} parameter(0)\n  z = f32[] constant(0)\n  ROOT b = f32[4]{0} reduce(a, z), dimensions={1}, "
        "to_apply=sum",
        "sum {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT s = f32[] add(x, y)\n}\n\n",
    )
    product = parsed(
        "  a = f32[4,3]{1,0} parameter(0)\n  b = f32[3]{0} parameter(1)\n  ROOT d = f32[4]{0} dot(a, b), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    for module, given in ((total, [a]), (product, [a, np.array([1, 2, 3], np.float32)])):
        (made,) = run(module, list(given))
        assert within(made, wanted).all()
        assert not within(made, np.full(4, 77, np.float32)).any()
