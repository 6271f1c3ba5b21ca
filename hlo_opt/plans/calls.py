"""The price of instructions without a kernel: a library call by the unit that runs it; anything else, such as a
collective, by the bytes that it moves on its own device.

Libraries are assumed to be efficient: the constants are of large calls of cuBLAS, cuDNN, cuFFT, cuSOLVER and CUB.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from hlo_opt.analysis.memory.traffic import distinct_bytes
from hlo_opt.analysis.properties import is_boundary_fusion
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.analysis.targets.rates import products_per_cycle
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ops.calls.call import TF32, call_of
from hlo_opt.ops.calls.products import multiplies_tf32
from hlo_opt.ops.calls.strided import copied_bytes, product_of
from hlo_opt.ops.custom_calls.table import routine
from hlo_opt.ops.custom_calls.targets import find_custom_call
from hlo_opt.ops.sets import fused
from hlo_opt.ops.shapes import flops_of
from hlo_opt.ops.spec import OpKind, find
from hlo_opt.plans.convolutions import convolution_price
from hlo_opt.plans.price import LATENCY, TOGETHER, Price, clock, together

REACHED = 0.77
"""The fraction of peak that a large library product reaches: cuBLAS 791 of 1,070 TFLOPS of bf16, 425 of 535 of TF32 and
51 of 67 of f32, measured on an H200 (`scripts.bench.product_times`)."""
STEP_BYTES, LONGEST, START = 1024, 1024, 2
"""Bytes of a row of an operand for each step of a block that waits for memory; elements of the longest row that one
block goes along; and further steps of 32-bit types: fitted to 15 products of three types on an H200."""
OVERLAP = 1.5
"""The exponent of the norm that combines the parts of a product: blocks are few, and while they read their first tiles
or write their results no other block multiplies. Fitted to 61 products on an H200, which are 11 % off in the median
(`scripts/bench/results/gpu_products.txt`)."""
OF_A_BLOCK = 64 * 64 * 256
"""The least number of multiplications for a block: a smaller call leaves multiprocessors idle."""
DIGIT = 8
"""Bits of a key per pass of a radix sort (CUB's onesweep)."""
RADIX = 2**12
"""Elements of an FFT that a block transforms in shared memory, in one pass over the data (cuFFT)."""
PANEL = 32
"""Rows of a matrix that are factored, or solved for, between two updates of the remaining matrix."""


@dataclass(frozen=True)
class _Call:
    """The work of a call.

    read, written  bytes
    products       multiply-adds of type `type_name`
    tensor_cores   whether tensor cores may compute these
    steps          steps that depend on each other
    launches       consecutive launches
    start          microseconds before the first products, and after the last, that nothing else hides
    calls          calls of the library, one after another, each with an equal part of the products
    """

    read: float
    written: float
    products: float = 0.0
    type_name: str = "f32"
    tensor_cores: bool = False
    steps: float = 2.0
    launches: float = 1.0
    start: float = 0.0
    calls: int = 1


def price_of_call(instruction: Instruction, target: DeviceTarget) -> Price:
    """The price of an instruction without a kernel."""
    hero = _hero(instruction)
    read, written = _operands(instruction), float(sum(leaf.byte_size for leaf in _leaves(instruction.shape)))
    convolved = convolution_price(hero, read, written, target)
    if convolved is not None:
        return convolved
    call = _by_opcode(hero)
    if hero is not instruction:
        call = replace(call, read=read, written=written)
    least = call.read + call.written
    cycles = clock(target) * target.core_count
    rate = products_per_cycle(target, call.type_name, tensor_cores=call.tensor_cores) * REACHED * cycles
    busy = min(1.0, max(call.products / call.calls / OF_A_BLOCK, 1.0) / target.core_count)
    parts = (
        least / (target.copied_per_second / 1e6),
        0.0,
        call.products / (rate * busy),
        0.0,
        call.steps * LATENCY,
    )
    launch = call.launches * target.kernel_launch_us
    us = together(parts, OVERLAP if call.start else TOGETHER) + launch + call.start
    return Price(us, *parts, launch, call.read, call.written, least)


def _hero(instruction: Instruction) -> Instruction:
    """The product or convolution of a fusion that a library computes; other instructions themselves."""
    body = fused(instruction)
    if body is None or not is_boundary_fusion(instruction):
        return instruction
    return max(body.instructions, key=flops_of)


def _by_opcode(instruction: Instruction) -> _Call:
    spec, opcode = find(instruction.opcode), instruction.opcode
    if opcode == "custom-call":
        return _custom(instruction)
    if spec is not None and spec.kind is OpKind.CONTRACTION:
        return _product(instruction)
    rule = _RULES.get(opcode)
    return _moved(instruction) if rule is None else rule(instruction)


def _custom(instruction: Instruction) -> _Call:
    target = instruction.word("custom_call_target")
    spec = find_custom_call(target)
    factored = routine(target)
    if factored is not None:
        return _factored(instruction, *_ROUTINES.get(factored, (2.0, 1.0)))
    if spec is not None and spec.flops is not None:
        return _product(instruction)
    if "sort" in target:
        return _sort(instruction)
    return _moved(instruction)


def _operands(instruction: Instruction) -> float:
    """Bytes of the operands, each once."""
    return float(sum(o.shape.byte_size for o in dict.fromkeys(instruction.operands)))


def _moved(instruction: Instruction) -> _Call:
    """A call that computes next to nothing: it reads each operand and writes its result once."""
    moved, written = distinct_bytes(instruction), float(instruction.shape.byte_size)
    written = min(written, moved)
    return _Call(moved - written, written)


def _product(instruction: Instruction) -> _Call:
    """A matrix product, in the operands' type if the library has it; else they are converted first."""
    read, written = _operands(instruction), float(instruction.shape.byte_size)
    operand_type = instruction.operands[0].shape.type
    products = flops_of(instruction) / 2
    call = call_of(instruction) if instruction.opcode == "dot" else None
    if call is not None and call.function == "dot_call":  # no library has the types
        accumulator = str(call.arguments[2])
        wide = "f64" if accumulator == "float64" else "f32"
        elements = sum(o.shape.element_count for o in instruction.operands[:2])
        converted = elements * (8 if wide == "f64" else 4)
        return _Call(read + converted, written + converted, products, wide, launches=3.0)
    calls, copies, lists = 1, 0, 0
    if call is not None and products:
        strided = product_of(call)
        if strided is None:
            copied = copied_bytes(call)
            copies, moved = len(copied), float(sum(copied))
            read, written = read + moved, written + moved
        else:
            calls, lists = strided.calls, int(strided.is_listed)
    type_name = TF32 if multiplies_tf32(instruction) else operand_type.name
    length = products / max(1, instruction.shape.element_count if instruction.shape.is_array else 1)
    steps = min(length, LONGEST) * operand_type.bytes / STEP_BYTES + (START if operand_type.bytes > 2 else 0)
    start = (calls * (2 + steps) + lists) * LATENCY  # addresses from a list are waited for, too
    return _Call(
        read,
        written,
        products,
        type_name,
        tensor_cores=True,
        steps=0.0,
        launches=calls + copies,
        start=start,
        calls=calls,
    )


def _sort(instruction: Instruction) -> _Call:
    """A radix sort: keys and values are read and written for each digit of the key, after a pass that counts the
    keys."""
    key = instruction.operands[0].shape
    passes = math.ceil(key.type.bits / DIGIT)
    values = _leaves(instruction.shape)
    moved = float(sum(leaf.byte_size for leaf in values))
    return _Call(key.byte_size + passes * moved, passes * moved, steps=2.0 * passes, launches=passes + 1.0)


def _transform(instruction: Instruction) -> _Call:
    """An FFT: one pass over the data for each power of `RADIX`. A complex element and level takes four operations, as
    many as two multiply-adds."""
    length = math.prod(instruction.ints("fft_length"))
    passes = max(1, math.ceil(math.log2(max(2, length)) / math.log2(RADIX)))
    read, written = _operands(instruction), float(instruction.shape.byte_size)
    between = (passes - 1) * max(read, written)
    wide = "f64" if instruction.operands[0].shape.type.name in ("f64", "c128") else "f32"
    products = 4 * flops_of(instruction) / 2
    return _Call(read + between, written + between, products, wide, steps=2.0 * passes, launches=float(passes))


def _factored(instruction: Instruction, share: float, passes: float) -> _Call:
    """A factorization: `share` * n^3 multiplications for each matrix, in `passes` passes over its panels."""
    matrix = instruction.operands[0].shape
    rows, columns = ([1, 1, *matrix.dimensions])[-2:]
    read, written = _operands(instruction), float(sum(leaf.byte_size for leaf in _leaves(instruction.shape)))
    panels = math.ceil(min(rows, columns) / PANEL) * passes
    products = share * matrix.element_count * min(rows, columns)
    return _Call(read, written, products, matrix.type.name, steps=2.0 * panels * math.log2(2 * PANEL), launches=panels)


def _solved(instruction: Instruction) -> _Call:
    matrix = instruction.operands[0].shape
    panels = math.ceil(matrix.dimensions[-1] / PANEL)
    read, written = _operands(instruction), float(instruction.shape.byte_size)
    return _Call(read, written, flops_of(instruction) / 2, matrix.type.name, steps=2.0 * panels, launches=float(panels))


def _leaves(shape: Shape) -> list[Shape]:
    """The arrays of a shape: itself, or those in a tuple; no tokens."""
    return [leaf for leaf in shape.leaves() if leaf.is_array]


_RULES: dict[str, Callable[[Instruction], _Call]] = {
    "sort": _sort,
    "topk": _sort,
    "fft": _transform,
    "cholesky": lambda i: _factored(i, 1 / 6, 1.0),
    "triangular-solve": _solved,
}
_ROUTINES = {
    "potrf": (1 / 6, 1.0),
    "cusolver_cholesky": (1 / 6, 1.0),
    "getrf": (1 / 3, 1.0),
    "geqrf": (2 / 3, 1.0),
    "orgqr": (2 / 3, 1.0),
    "ormqr": (1.0, 1.0),
    "trsm": (0.5, 1.0),
    "syrk": (0.5, 1.0),
    "sytrd": (2 / 3, float(PANEL)),
    "syevd": (4.5, float(PANEL)),
    "syevj": (4.5, float(PANEL)),
    "gesdd": (11.0, float(PANEL)),
    "gesvdj": (11.0, float(PANEL)),
    "geev": (12.5, float(PANEL)),
    "gehrd": (5 / 3, float(PANEL)),
}
"""Multiplications of each routine as a share of n^3, and passes over the panels: one per row where each row depends on
the one before (Golub and Van Loan, "Matrix Computations")."""
