"""OpSpec: everything the program knows about one opcode, declared once.

The family files of this package (`elementwise`, `movement`, `reduction`, `contraction`, `indexing`, `control`,
`random`, `linalg`, `collective`, `custom_calls`) and plugins fill the table. A missing face is None, and becomes a
coded reason or a gap in the coverage table.
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
from hlo_opt.ops.wishes import RULES, WishRule

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
        """The operands that each of these devices brings to a collective. Blocks until all have."""


@dataclass(frozen=True, slots=True)
class OnlyDevice:
    """The device of a run on one device, where collectives move nothing: groups may name others, but none exist."""

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
"""(function of `hlo_opt.library`, arguments after the shapes, the routine that does the work, for reports)"""


class OpKind(enum.Enum):
    """How an operation treats indices; the family files are named after these."""

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
    """Raised by `infer` faces for operands or attributes that do not fit. The verifier adds the position."""


class Loop(Protocol):
    """A loop in progress, as its evaluator reports it to the interpreter."""

    def begin(self) -> None:
        """An iteration starts. Raises EvaluationError where the limit on iterations is reached."""

    def end(self) -> None:
        """An iteration is complete."""


class Evaluator(Protocol):
    """What an `evaluate` face may use of the interpreter."""

    @property
    def device(self) -> Device:
        """The simulated device."""

    def call(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        """The value of a computation's root for these arguments."""

    def loop(self, instruction: Instruction) -> AbstractContextManager[Loop]:
        """The context of a running loop."""

    def map_elements(self, computation: Computation, arguments: Sequence[Any], *, wide: bool = False) -> list[Any]:
        """Apply a computation over scalars to arrays of one shape, elementwise: one array per leaf of its root.

        `wide`: accumulate in a wider type (`hlo_opt.ops.reduction.reducers`).
        """


@dataclass(frozen=True)
class Arity:
    """The number of operands: from `least` to `most` (None: unbounded)."""

    least: int
    most: int | None

    def accepts(self, count: int) -> bool:
        return self.least <= count and (self.most is None or count <= self.most)

    def __str__(self) -> str:
        if self.most == self.least:
            return str(self.least)
        return f"at least {self.least}" if self.most is None else f"{self.least} to {self.most}"

    @property
    def words(self) -> str:
        """The number with its noun: `1 operand`, `2 to 3 operands`."""
        last = self.least if self.most is None else self.most
        return f"{self} operand{'' if last == 1 else 's'}"


def attributes(names: str) -> dict[str, bool]:
    """The attributes of an entry from names separated by spaces; required ones end with `!`."""
    return {name.removesuffix("!"): name.endswith("!") for name in names.split()}


