import types
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_opt
from hlo_opt.evaluate import evaluate, module_inputs
from hlo_opt.ops.calls import strided
from hlo_opt.ops.calls.collectives import device_call
from hlo_opt.ops.calls.strided import MOST_CALLS, StridedProduct, product_of


def text_of(left: str, right: str, result: str, dims: str) -> str:
    return f"HloModule m\nENTRY e {{\n  a = {left} parameter(0)\n  b = {right} parameter(1)\n" + (
        f"  ROOT c = {result} dot(a, b), {dims}\n}}\n"
    )


def product(text: str) -> StridedProduct | None:
    call = device_call(hlo_opt.parse(text).entry.root)
    assert call is not None
    return product_of(call)


PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
HEADS = (
    "lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_contracting_dims={3}",
    "f32[%d,%d,7,7]{3,2,1,0}",
)


def heads(batch: int, count: int) -> str:
    """Queries by keys, whose heads lie between positions and features."""
    operand = f"f32[{batch},7,{count},5]{{3,2,1,0}}"
    return text_of(operand, operand, HEADS[1] % (batch, count), HEADS[0])


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (text_of("f32[6,4]{1,0}", "f32[4,5]{1,0}", "f32[6,5]{1,0}", PLAIN), 1),
        (text_of("f32[6,4]{0,1}", "f32[4,5]{0,1}", "f32[6,5]{0,1}", PLAIN), 1),
        (text_of("f32[1,4]{1,0}", "f32[4,5]{0,1}", "f32[1,5]{0,1}", PLAIN), 1),
        (text_of("bf16[6,4]{1,0}", "bf16[4,5]{1,0}", "f32[6,5]{0,1}", PLAIN), 1),
        (text_of("c64[6,4]{1,0}", "c64[4,5]{0,1}", "c64[6,5]{1,0}", PLAIN), 1),
        (text_of("f64[6,2,4]{2,1,0}", "f64[2,4,5]{2,1,0}", "f64[6,5]{0,1}", PLAIN.replace("1", "1,2", 1).replace(
            "rhs_contracting_dims={0}", "rhs_contracting_dims={0,1}")), 1),
        (text_of("f32[2,3,40]{2,1,0}", "f32[3,33]{1,0}", "f32[2,40,33]{2,1,0}", PLAIN), 1),
        (text_of("f32[33,3]{1,0}", "f32[2,3,40]{2,1,0}", "f32[33,2,40]{2,1,0}", PLAIN.replace("{0}", "{1}")), 1),
        (text_of("f32[2,3,40]{2,1,0}", "f32[3,33]{1,0}", "f32[2,40,33]{1,0,2}", PLAIN), 1),
        (text_of("f32[1,3]{1,0}", "f32[2,3,40]{2,1,0}", "f32[1,2,40]{2,1,0}", PLAIN.replace("{0}", "{1}")), 1),
        (heads(3, 4), 3),
        (heads(9, 4), 4),
    ],
)  # fmt: skip
def test_a_dot_is_a_few_calls_on_operands_as_they_lie(text: str, calls: int, fake: types.ModuleType) -> None:
    found = product(text)
    assert found is not None and len(found.starts) == calls
    module = hlo_opt.parse(text)
    inputs = module_inputs(module, 0)
    executable = hlo_opt.compile(module, "cupy")
    (got,), (want,) = executable(*inputs), evaluate(module, inputs)
    assert np.allclose(got, want, rtol=1e-5, atol=1e-5)
    assert len(fake.gemms) == calls and executable.report()["library"] == {"dot": 1}


def test_batches_apart_are_one_call_by_a_list_of_addresses(fake: types.ModuleType) -> None:
    """Also in a graph, as the list is there before it; and one by one where the step of a matrix is not aligned."""
    operand, result = "f32[2,8,3,4]{3,2,1,0}", "f32[2,3,8,8]{3,2,1,0}"
    text = text_of(operand, operand, result, HEADS[0]).replace("ROOT c", "c") + (f"  ROOT d = {result} add(c, c)\n}}\n")
    module = hlo_opt.parse(text.replace("\n}\n  ROOT", "\n  ROOT"))
    inputs = module_inputs(module, 0)
    executable = hlo_opt.compile(module, "cupy")
    for _ in range(4):
        assert np.allclose(executable(*inputs)[0], evaluate(module, inputs)[0], rtol=1e-5, atol=1e-5)
    assert len(fake.listed_gemms) == 4 and not fake.gemms and fake.captured
    odd = product(heads(3, 4))
    assert odd is not None and odd.calls == 3


