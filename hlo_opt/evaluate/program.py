"""A computation compiled for evaluation: a flat list of steps over numbered slots, without dead instructions.

The module does not define the value or effect of some operations: random draws, host transfers, unknown custom calls.
Evaluating one is an error, unless the caller passes `effects`, which gets each occurrence and returns its value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hlo_opt.diag import EvaluationError
from hlo_opt.ir import Computation, Instruction
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.control.meaning import zeros
from hlo_opt.ops.custom_calls.targets import is_known, says_side_effect
from hlo_opt.ops.dynamic import Evaluate, on_used_elements, takes_dynamic
from hlo_opt.ops.faces import lazy
from hlo_opt.ops.sets import APPLIED, started, tuple_elements, tuple_index
from hlo_opt.ops.spec import Evaluator, ShapeError
from hlo_opt.ops.values import Value, parts


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One execution of an instruction that `effects` answers.

    operands    the operands' values, in order: arrays, tuples, and empty tuples for tokens
    callers     the instructions in whose computations it runs, outermost first; empty in the entry
    iterations  completed iterations of the enclosing loops, outermost first
    device      the simulated device, from 0
    """

    instruction: Instruction
    operands: Sequence[Any]
    callers: tuple[Instruction, ...]
    iterations: tuple[int, ...]
    device: int


Effects = Callable[[Occurrence], Any]
"""Answers an occurrence with an array of the instruction's shape and type, a tuple, or () for a token."""


def is_answered(instruction: Instruction) -> bool:
    """Whether `effects` answers the instruction: an op with side effects that the table cannot evaluate, a custom call
    with side effects, or one with an unknown target."""
    if instruction.opcode == "custom-call":
        return says_side_effect(instruction) or not is_known(instruction)
    spec = find(instruction.opcode)
    if spec is None:
        inner = started(instruction)
        return inner is not None and is_answered(inner)
    return spec.side_effects and (spec.evaluate is None or spec.hides_state)


class Acting:
    """Finds the instructions that must run although nothing reads them: those that `effects` answers, and calls of
    computations with such instructions."""

    def __init__(self) -> None:
        self._known: dict[Computation, bool] = {}

    def computation(self, computation: Computation) -> bool:
        """Whether the computation has such an instruction, in any depth of calls."""
        acts = self._known.get(computation)
        if acts is None:
            acts = self._known[computation] = any(self.instruction(i) for i in computation.instructions)
        return acts

    def instruction(self, instruction: Instruction) -> bool:
        return is_answered(instruction) or any(self.computation(c) for c in instruction.called())


def direct(instruction: Instruction) -> Evaluate | None:
    """The NumPy function that replaces an instruction's evaluator without any wrapping; None where there is none.

    Evaluators widen, round and guard for every type. The commonest operations on f32, f64, plain integers and pred need
    none of that, and loops over scalars spend most of their time in them.
    """
    operands = instruction.operands
    if len(operands) != 2 or not all(o.shape.is_array for o in operands):
        return None
    if operands[0].shape.type.name != operands[1].shape.type.name:
        return None
    spec = find(instruction.opcode)
    chosen = None if spec is None or spec.plain is None else spec.plain(instruction)
    if chosen is None:
        return None

    def evaluate(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
        return chosen(values[0], values[1])

    return evaluate


@dataclass(slots=True)
class CompiledInstruction:
    """One instruction: its evaluator, the slots of its operands, its own slot, and the slots that are dead afterwards.

    `is_taken` marks a get-tuple-element that reads a tuple's operand directly; its operand is that value.
    """

    instruction: Instruction
    evaluate: Evaluate
    operands: tuple[int, ...]
    slot: int
    frees: tuple[int, ...] = ()
    is_taken: bool = False


@dataclass(slots=True)
class Program:
    """A compiled computation. `parameters` has the slot of each parameter by number, -1 for an unused one."""

    slots: int
    parameters: tuple[int, ...]
    steps: list[CompiledInstruction] = field(default_factory=list)
    root: int = 0


def error(
    instruction: Instruction, message: str, *, hint: str | None = None, code: str | None = None
) -> EvaluationError:
    """An EvaluationError that names the instruction and, where the source is known, its position."""
    module = None if instruction.parent is None else instruction.parent.module
    span = None if module is None else module.span(instruction)
    return EvaluationError(f"{instruction.opcode} {instruction.name}: {message}", span=span, hint=hint, code=code)


FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, ShapeError, TypeError, ValueError)
"""Exceptions of an evaluator for operands or attributes that do not fit, as in modules that nobody verified."""


def located(instruction: Instruction, fault: BaseException) -> EvaluationError:
    """The error for an exception of an instruction's evaluator, one of `FAULTS`."""
    if isinstance(fault, MemoryError):
        return error(instruction, "there is not enough memory")
    if isinstance(fault, KeyError):
        return error(instruction, f"attribute {fault} is missing")
    return error(instruction, str(fault) or type(fault).__name__)


def placed(fault: EvaluationError, instruction: Instruction) -> EvaluationError:
    """The error, with the instruction's position where it has none."""
    module = None if instruction.parent is None else instruction.parent.module
    if fault.span is None and module is not None:
        fault.span = module.span(instruction)
        fault.filename = None if fault.span is None else fault.span.source.filename
    return fault


