"""Bytes and operations per instruction: as XLA's device-independent cost analysis counts them, and on a GPU.

`bytes_accessed` is XLA's count: `add(p, p)` reads p twice. `distinct_bytes`, which people see and our prices use, has
each array once, as a kernel reads it from memory. A custom call counts its operands and results, which XLA leaves
unknown. Operations per element are measured clock cycles, used as if they were flops; table columns are element
type and compute capability, and unlisted entries cost 3. Sources: xla/service/hlo_cost_analysis.cc,
xla/service/gpu/model/hlo_op_profiles_data.h.
"""

from __future__ import annotations

from hlo_opt.analysis.memory.forms import only_renames
from hlo_opt.analysis.properties import is_boundary_fusion
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ir.walk import CONTROL_FLOW, executed_computations
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.accesses import PARTIAL, RULES, SPREADS, Accesses, whole
from hlo_opt.ops.emission import HEROES, XlaEmitter
from hlo_opt.ops.sets import (
    COPIES,
    SLICES,
    body_of,
    fused,
    is_elementwise,
    is_free,
    launches,
    looped,
    results_of,
    tuple_elements,
)
from hlo_opt.ops.shapes import called_flops

DEFAULT = 3
FALLBACK_CAPABILITY = 86

_COLUMNS = (
    "90 f32", "86 f32", "100 f32", "80 f32", "90 f64", "86 f64", "90 f16", "90 bf16", "90 s32", "90 u32", "90 s64",
    "90 c64",
)  # fmt: skip
_ROWS = """
add 7 - 7 - 15 97 7 - - - - 7
atan2 431 486 373 - 930 3747 451 - - - - 6462
cbrt 178 867 180 - 586 6339 201 - - - - -
cosine 978 662 1002 - 558 1717 997 - - - - 2415
divide 19 - 23 - 526 2016 43 - 297 122 685 498
erf - - 161 - - - - - - - - -
exponential 79 86 82 - 376 1652 102 - - - - 641
exponential-minus-one 190 381 196 - 712 1900 217 - - - - 2055
log 166 244 165 259 815 608 182 - - - - 756
log-plus-one 229 262 200 - 1259 2073 245 - - - - 633
logistic - 176 176 - - 2412 - - - - - -
multiply 3 - 7 - 15 97 7 - 3 3 11 79
power 510 925 463 1221 2205 5511 526 - 71 71 253 5532
rsqrt 75 75 74 - 277 698 95 - - - - 3148
sine 958 662 990 - 554 1789 993 - - - - 2324
sqrt 75 75 74 - 332 986 95 - - - - 4344
subtract 7 - 7 - 15 97 7 - - - - 7
tanh 467 190 137 504 431 1609 502 - - - - 2379
"""


def _read() -> dict[tuple[int, str, str], int]:
    table: dict[tuple[int, str, str], int] = {}
    for line in _ROWS.strip().splitlines():
        opcode, *cells = line.split()
        for column, cell in zip(_COLUMNS, cells, strict=True):
            if cell != "-":
                capability, element_type = column.split()
                table[int(capability), element_type, opcode] = int(cell)
    return table


_TABLE = _read()
_KNOWN = (80, 86, 90, 100)
_SAME_AS = {103: 100}


def per_element(instruction: Instruction, capability: int) -> int:
    """Operations per element of an elementwise result, by its type. A device without a profile counts as sm_86, as in
    XLA."""
    capability = _SAME_AS.get(capability, capability)
    if capability not in _KNOWN:
        capability = FALLBACK_CAPABILITY
    shape = instruction.shape
    return _TABLE.get((capability, shape.type.name if shape.is_array else "", instruction.opcode), DEFAULT)


def accesses(instruction: Instruction, capability: int) -> Accesses:
    """The accesses of an instruction other than fusions and control flow; zero for one that launches nothing."""
    opcode, count = instruction.opcode, len(instruction.operands)
    if is_free(opcode) or only_renames(instruction):
        return Accesses(0.0, (1.0,) * count, (0.0,) * count, 0.0)
    rule = RULES.get(opcode)
    if rule is not None:
        return rule(instruction, lambda called: reducer_flops(called, capability))
    flops = 0.0
    if is_elementwise(instruction) and opcode not in COPIES:
        flops = instruction.shape.element_count * per_element(instruction, capability)
    return whole(instruction, flops)


