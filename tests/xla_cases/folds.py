"""Cases of the opcodes that fold with a computation: reduce, reduce-window, scan, scatter, select-and-scatter; and of
sort and topk."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hlo_opt.ir import ELEMENT_TYPES
from xla_cases.case import Case, makes, operation
from xla_cases.values import Array, cast, plain, product, shaped, specials


def reducer(opcode: str, name: str) -> dict[str, str]:
    """`f(x, y) = x op y` on scalars."""
    text = f"{opcode}.{name} {{\n  x = {name}[] parameter(0)\n  y = {name}[] parameter(1)\n  ROOT z = {name}[] {opcode}(x, y)\n}}"
    return {f"{opcode}.{name}": text}


def mixed(name: str) -> dict[str, str]:
    """A combiner of its own: neither associative nor one that NumPy has."""
    body = f"  d = {name}[] add(y, y)\n  ROOT z = {name}[] subtract(x, d)\n"
    if name == "pred":
        body = "  d = pred[] not(y)\n  ROOT z = pred[] and(x, d)\n"
    return {f"mixed.{name}": f"mixed.{name} {{\n  x = {name}[] parameter(0)\n  y = {name}[] parameter(1)\n{body}}}"}


def combiners(name: str) -> list[tuple[str, Array, dict[str, str]]]:
    """(name, identity, computation) of the combiners that the type has."""
    element_type = ELEMENT_TYPES[name]
    found: list[tuple[str, object]] = [("add", 0), ("multiply", 1)]
    if not element_type.is_complex:
        low, high = (False, True) if name == "pred" else limits(name)
        found += [("maximum", low), ("minimum", high)]
    if name == "pred" or element_type.is_integer:
        ones = True if name == "pred" else -1 if element_type.kind == "signed" else (1 << element_type.bits) - 1
        found += [("and", ones), ("or", 0), ("xor", 0)]
    return [(op, cast(identity, name), reducer(op, name)) for op, identity in found]


def limits(name: str) -> tuple[object, object]:
    """The least and the greatest value of a type, infinities where it has them."""
    import ml_dtypes

    element_type = ELEMENT_TYPES[name]
    if element_type.is_integer:
        found = ml_dtypes.iinfo(element_type.dtype)
        return int(found.min), int(found.max)
    info = ml_dtypes.finfo(element_type.dtype)
    if np.isinf(cast(np.inf, name).astype(np.float64)):
        return -np.inf, np.inf
    return float(info.min), float(info.max)


def columns(name: str, op: str) -> Array:
    """[3, n]: all triples of special values for folds that order; for sums and products those whose partial results do
    not depend on the order."""
    few = specials(name)
    if op in ("add", "multiply") and not ELEMENT_TYPES[name].is_integer and name != "pred":
        some = [0.0, -0.0, 1.0, -2.0, 0.5, 3.0, np.inf, -np.inf, np.nan]
        few = cast(some[:6] if op == "multiply" and ELEMENT_TYPES[name].is_complex else some, name)
    few = few[:: max(1, len(few) // 12)]
    return np.stack(product(few, few, few))


@makes("reduce")
def reduce(opcode: str, name: str) -> Iterator[Case]:
    for op, identity, computation in combiners(name):
        x = columns(name, op)
        attributes = f"dimensions={{0}}, to_apply={op}.{name}"
        yield operation(
            opcode, name, [x, identity], f"{name}[{x.shape[1]}]", attributes, label=op, computations=computation
        )
        y = (
            plain(name, 3, 4, 5)
            if op != "multiply" or ELEMENT_TYPES[name].is_integer
            else cast(np.tile([1, 2, 1, 0.5, 1], 12).reshape(3, 4, 5), name)
        )
        attributes = f"dimensions={{0,2}}, to_apply={op}.{name}"
        yield operation(
            opcode,
            name,
            [y, identity],
            f"{name}[4]",
            attributes,
            label=f"{op} of two dimensions",
            computations=computation,
        )
    x = plain(name, 3, 40)
    attributes = f"dimensions={{0}}, to_apply=mixed.{name}"
    yield operation(
        opcode, name, [x, x[0, 0]], f"{name}[40]", attributes, label="a combiner of its own", computations=mixed(name)
    )


@makes("reduce-window")
def reduce_window(opcode: str, name: str) -> Iterator[Case]:
    x = plain(name, 6, 5)
    windows = [
        ("size=2x2 pad=0_1x1_0 lhs_dilate=1x2 rhs_dilate=2x1", "5,9"),
        ("size=2x3 stride=2x1", "3,3"),
        ("size=3x1 pad=1_1x0_0", "6,5"),
    ]
    for op, identity, computation in combiners(name):
        for window, sizes in windows if op == "add" else windows[:1]:
            attributes = f"window={{{window}}}, to_apply={op}.{name}"
            yield operation(
                opcode, name, [x, identity], f"{name}[{sizes}]", attributes, label=f"{op} {window}",
                computations=computation
            )  # fmt: skip


@makes("scan")
def scan(opcode: str, name: str) -> Iterator[Case]:
    op = "or" if name == "pred" else "add"
    body = f"scan.{name} {{\n  x = {name}[4] parameter(0)\n  c = {name}[4] parameter(1)\n  s = {name}[4] {op}(x, c)\n"
    body += f"  ROOT t = ({name}[4], {name}[4]) tuple(s, s)\n}}"
    x, start = plain(name, 7, 4), plain(name, 4, seed=8)
    for reverse in ("false", "true"):
        attributes = f"dimensions={{0}}, num_carries=1, is_reverse={reverse}, to_apply=scan.{name}"
        yield operation(
            opcode, name, [x, start], (f"{name}[7,4]", f"{name}[4]"), attributes, label=f"is_reverse={reverse}",
            computations={f"scan.{name}": body}
        )  # fmt: skip


SCATTER = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"


@makes("scatter")
def scatter(opcode: str, name: str) -> Iterator[Case]:
    """Repeated indices, and windows outside, which are skipped."""
    x, updates = plain(name, 5, 3), plain(name, 7, 3, seed=8)
    indices = np.array([[0], [4], [0], [5], [-1], [2], [0]])
    second = {f"second.{name}": f"second.{name} {{\n  x = {name}[] parameter(0)\n  ROOT y = {name}[] parameter(1)\n}}"}
    rows = [*((op, computation) for op, _, computation in combiners(name)), ("second", second), ("mixed", mixed(name))]
    for op, computation in rows:
        if op == "multiply" and not ELEMENT_TYPES[name].is_integer and name != "pred":
            x = cast(np.tile([1, 2, 0.5], 5).reshape(5, 3), name)
            updates = cast(np.tile([2, 1, 0.5, 1], 6)[:21].reshape(7, 3), name)
        attributes = f"{SCATTER}, to_apply={op}.{name}"
        yield operation(
            opcode, name, [x, indices.astype(np.int32), updates], f"{name}[5,3]", attributes, label=op,
            computations=computation
        )  # fmt: skip
    for index in ("s8", "u8", "s16", "u16", "u32", "s64", "u64") if name == "f32" else ():
        attributes = f"{SCATTER}, to_apply=second.{name}"
        chosen = indices[1:6].astype(ELEMENT_TYPES[index].dtype)
        yield operation(
            opcode, name, [x, chosen, updates[:5]], f"{name}[5,3]", attributes, label=f"{index} indices",
            computations=second
        )  # fmt: skip


@makes("select-and-scatter")
def select_and_scatter(opcode: str, name: str) -> Iterator[Case]:
    x, source = plain(name, 6, 6), plain(name, 3, 3, seed=8)
    for direction in ("GE",) if not ELEMENT_TYPES[name].is_complex else ("NE",):
        select = f"pick.{direction}.{name} {{\n  x = {name}[] parameter(0)\n  y = {name}[] parameter(1)\n"
        select += f"  ROOT z = pred[] compare(x, y), direction={direction}\n}}"
        op = "or" if name == "pred" else "add"
        called = {f"pick.{direction}.{name}": select, **reducer(op, name)}
        zero = cast(0, name)
        for window, inputs in (
            ("size=2x2 stride=2x2", (x, source)),
            ("size=3x3 stride=2x2 pad=0_1x1_0", (x, source)),
        ):
            attributes = f"window={{{window}}}, select=pick.{direction}.{name}, scatter={op}.{name}"
            yield operation(
                opcode, name, [*inputs, zero], f"{name}[6,6]", attributes, label=f"{direction} {window}",
                computations=called
            )  # fmt: skip


def before(name: str, direction: str, order: str = "") -> dict[str, str]:
    key = f"{direction.lower()}{order[:5].lower()}.{name}"
    text = f"{key} {{\n  x = {name}[] parameter(0)\n  y = {name}[] parameter(1)\n"
    text += f"  ROOT z = pred[] compare(x, y), direction={direction}{', type=' + order if order else ''}\n}}"
    return {key: text}


@makes("sort")
def sort(opcode: str, name: str) -> Iterator[Case]:
    """Without NaN, whose place a comparison leaves open; by the total order with all."""
    values = shaped(name, 3, 31)
    known = (
        np.where(np.isnan(values.astype(np.float64)), cast(1, name), values) if ELEMENT_TYPES[name].is_float else values
    )
    for direction in () if ELEMENT_TYPES[name].is_complex else ("LT", "GT"):
        called = before(name, direction)
        attributes = f"dimensions={{1}}, is_stable=true, to_apply={next(iter(called))}"
        yield operation(opcode, name, [known], f"{name}[3,31]", attributes, label=direction, computations=called)
    if ELEMENT_TYPES[name].is_float:
        called = before(name, "LT", "TOTALORDER")
        attributes = f"dimensions={{0}}, is_stable=true, to_apply={next(iter(called))}"
        yield operation(opcode, name, [values], f"{name}[3,31]", attributes, label="TOTALORDER", computations=called)
    keys = np.random.default_rng(3).integers(0, 5, (4, 20)).astype(np.int32)
    text = f"by_key.{name} {{\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  x = {name}[] parameter(2)\n  y = {name}[] parameter(3)\n"
    text += "  ROOT z = pred[] compare(a, b), direction=LT\n}"
    attributes = f"dimensions={{1}}, is_stable=true, to_apply=by_key.{name}"
    yield operation(
        opcode, name, [keys, shaped(name, 4, 20)], ("s32[4,20]", f"{name}[4,20]"), attributes, label="by keys",
        computations={f"by_key.{name}": text}
    )  # fmt: skip


@makes("topk")
def topk(opcode: str, name: str) -> Iterator[Case]:
    x = shaped(name, 3, 31)
    for largest in ("true", "false"):
        yield operation(opcode, name, [x], (f"{name}[3,5]", "s32[3,5]"), f"k=5, largest={largest}")