def compile_computation(computation: Computation, *, whole: bool = False, acting: Acting | None = None) -> Program:
    """Compile a computation in its own order, without dead instructions.

    `acting` keeps dead instructions with effects. `whole` keeps every tuple instead of forwarding elements, for
    watchers of all values.
    """
    sources, forwarded = _sources(computation, whole, acting)
    order = [i for i in computation.instructions if i in sources]
    slot = {instruction: number for number, instruction in enumerate(order)}
    last: dict[int, Instruction] = {}
    for instruction in order:
        for operand in sources[instruction]:
            last[slot[operand]] = instruction
    last.pop(slot[computation.root], None)
    frees: dict[Instruction, list[int]] = {}
    for number, instruction in last.items():
        frees.setdefault(instruction, []).append(number)
    numbers = max((p.parameter_number or 0 for p in computation.parameters), default=-1) + 1
    parameters = [-1] * numbers
    program = Program(len(order), ())
    for instruction in order:
        if instruction.parameter_number is not None:
            parameters[instruction.parameter_number] = slot[instruction]
            continue
        program.steps.append(
            CompiledInstruction(
                instruction,
                _same if instruction in forwarded else face(instruction),
                tuple(slot[o] for o in sources[instruction]),
                slot[instruction],
                tuple(frees.get(instruction, ())),
                instruction in forwarded,
            )
        )
    program.parameters = tuple(parameters)
    program.root = slot[computation.root]
    return program


def face(instruction: Instruction) -> Evaluate:
    """The evaluator of an instruction. For an operation without one, it raises EvaluationError when called."""
    if instruction.opcode == "copy" and instruction.shape.is_tuple:
        return _same
    spec = find(instruction.opcode)
    if spec is None:
        return _asynchronous(instruction)
    if spec.evaluate is None:
        return _refuse
    if own_bytes(instruction) > LARGEST:
        return _too_large
    evaluate = spec.evaluate.resolve() if isinstance(spec.evaluate, lazy) else spec.evaluate
    if takes_dynamic(instruction):
        return on_used_elements(evaluate, instruction)
    return direct(instruction) or evaluate


LARGEST = 1 << 36
"""Bytes (64 GiB) above which no value is allocated: some systems overcommit and kill the process on use."""


def own_bytes(instruction: Instruction) -> int:
    """Bytes of the instruction's value in NumPy, 0 where it is a view."""
    spec = find(instruction.opcode)
    if spec is not None and spec.view is not None:
        return 0  # nearly always a view
    if tuple_elements(instruction) is not None or tuple_index(instruction) is not None:
        return 0
    return sum(leaf.byte_size for leaf in instruction.shape.leaves() if leaf.is_array)


def _too_large(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    raise error(instruction, f"the value takes {own_bytes(instruction)} bytes", code="HLO402")


def _asynchronous(instruction: Instruction) -> Evaluate:
    """Evaluator of the sugared `X-start`, `X-update` and `X-done`, which run the operation synchronously."""
    part = instruction.opcode.rpartition("-")[2]
    if part == "update":
        return _same
    if part == "done":
        return _second
    inner, elements = started(instruction), instruction.shape.elements
    if inner is None or elements is None:
        return _refuse
    run = face(inner)

    def start(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
        return tuple(values), run(evaluator, inner, values), *(zeros(shape) for shape in elements[2:])

    return start


def _refuse(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    known = find(instruction.opcode) is not None
    raise error(instruction, "this operation cannot be evaluated" if known else "the op table has no such opcode")


def _sources(
    computation: Computation, whole: bool, acting: Acting | None
) -> tuple[dict[Instruction, Sequence[Instruction]], set[Instruction]]:
    """The operands that each live (or acting) instruction reads, and the elements forwarded from what went into their
    tuple."""
    sources: dict[Instruction, Sequence[Instruction]] = {}
    forwarded: set[Instruction] = set()
    todo = [computation.root]
    if acting is not None:
        todo += [i for i in computation.instructions if acting.instruction(i)]
    while todo:
        instruction = todo.pop()
        if instruction in sources:
            continue
        sources[instruction] = instruction.operands
        if tuple_index(instruction) is not None and not whole:
            origin, is_value = _origin(instruction)
            sources[instruction] = [origin]
            if is_value:
                forwarded.add(instruction)
        todo.extend(sources[instruction])
    return sources, forwarded


def _origin(element: Instruction) -> tuple[Instruction, bool]:
    """The origin of an element: (its value, True), or (the tuple that it is read from, False)."""
    source, index = element.operands[0], element.value("index", -1)
    elements = tuple_elements(source)
    if elements is not None and isinstance(index, int) and 0 <= index < len(elements):
        return elements[index], True
    return source, False


_SAME = frozenset({"broadcast", "reshape", "copy", "transpose", "reverse"})
"""Operations that return their operand unchanged on a scalar."""


def compile_elementwise(computation: Computation) -> Program | None:
    """Compile a computation that works on scalars only, so that it can be applied to whole arrays; None for others."""
    program = compile_computation(computation)
    for step in program.steps:
        instruction = step.instruction
        if not all(leaf.is_array and not leaf.rank for leaf in instruction.shape.leaves()):
            return None
        spec = find(instruction.opcode)
        if instruction.opcode in _SAME:
            step.evaluate = _same
        elif instruction.opcode in APPLIED or instruction.opcode == "map":
            step.evaluate = _mapped
        elif spec is None or (
            spec.kind is not OpKind.ELEMENTWISE
            and instruction.literal is None
            and tuple_elements(instruction) is None
            and tuple_index(instruction) is None
        ):
            return None
    if any(not leaf.is_array or leaf.rank for p in computation.parameters for leaf in p.shape.leaves()):
        return None
    return program


def _same(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    return values[0]


def _second(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    return parts(values[0])[1]


def _mapped(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    results = evaluator.map_elements(next(instruction.called()), values)
    return tuple(results) if instruction.shape.is_tuple else results[0]
