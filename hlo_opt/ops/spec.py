"""OpSpec: everything the program knows about one opcode, declared once.

The table is filled by the family files of this package (`elementwise`, `movement`, `reduction`, `contraction`, `indexing`, `control`, `random`,
`linalg`, `collective`, `custom_calls`) and by plugins. A missing face is None and becomes a coded reason or a hole in the coverage table.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol

from hlo_opt.diag import UsageError
from hlo_opt.ir import ELEMENT_TYPES, Computation, ElementType, IndexMap, Instruction, Module, Shape
from hlo_opt.ops.faces import UNKNOWN, Spreading, lazy
from hlo_opt.ops.lowering import Lowering
from hlo_opt.ops.omitted import Omitted, anew
from hlo_opt.ops.strides import Strides
from hlo_opt.ops.wishes import RULES, Rule

if TYPE_CHECKING:
    from hlo_opt.ops.values import Value


class Device(Protocol):
    """One of `replicas` x `partitions` devices that run the same program."""

    @property
    def replica(self) -> int: ...
    @property
    def partition(self) -> int: ...
    @property
    def replicas(self) -> int: ...
    @property
    def partitions(self) -> int: ...

    @property
    def number(self) -> int:
        """replica * partitions + partition"""

    def exchange(
        self, instruction: Instruction, values: Sequence[Value], group: Sequence[int]
    ) -> list[Sequence[Value]]:
        """The operands that the devices with these numbers bring to a collective, after all of them have brought theirs."""


@dataclass(frozen=True, slots=True)
class OnlyDevice:
    """The device of a run of one, where collectives move nothing: groups may name more devices, but there are none."""

    replica: int = 0
    partition: int = 0
    replicas: int = 1
    partitions: int = 1

    @property
    def number(self) -> int:
        return 0

    def exchange(
        self, instruction: Instruction, values: Sequence[Value], group: Sequence[int]
    ) -> list[Sequence[Value]]:
        return [values]


Fields = ParamSpec("Fields")
Calling = tuple[Computation, Sequence[Shape | None], Shape | None]
LibraryCall = tuple[str, tuple[Any, ...], str]
"""(function of `hlo_opt.library`, arguments after the shapes, what does the work, for reports)"""


class OpKind(enum.Enum):
    """What an operation does with indices; the family files are named after these."""

    ELEMENTWISE = "elementwise"
    MOVEMENT = "movement"
    REDUCTION = "reduction"
    CONTRACTION = "contraction"
    INDEXING = "indexing"
    CONTROL = "control"
    RANDOM = "random"
    LINALG = "linalg"
    COLLECTIVE = "collective"
    OPAQUE = "opaque"


EVERYTHING = ("pred", "signed", "unsigned", "float", "complex")
"""The kinds of all element types that have values."""


class ShapeError(Exception):
    """What an `infer` face raises: the operands or attributes do not fit. The verifier adds the place."""


class Loop(Protocol):
    """A loop that runs, as its face tells the interpreter about it."""

    def begin(self) -> None:
        """An iteration starts. Raises EvaluationError where a run may take no more."""

    def end(self) -> None:
        """An iteration is done."""


class Evaluator(Protocol):
    """What an `evaluate` face may ask of the interpreter."""

    @property
    def device(self) -> Device:
        """The device that it plays."""

    def call(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        """The value of a computation's root for these arguments."""

    def loop(self, instruction: Instruction) -> AbstractContextManager[Loop]:
        """To be entered while a loop runs."""

    def map_elements(self, computation: Computation, arguments: Sequence[Any], *, wide: bool = False) -> list[Any]:
        """A computation over scalars applied to arrays of one shape, element by element: one array per leaf of its root. `wide`: as the reducer of a wide fold (`hlo_opt.ops.reduction.reducers`)."""


@dataclass(frozen=True)
class Arity:
    """How many operands: from `least` to `most` (None: any number)."""

    least: int
    most: int | None

    def accepts(self, count: int) -> bool:
        return self.least <= count and (self.most is None or count <= self.most)

    def __str__(self) -> str:
        if self.most == self.least:
            return str(self.least)
        return f"at least {self.least}" if self.most is None else f"{self.least} to {self.most}"


def attributes(names: str) -> dict[str, bool]:
    """Attributes of an entry by their names, with blanks between; those that are required end with `!`."""
    return {name.removesuffix("!"): name.endswith("!") for name in names.split()}