def reducer_flops(computation: Computation, capability: int) -> float:
    """Operations of one call of a reducer."""
    specs = [(i, find(i.opcode)) for i in computation.instructions]
    return sum(accesses(i, capability).flops for i, spec in specs if spec is None or spec.kind is not OpKind.CONTROL)


POINTER = 8
"""Bytes per element of a tuple's index table in XLA's cost analysis (HandleTuple)."""


def bytes_accessed(instruction: Instruction) -> float:
    """Bytes read and written by one execution, as XLA counts them: an operand once for each place where it stands."""
    return _bytes(instruction, each_once=False)


def distinct_bytes(instruction: Instruction) -> float:
    """Bytes read and written by one execution, an array once however many operands of the instruction it is, and
    however many instructions of a fusion read it."""
    return _bytes(instruction, each_once=True)


def _bytes(instruction: Instruction, *, each_once: bool) -> float:
    body = fused(instruction)
    if body is not None and not is_boundary_fusion(instruction):
        return _of_fusion(body, each_once=each_once)
    if is_free(instruction.opcode) or only_renames(instruction):
        return 0.0
    spec, rule = find(instruction.opcode), PARTIAL.get(instruction.opcode)
    has_index = spec is not None and spec.first_index is not None
    if rule is None and not has_index:
        operands = dict.fromkeys(instruction.operands) if each_once else instruction.operands
        return float(sum([o.shape.byte_size for o in operands]) + instruction.shape.byte_size)
    access = whole(instruction) if rule is None else rule(instruction, called_flops)
    if spec is None or spec.first_index is None:
        return access.bytes
    return sum(access.read[: spec.first_index + 1]) + access.written  # XLA counts only the first start index


def _of_fusion(body: Computation, *, each_once: bool) -> float:
    """Bytes of a fusion (FusionParameterReadBytes).

    A parameter counts its slices, fully per broadcast or reshape of it, and fully once for all other reads; with
    `each_once` no more than fully for all of them together. A root that updates in place counts its update.
    """
    total = 0.0
    for parameter in body.parameters:
        size = parameter.shape.byte_size
        read, is_whole = 0, False
        for user in parameter.users:
            first = user.operands[0] is parameter
            if first and user.opcode in SLICES:
                read += user.shape.byte_size
            elif user.opcode in SPREADS:
                read += size
            elif not (first and HEROES.get(user.opcode) is XlaEmitter.IN_PLACE):
                is_whole = True
        read += size if is_whole else 0
        total += min(read, size) if each_once else read
    return total + sum(map(_written_root, results_of(body)))


def _written_root(root: Instruction) -> float:
    """Bytes that are written for a result; of an operation with several, only those that the kernel returns."""
    while is_free(root.opcode) and root.operands and root.operands[0].shape.is_array:
        root = root.operands[0]
    return written_by_root(root)


def written_by_root(root: Instruction) -> float:
    """Bytes that a fusion root writes: only the update, if it updates in place."""
    written = root.operands[1] if HEROES.get(root.opcode) is XlaEmitter.IN_PLACE else root
    return float(written.shape.byte_size)


def module_bytes(module: Module, *, each_once: bool = True) -> float:
    """Bytes of one run of the entry: loop bodies count once, conditionals their most expensive branch, computations per
    call. Of each instruction `distinct_bytes`, or with `each_once=False` XLA's `bytes_accessed`."""
    totals: dict[Computation, float] = {}
    executed = set(executed_computations(module))
    for computation in module.computations:
        if computation not in executed:
            continue
        total = 0.0
        for instruction in computation.instructions:
            parts = tuple_elements(instruction)
            if parts is not None:
                total += POINTER * len(parts)
            elif instruction.opcode in CONTROL_FLOW:
                runs_all = looped(instruction) is not None or body_of(instruction) is not None
                called = [totals[c] for c in instruction.called()]
                total += sum(called) if runs_all else max(called, default=0.0)
            elif launches(instruction):
                total += _bytes(instruction, each_once=each_once)
        totals[computation] = total
    return totals[module.entry]
