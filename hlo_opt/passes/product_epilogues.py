"""The bias and the activation after a product become part of its call: cuBLASLt adds and applies them to what it has
just computed, where a kernel reads and writes the product once more.

The call is the one that XLA:GPU makes of them (xla/service/gpu/transforms/gemm_rewriter.cc, FuseVectorBiasAdd and
FuseGeluActivation). Functions are compared by what they add and multiply, in any order; a narrow float between two
operations of f32 changes nothing here, as cuBLASLt rounds once, at the end.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from hlo_opt.analysis.graph.inlining import is_plain_fusion
from hlo_opt.ir import Attribute, Computation, Instruction, Module, edit
from hlo_opt.ir.attribute import Quoted, Raw
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.calls.call import TF32, call_of, described
from hlo_opt.ops.calls.products import LT_MATMUL
from hlo_opt.ops.calls.strided import StridedProduct, product_of
from hlo_opt.ops.sets import tuple_elements, tuple_index
from hlo_opt.passes.base import PassContext
from hlo_opt.passes.dce import BY_NUMBER, DeadCodeElimination
from hlo_opt.passes.expansion import Expansion

_Form = tuple[Any, ...]
"""What an operation computes: its kind, and the forms or numbers that go in, sorted where their order does not
matter."""
_VALUE: _Form = ("value",)
"""The product with its bias."""
_PRODUCT: _Form = ("product",)
_BIAS: _Form = ("bias",)


@dataclass(frozen=True)
class ProductEpilogues(Expansion):
    """Make a product, and what a kernel after it computes of it alone, one call of cuBLASLt: a bias that is added, an
    activation."""

    name: ClassVar[str] = "product-epilogues"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"
    simplifies: ClassVar[bool] = True

    def pays(self, product: StridedProduct) -> bool:
        """Whether the library takes less time for a product with its epilogue than for both apart: the product is
        written and read once less."""
        return True

    def concerns(self, module: Module) -> bool:
        every = (i for c in executed_computations(module) for i in c.instructions)
        return any(is_plain_fusion(i) and any(map(_may_be_finished, i.operands)) for i in every)

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        if context.options.target.in_lanes:
            return  # a processor's routine has no epilogues
        computation.index_users()
        for kernel in [i for i in computation.instructions if is_plain_fusion(i)]:
            for output, values in _outputs(kernel):
                finished = _finished(kernel, output) if values else None
                if finished is not None and self.pays(finished.together):
                    yield partial(_replace, values, finished)

    def run(self, module: Module, context: PassContext) -> bool:
        changed = super().run(module, context)
        if changed:
            DeadCodeElimination().run(module, context)
        return changed


@dataclass(frozen=True)
class MeasuredEpilogues(ProductEpilogues):
    """The same where a GPU's library is there to be asked.

    asked  whether a product with its epilogue takes less time than both apart
    """

    asked: Callable[[StridedProduct], bool] = bool

    def pays(self, product: StridedProduct) -> bool:
        return self.asked(product)


def _may_be_finished(operand: Instruction) -> bool:
    """Whether an operand of a kernel is a product that nothing else reads."""
    return (
        operand.opcode == "dot"
        and "algorithm" not in operand.attributes
        and len(operand.users) == 1
        and not operand.is_root
        and not operand.control_predecessors
    )


def _outputs(kernel: Instruction) -> list[tuple[Instruction, list[Instruction]]]:
    """What a kernel computes, with the instructions that have its value; of several outputs, those that it need not
    compute: nothing but the kernel has its body, all outputs differ, and no attribute numbers them."""
    body = kernel.called_by("calls")
    results = tuple_elements(body.root)
    if results is None:
        return [(body.root, [kernel])]
    assert body.module is not None
    is_shared = sum(c.called.count(body) for c in body.module.computations) > 1 or len(set(results)) < len(results)
    if is_shared or kernel.is_root or body.root.users or not BY_NUMBER.isdisjoint(kernel.attributes):
        return []
    readers = {user: tuple_index(user) for user in kernel.users}
    if None in readers.values() or any(user.control_predecessors for user in readers):
        return []
    return [(result, [u for u, at in readers.items() if at == n]) for n, result in enumerate(results)]


@dataclass(frozen=True)
class _Finished:
    """A product with what follows it, and the same as the library has it."""

    product: Instruction
    epilogue: str
    bias: Instruction | None
    together: StridedProduct


def _finished(kernel: Instruction, output: Instruction) -> _Finished | None:
    """The product that an output of a kernel follows, what is done to it, and the bias; None where cuBLASLt does not
    have it, or other outputs follow the product, too."""
    body = kernel.called_by("calls")
    cone = _cone(output)
    read = [i for i in cone if i.parameter_number is not None]
    operands = {i: kernel.operands[i.parameter_number or 0] for i in read}
    products = [i for i in read if _may_be_finished(operands[i]) and operands[i].shape == output.shape]
    biases = [operands[i] for i in read if i not in products]
    if len(products) != 1 or len(biases) > 1 or kernel.operands.count(operands[products[0]]) > 1:
        return None
    forms: dict[Instruction, _Form | None] = {}
    after = {products[0]}
    for i in body.instructions:
        if i in cone:
            forms[i] = _form(i, forms, products[0], has_bias=bool(biases))
            after.update([i] if not after.isdisjoint(i.operands) else [])
    if any(user not in after and user is not body.root for i in after for user in i.users):
        return None
    product = operands[products[0]]
    name = _NAMES.get(_snapped(forms[output] or (), _tolerance(product)))
    plain = call_of(product)
    if name is None or not (name or biases) or plain is None or plain.function != "gemm_call":
        return None
    if name == "GELU" and TF32 not in plain.arguments and product.shape.type.name == "f32":
        return None  # the library's tanh may be as rough as products of narrow operands, but not as those of f32
    epilogue = "_".join(filter(None, ("BIAS" if biases else "", name)))
    shapes = (*plain.shapes[:2], *(described(bias.shape) for bias in biases), plain.shapes[2])
    arguments = (*plain.arguments[:2], TF32 if TF32 in plain.arguments else "", epilogue)
    if any(bias.shape.type != product.shape.type for bias in biases):
        return None
    together = product_of(replace(plain, shapes=shapes, arguments=arguments))
    return None if together is None else _Finished(product, epilogue, next(iter(biases), None), together)


def _cone(output: Instruction) -> set[Instruction]:
    """An operation of a body, and all that goes into it."""
    cone, todo = {output}, [output]
    while todo:
        new = [o for o in todo.pop().operands if o not in cone]
        cone.update(new)
        todo += new
    return cone


def _form(
    i: Instruction, forms: dict[Instruction, _Form | None], product: Instruction, *, has_bias: bool
) -> _Form | None:
    """The form of an operation of a kernel's body; None for one that no epilogue has."""
    if i.parameter_number is not None:
        return (_PRODUCT if has_bias else _VALUE) if i is product else _BIAS
    if i.opcode == "constant":
        is_number = i.shape.rank == 0 and i.shape.type.is_float and i.literal is not None
        return ("number", float(np.asarray(i.literal.value))) if is_number and i.literal is not None else None
    into = [forms[o] for o in i.operands]
    if None in into or not i.shape.is_array:
        return None
    terms = [form for form in into if form is not None]
    match i.opcode:
        case "broadcast":
            return terms[0] if terms[0][0] == "number" or _spreads_last(i, terms[0]) else None
        case "convert":
            return terms[0] if i.shape.type.is_float and i.operands[0].shape.type.is_float else None
        case "tanh":
            return ("tanh", terms[0])
        case "add" | "multiply" | "maximum":
            if i.opcode == "add" and sorted(terms) == [_BIAS, _PRODUCT]:
                return _VALUE
            return _gathered(i.opcode, terms)
    return None