@dataclass(frozen=True)
class OpSpec:
    """One opcode.

    attributes  names that the opcode takes, in the order in which XLA prints them, True when required; the shared ones (metadata, sharding, ...) are in
                `SHARED_ATTRIBUTES`
    accepts     kinds or names of the element types that it works on: those of its operands (of the choices of a select, the data of a gather), or of
                its result where it has no such operand; empty for one that handles no arrays
    infer       result shape from operands and attributes (layouts not set); raises ShapeError. Gets the instruction (with its declared shape, for
                ops such as iota or convert whose shape is not implied)
    evaluate    the NumPy meaning, exact in dtype: (evaluator, instruction, operand values) -> value; tuples are Python tuples
    index       (instruction, operand number) -> IndexMap, or None where the operand index depends on data in a way no map expresses, as in an entry without it
    cuda        how a kernel computes one element: see `hlo_opt.ops.lowering`
    expand      a module-independent computation of simpler ops that means the same: gives index, cost and CUDA to ops without their own.
                One parameter per operand, the root is the result; it is in no module. Ask `has_expansion` before
    expands     which instructions `expand` covers; None: all
    flops       floating-point operations of the whole instruction; None: none
    tolerance   ULP by which backends may differ from the reference, in the result's type; 0 is bit-exact
    on_gpu      ULP more, of f32 for narrower floats, for kernels on a GPU that are to be as accurate as XLA:GPU's (`hlo_opt.codegen.options`); None: none
    is_planned  a plan of its own computes it in a kernel (`hlo_opt.plans`): it has no text per element
    call        what computes it on a GPU that has no kernel of ours for it; None: nothing does (`ops.calls`)
    routine     what NumPy computes its meaning with, for reports; empty: several functions
    own_kernel  a library operation that a kernel of ours computes, by itself, where a plan covers it
    hides_state its value depends on a state that a module does not show: `evaluate` says so and refuses
    omitted     (instruction, inferred shape) -> the shape where text leaves it out, with its layout; None: operands and attributes do not imply it
    given       the shape that the operands give, whatever the text says
    calls       the computations that it calls, with the shapes that each one is given (None: any) and the one that it must give (None: any);
                raises ShapeError where there are not as many operands as computations. None: nothing is known of them
    plain       the NumPy function of two operands of one type that does the same as `evaluate`, where there is one (`elementwise.functions`)
    scratch     bytes that `evaluate` takes besides operands and result (`scratch`); None: none
    ways        the ways that a run can go there (`ops.ways`)
    view        for a result that NumPy makes without copying, from the strides of its first operand: see `hlo_opt.ops.strides`
    rows        moves all rows of spreads at once (`movement.meaning`); None: one after another
    spread      how bounds of an elementwise operation go through it
    is_slow     its NumPy meaning takes some six times as long for an element as an addition
    hands_on    its `evaluate` hands values on as they are, or gives what every correct backend has the same
    is_identity  its value is its first operand, in the same memory
    moves_data  its result holds elements of its operands as they are, moved by fixed places or by indices
    reads_part  of its first operand it reads as many elements as it gives
    first_index  the first operand that is an index, all behind it too; None: no operand is, or their place varies
    aligned     whether an element of the result reads the elements at its own index only, of an operand by number or of all of them; None: as the
                kind says
    reuses      whether an element of an operand may be read for several of the result; None: unless it is aligned
    samples     what it likes its operands to hold, where inputs are drawn: the rule of `hlo_opt.ops.wishes`, if none is given; None: any numbers
    """

    opcode: str
    kind: OpKind
    arity: Arity
    attributes: Mapping[str, bool]
    accepts: tuple[str, ...] = EVERYTHING
    infer: Callable[[Instruction], Shape] | None = None
    evaluate: Callable[[Evaluator, Instruction, list[Any]], Value] | None = None
    index: Callable[[Instruction, int], IndexMap | None] | None = None
    cuda: Lowering | None = None
    expand: Callable[[Module, Instruction], Computation] | None = None
    expands: Callable[[Instruction], bool] | None = None
    flops: Callable[[Instruction], float] | None = None
    tolerance: Callable[[ElementType], float] | None = None
    on_gpu: Callable[[ElementType], float] | None = None
    samples: Rule | None = None
    plain: Callable[[Instruction], Callable[..., Any] | None] | None = None
    scratch: Callable[[Instruction, int], int] | None = None
    ways: lazy | None = None
    view: Callable[[Instruction, Strides], tuple[bool, Strides]] | None = None
    rows: Callable[[Instruction, list[Any]], Any] | None = None
    spread: Spreading = UNKNOWN
    omitted: Omitted | None = anew
    given: Callable[[Instruction], Shape] | None = None
    calls: Callable[[Instruction], Iterable[Calling]] | None = None
    commutative: bool = False
    side_effects: bool = False
    expensive: Callable[[Instruction], bool] | None = None
    is_free: bool = False
    is_library: bool = False
    hides_state: bool = False
    call: Callable[[Instruction], LibraryCall | None] | None = None
    routine: str = ""
    is_planned: bool = False
    own_kernel: bool = False
    is_slow: bool = False
    hands_on: bool = False
    is_identity: bool = False
    reads_part: bool = False
    first_index: int | None = None
    aligned: Callable[[Instruction, int | None], bool] | None = None
    reuses: Callable[[Instruction, int], bool] | None = None
    moves_data: bool = False

    @property
    def runs_as(self) -> str:
        """What computes an operation that nothing is fused with, in the words of reasons."""
        return "a kernel of its own or a library call" if self.own_kernel else "a library call"

    @property
    def element_types(self) -> tuple[ElementType, ...]:
        """The element types that it works on, in the order of `ELEMENT_TYPES`."""
        return tuple(t for t in ELEMENT_TYPES.values() if t.name in self.accepts or t.kind in self.accepts)

    def has_expansion(self, instruction: Instruction) -> bool:
        """Whether `expand` has a computation for this instruction."""
        return self.expand is not None and (self.expands is None or self.expands(instruction))

    def ulp(self, element_type: ElementType, *, precise: bool = True) -> float:
        """The tolerance in ULP of the type that a result is computed in, f32 for narrower floats; `precise`: on backends that divide and take square roots as IEEE 754 says."""
        computed = ELEMENT_TYPES["f32"] if element_type.is_narrow_float else element_type
        found = 0.0 if self.tolerance is None else self.tolerance(computed)
        return found if precise or self.on_gpu is None else found + self.on_gpu(element_type)

    def is_expensive(self, instruction: Instruction) -> bool:
        """Whether computing it twice costs too much (xla/service/instruction_fusion.cc, IsExpensive). True when nothing is declared."""
        return True if self.expensive is None else self.expensive(instruction)