def test_a_list_has_so_many_matrices_at_most() -> None:
    for batch, calls in ((strided.MOST_LISTED // 2, 1), (strided.MOST_LISTED // 2 + 1, 2)):
        operand, result = f"f32[{batch},8,2,4]{{3,2,1,0}}", f"f32[{batch},2,8,8]{{3,2,1,0}}"
        found = product(text_of(operand, operand, result, HEADS[0]))
        assert found is not None and found.calls == calls


@pytest.mark.parametrize(
    "text",
    [
        heads(MOST_CALLS + 1, MOST_CALLS + 2),
        text_of("f32[6,0]{1,0}", "f32[0,5]{1,0}", "f32[6,5]{1,0}", PLAIN),
        text_of("f32[2,3,4]{2,1,0}", "f32[3,5]{1,0}", "f32[2,4,5]{2,1,0}", PLAIN),
        text_of("s32[6,4]{1,0}", "s32[4,5]{1,0}", "s32[6,5]{1,0}", PLAIN),
    ],
)  # fmt: skip
def test_what_must_be_copied_first_or_is_not_for_cublas_is_no_such_call(text: str, fake: types.ModuleType) -> None:
    assert product(text) is None
    module = hlo_opt.parse(text)
    inputs = module_inputs(module, 0)
    executable = hlo_opt.compile(module, "cupy")
    for _ in range(3):
        assert np.allclose(executable(*inputs)[0], evaluate(module, inputs)[0], rtol=1e-5, atol=1e-5)
    assert not fake.captured


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_layout_and_order_of_dimensions(data: st.DataObject) -> None:
    """Against NumPy, over what a call reads and writes: every element by its place."""
    sizes = {name: data.draw(st.integers(1, 3), label=name) for name in "bcmopnk"}
    orders = [data.draw(st.permutations(names), label=names) for names in ("bcmok", "bcpnk")]
    order = [*(n for n in orders[0] if n in "bc"), *(n for n in orders[0] if n in "mo")]
    order += [n for n in orders[1] if n in "pn"]
    shapes = [[sizes[n] for n in names] for names in (*orders, order)]
    layouts = [data.draw(st.permutations(range(5)), label="layout"), data.draw(st.permutations(range(5)))]
    layouts.append(data.draw(st.permutations(range(len(order)))))
    batch = [[names.index(n) for n in order[:2]] for names in orders]
    sums = [[names.index("k")] for names in orders]
    named = [
        f"f64[{','.join(map(str, shape))}]{{{','.join(map(str, layout))}}}"
        for shape, layout in zip(shapes, layouts, strict=True)
    ]
    keys = ("lhs_batch_dims", "rhs_batch_dims", "lhs_contracting_dims", "rhs_contracting_dims")
    dims = ", ".join(f"{k}={{{','.join(map(str, d))}}}" for k, d in zip(keys, (*batch, *sums), strict=True))
    with mock.patch.object(strided, "LEAST_ROWS", 1):
        found = product(text_of(*named, dims))
    if found is None:
        return
    random = np.random.default_rng(0)
    values = [random.standard_normal(shape) for shape in shapes[:2]]
    flat = [v.transpose(list(reversed(layout))).reshape(-1) for v, layout in zip(values, layouts, strict=False)]
    want = np.einsum(f"{''.join(orders[0])},{''.join(orders[1])}->{''.join(order)}", *values)
    want = want.transpose(list(reversed(layouts[2]))).reshape(-1)
    got = np.full(want.size, np.nan)
    first, second = reversed(flat) if found.is_swapped else flat
    rows, columns, length = found.sizes
    for left, right, at in found.starts:
        for g in range(found.batch):
            for i in range(rows):
                for j in range(columns):
                    a = [left + g * found.left.batch + (t * found.left.step + i if found.left.is_turned else
                         i * found.left.step + t) for t in range(length)]  # fmt: skip
                    b = [right + g * found.right.batch + (j * found.right.step + t if found.right.is_turned else
                         t * found.right.step + j) for t in range(length)]  # fmt: skip
                    place = at + g * found.step_of_batch + i * found.step + j
                    assert np.isnan(got[place])
                    got[place] = first[a] @ second[b]
    assert np.allclose(got, want)