def _spreads_last(i: Instruction, form: _Form) -> bool:
    """Whether a bias is spread along all but the last dimensions."""
    source, rank = i.operands[0].shape.rank, i.shape.rank
    return form == _BIAS and i.ints("dimensions") == tuple(range(rank - source, rank))


def _gathered(opcode: str, terms: list[_Form]) -> _Form:
    """Terms as one sum, product or maximum, with the numbers among the factors of a product as one."""
    every = [t for term in terms for t in (term[1:] if term[0] == opcode else (term,))]
    numbers = [t[1] for t in every if t[0] == "number"]
    if opcode == "multiply" and len(numbers) > 1:
        every = [("number", math.prod(numbers)), *(t for t in every if t[0] != "number")]
    return (opcode, *sorted(every))


def _gelu() -> _Form:
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    cube = _gathered("multiply", [_VALUE, _VALUE, _VALUE, ("number", 0.044715)])
    inner = _gathered("multiply", [("number", math.sqrt(2 / math.pi)), _gathered("add", [_VALUE, cube])])
    outer = _gathered("add", [("number", 1.0), ("tanh", inner)])
    return _gathered("multiply", [("number", 0.5), _VALUE, outer])


_NAMES = {_VALUE: "", _gathered("maximum", [_VALUE, ("number", 0.0)]): "RELU", _gelu(): "GELU"}
"""What cuBLASLt does after a product, as XLA:GPU names it."""
_KEPT = ("operand_precision", "metadata")
"""Attributes of a product that its call has, too."""
_NUMBERS = (0.5, 1.0, 0.044715, math.sqrt(2 / math.pi))


def _tolerance(product: Instruction) -> float:
    """How far numbers of a function may be off, relatively: by their rounding."""
    return 2.0**-7 if product.shape.type.is_narrow_float else 1e-6


def _snapped(form: _Form, tolerance: float) -> _Form:
    """The form with each number that is a rounded one of `_NUMBERS` replaced by that."""
    if form[:1] == ("number",):
        near = (n for n in _NUMBERS if math.isclose(form[1], n, rel_tol=tolerance))
        return ("number", next(near, form[1]))
    return tuple(_snapped(part, tolerance) if isinstance(part, tuple) else part for part in form)


def _replace(values: list[Instruction], finished: _Finished) -> None:
    """Make the call in the place of the product, and give it to those that read the values."""
    product, bias = finished.product, finished.bias
    names = ("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch")
    config = {
        "alpha_real": 1,
        "alpha_imag": 0,
        "beta": 0,
        "dot_dimension_numbers": {
            f"{n}_dimensions": [str(d) for d in product.ints(f"{n}_dims")] for n in names if product.ints(f"{n}_dims")
        },
        "epilogue": finished.epilogue,
    }
    attributes = {
        "custom_call_target": Attribute.of(Quoted(LT_MATMUL)),
        **{name: kept for name in _KEPT if (kept := product.attributes.get(name)) is not None},
        "backend_config": Attribute.of(Raw(json.dumps({"gemm_backend_config": config}, separators=(",", ":")))),
    }
    operands = [*product.operands, *([] if bias is None else [bias])]
    call = edit.create(product.computation, product.name, "custom-call", product.shape, operands, attributes)
    for value in values:
        edit.replace_all_uses(value, call)
        edit.remove(value)
    edit.sort(call.computation)