SHARED_ATTRIBUTES = frozenset(
    attributes(
        "backend_config control-predecessors frontend_attributes metadata origin parameter_replication sharding statistics"
    )
)
"""Attributes that every opcode may carry (grammar notes: xla/hlo/parser/hlo_parser.cc)."""

_TABLE: dict[str, OpSpec] = {}


def register(spec: OpSpec, *, replace: bool = False) -> OpSpec:
    """Add an opcode to the table. Raises ValueError when it is declared already."""
    if spec.opcode in _TABLE and not replace:
        raise ValueError(f"opcode {spec.opcode} is declared twice")
    if spec.samples is None and spec.opcode in RULES:
        spec = dataclasses.replace(spec, samples=RULES[spec.opcode])
    _TABLE[spec.opcode] = spec
    return spec


def _declaring(make: Callable[Fields, OpSpec]) -> Callable[Fields, OpSpec]:
    def declare(*values: Fields.args, **fields: Fields.kwargs) -> OpSpec:
        return register(make(*values, **fields))

    return declare


declare = _declaring(OpSpec)
"""Add an opcode to the table, given the fields of its `OpSpec`."""


def unregister(opcode: str) -> None:
    """Take an opcode out of the table: for tests and plugins that clean up after themselves."""
    del _TABLE[opcode]


def find(opcode: str) -> OpSpec | None:
    """The spec of an opcode, or None for one that the table does not know."""
    return _TABLE.get(opcode)


def spec_of(instruction: Instruction) -> OpSpec:
    """The spec of an instruction's opcode. Raises UsageError for an unknown one."""
    spec = _TABLE.get(instruction.opcode)
    if spec is None:
        raise UsageError(f"{instruction.name}: the op table has no {instruction.opcode!r}", code="HLO301")
    return spec


def table() -> list[OpSpec]:
    """All specs, by opcode."""
    return [_TABLE[name] for name in sorted(_TABLE)]