@dataclass(frozen=True)
class OpSpec:
    """One opcode. A face of None is missing.

    attributes  attribute names in XLA's print order, True when required; those of every opcode are in
                `SHARED_ATTRIBUTES`
    accepts     kinds or names of the element types of its operands (of the choices of a select, the data of a gather),
                or of its result where it has no such operand; empty for opcodes without arrays
    infer       result shape (without layouts) from operands and attributes; raises ShapeError. Gets the instruction
                with its declared shape, for ops such as iota or convert whose shape is not implied
    evaluate    the NumPy evaluator, exact in dtype: (evaluator, instruction, operand values) -> value; tuples are
                Python tuples
    index       (instruction, operand number) -> IndexMap, or None where no map expresses a data-dependent index
    cuda        how a kernel computes one element: see `hlo_opt.ops.lowering`
    expand      an equivalent computation of simpler ops outside any module, one parameter per operand; gives index,
                cost and CUDA to ops without their own. Ask `has_expansion` first
    expands     which instructions `expand` covers; None: all
    flops       floating-point operations of the whole instruction; None: 0
    tolerance   ULP of the result's type by which backends may differ from the reference; 0 is bit-exact
    on_gpu      additional ULP (of f32 for narrower floats) for GPU kernels with XLA:GPU's accuracy
                (`hlo_opt.codegen.options`); None: 0
    is_planned  a plan of its own kind computes it (`hlo_opt.plans`), so it has no text per element
    call        the library call for it on a GPU, where no kernel of ours covers it (`ops.calls`)
    routine     the NumPy function behind `evaluate`, for reports; "": several
    own_kernel  a library operation that a kernel of ours computes alone, where a plan covers it
    hides_state its value depends on a state outside the module; `evaluate` raises an error that says so
    omitted     (instruction, inferred shape) -> the shape with layout where the text omits it; None: not implied
    implied     the shape that the operands imply, which overrides the one in the text
    calls       called computations, each with its argument shapes (None: any) and result shape (None: any); raises
                ShapeError where operands and computations differ in number
    plain       the NumPy function of two operands of one type that equals `evaluate` (`elementwise.functions`)
    scratch     bytes that `evaluate` allocates besides operands and result (`scratch`); None: 0
    ways        the ways that a run can go there (`ops.ways`)
    view        whether NumPy's result is a view, from the strides of the first operand: see `hlo_opt.ops.strides`
    rows        moves all rows of spreads at once (`movement.meaning`); None: one by one
    spread      how value bounds propagate through an elementwise operation
    is_slow     its NumPy evaluator takes some six times as long per element as an addition
    hands_on    `evaluate` passes values on unchanged, or returns what every correct backend returns
    is_identity its value is its first operand, in the same memory
    moves_data  its result consists of operand elements, moved by fixed positions or by indices
    reads_part  it reads as many elements of its first operand as it returns
    first_index the first operand that is an index, as are all after it; None: no operand is, or positions vary
    aligned     whether a result element reads elements only at its own index, of one operand by number or of all; None:
                as its kind implies
    reuses      whether an operand element may be read for several result elements; None: unless it is aligned
    samples     what operands should hold when inputs are drawn; None: the rule of `hlo_opt.ops.wishes`, if any
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
    samples: WishRule | None = None
    plain: Callable[[Instruction], Callable[..., Any] | None] | None = None
    scratch: Callable[[Instruction, int], int] | None = None
    ways: lazy | None = None
    view: Callable[[Instruction, Strides], tuple[bool, Strides]] | None = None
    rows: Callable[[Instruction, list[Any]], Any] | None = None
    spread: Spreading = UNKNOWN
    omitted: Omitted | None = anew
    implied: Callable[[Instruction], Shape] | None = None
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
        """How an operation runs that is never fused, in the words of reasons."""
        return "a kernel of its own or a library call" if self.own_kernel else "a library call"

    @property
    def element_types(self) -> tuple[ElementType, ...]:
        """The element types that it works on, in the order of `ELEMENT_TYPES`."""
        return tuple(t for t in ELEMENT_TYPES.values() if t.name in self.accepts or t.kind in self.accepts)

    def has_expansion(self, instruction: Instruction) -> bool:
        """Whether `expand` covers this instruction."""
        return self.expand is not None and (self.expands is None or self.expands(instruction))

    def ulp(self, element_type: ElementType, *, precise: bool = True) -> float:
        """The tolerance in ULP of the computed type (f32 for narrower floats).

        `precise`: on backends with IEEE 754 division and square root.
        """
        computed = ELEMENT_TYPES["f32"] if element_type.is_narrow_float else element_type
        bound = 0.0 if self.tolerance is None else self.tolerance(computed)
        return bound if precise or self.on_gpu is None else bound + self.on_gpu(element_type)

    def is_expensive(self, instruction: Instruction) -> bool:
        """Whether computing it twice costs too much (xla/service/instruction_fusion.cc, IsExpensive). True when
        undeclared."""
        return True if self.expensive is None else self.expensive(instruction)


SHARED_ATTRIBUTES = frozenset(
    attributes(
        "backend_config control-predecessors frontend_attributes metadata origin parameter_replication "
        "sharding statistics"
    )
)
"""Attributes of every opcode (xla/hlo/parser/hlo_parser.cc)."""

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
    """Remove an opcode, for tests and for plugins that unregister themselves."""
    del _TABLE[opcode]


find: Callable[[str], OpSpec | None] = _TABLE.get
"""The spec of an opcode; None for an unknown one. Asked so often that a function around it costs a hundredth of
`fuse`."""


def spec_of(instruction: Instruction) -> OpSpec:
    """The spec of an instruction's opcode. Raises UsageError for an unknown one."""
    spec = _TABLE.get(instruction.opcode)
    if spec is None:
        raise UsageError(f"{instruction.name}: the op table has no {instruction.opcode!r}", code="HLO301")
    return spec


def table() -> list[OpSpec]:
    """All specs, sorted by opcode."""
    return [_TABLE[name] for name in sorted(_TABLE)]
