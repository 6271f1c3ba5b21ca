"""Module, Computation, Instruction: the graph. Read it freely; change it only through `hlo_opt.ir.edit`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, KeysView
from dataclasses import KW_ONLY, dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

from hlo_opt.ir.attribute import Attribute, AttributeValue, Called, Metadata
from hlo_opt.ir.facts import Fact
from hlo_opt.ir.literal import Literal
from hlo_opt.ir.shape import Shape

if TYPE_CHECKING:
    from hlo_opt.diag import Source, Span

V = TypeVar("V")

_NO_METADATA = Metadata()
_PARAMETER_NUMBER = attrgetter("parameter_number")


@dataclass(slots=True, eq=False, repr=False)
class Instruction:
    """One operation of a computation.

    `attributes` is in the order of the text; a value is an `Attribute`, or a `Called` where it names computations.
    `literal` is set for a constant, `parameter_number` for a parameter. `offset` is the instruction's position in the
    source text, -1 for an instruction that a pass created. Equality is identity.
    """

    name: str
    opcode: str
    shape: Shape
    operands: list[Instruction] = field(default_factory=list)
    attributes: dict[str, Attribute | Called] = field(default_factory=dict)
    _: KW_ONLY
    literal: Literal | None = None
    parameter_number: int | None = None
    offset: int = -1
    end: int = -1
    control_predecessors: list[Instruction] = field(default_factory=list, init=False)
    parent: Computation | None = field(default=None, init=False)
    _users: dict[Instruction, int] | None = field(default=None, init=False)
    _places: dict[Instruction, list[int]] | None = field(default=None, init=False)
    """The positions of each operand, built and updated by `edit` for an instruction with very many operands."""

    @property
    def computation(self) -> Computation:
        """The computation that holds this instruction. Raises ValueError for a removed instruction."""
        if self.parent is None:
            raise ValueError(f"{self.name} is in no computation")
        return self.parent

    @property
    def users(self) -> KeysView[Instruction]:
        """The instructions with this one as an operand, each once, in the order in which they were added."""
        if self._users is None:
            self.computation.index_users()
        assert self._users is not None
        return self._users.keys()

    @property
    def is_root(self) -> bool:
        return self.parent is not None and self.parent.root is self

    def called(self) -> Iterator[Computation]:
        """The computations named by this instruction's attributes, in order."""
        if not self.attributes:
            return iter(())
        computations: tuple[Computation, ...] = ()
        for value in self.attributes.values():
            if isinstance(value, Called):
                computations = (*computations, *value.computations) if computations else value.computations
        return iter(computations)

    def called_by(self, name: str) -> Computation:
        """The computation named by the attribute (the first of a list). Raises KeyError when the attribute is
        absent."""
        value = self.attributes[name]
        if not isinstance(value, Called):
            raise KeyError(name)
        return value.computations[0]

    def attribute(self, name: str, kind: type[V]) -> V:
        """The decoded value of a required attribute. Raises KeyError when it is absent, TypeError when it is of another
        type."""
        attribute = self.attributes[name]
        value = attribute.value if isinstance(attribute, Attribute) else attribute
        if not isinstance(value, kind):
            raise TypeError(f"{self.name}: {name}={attribute.text} is not a {kind.__name__}")
        return value

    def ints(self, name: str) -> tuple[int, ...]:
        """A list of integers such as `dimensions={0,1}`; empty when the attribute is absent."""
        if name not in self.attributes:
            return ()
        value: tuple[int, ...] = self.attribute(name, tuple)
        return value

    def word(self, name: str, default: str = "") -> str:
        """A bare word such as `direction=GE` or a quoted string, without its quotes."""
        attribute = self.attributes.get(name)
        if attribute is None or isinstance(attribute, Called):
            return default
        value = attribute.value
        return value if isinstance(value, str) else str(getattr(value, "text", value))

    def value(self, name: str, default: AttributeValue) -> AttributeValue:
        """The decoded value of an attribute, or the default when it is absent."""
        attribute = self.attributes.get(name)
        return attribute.value if isinstance(attribute, Attribute) else default

    @property
    def metadata(self) -> Metadata:
        """Where the instruction came from; empty when the text does not say."""
        value = self.value("metadata", _NO_METADATA)
        return value if isinstance(value, Metadata) else _NO_METADATA

    def __repr__(self) -> str:
        return f"<{self.name} = {self.shape} {self.opcode}({', '.join(o.name for o in self.operands)})>"


class Computation:
    """A named list of instructions, operands before users, with one root."""

    def __init__(self, name: str, *, offset: int = -1) -> None:
        self.name = name
        self.attributes: dict[str, Attribute | Called] = {}
        self.offset = offset
        self.module: Module | None = None
        self._instructions: dict[Instruction, None] = {}
        self._root: Instruction | None = None
        self._users_known = False
        self._parameters: dict[Instruction, None] | None = None
        """The parameters in order of appearance; None until first used."""
        self._called: list[Computation] | None = None
        """The callees; None until first used, and after an edit of an instruction that calls."""
        self.facts: dict[Fact, object] = {}
        """The known facts about the instructions, until the next edit of one of them: see `hlo_opt.ir.facts`."""

    @property
    def instructions(self) -> KeysView[Instruction]:
        """All instructions; operands come before users."""
        return self._instructions.keys()

    @property
    def root(self) -> Instruction:
        """The instruction whose value is the computation's. Raises ValueError for an empty computation."""
        if self._root is None:
            raise ValueError(f"{self.name} has no root")
        return self._root

    @property
    def called(self) -> list[Computation]:
        """The computations named by the instructions' attributes, in order, with repetitions. Not to be changed."""
        if self._called is None:
            self._called = [
                computation
                for instruction in self._instructions
                if instruction.attributes
                for value in instruction.attributes.values()
                if isinstance(value, Called)
                for computation in value.computations
            ]
        return self._called

    @property
    def parameters(self) -> list[Instruction]:
        """The parameters, sorted by number."""
        if self._parameters is None:
            self._parameters = {i: None for i in self._instructions if i.parameter_number is not None}
        return sorted(self._parameters, key=_PARAMETER_NUMBER)

    def index_users(self) -> None:
        """Build the use lists of all instructions. `edit` keeps them up to date from then on."""
        if self._users_known:
            return
        for instruction in self._instructions:
            instruction._users = {}
        for instruction in self._instructions:
            for operand in instruction.operands:
                users = operand._users
                assert users is not None, f"{operand.name} is not in {self.name}"
                users[instruction] = users.get(instruction, 0) + 1
        self._users_known = True

    def __repr__(self) -> str:
        return f"<computation {self.name}: {len(self._instructions)} instructions>"


class Target(Protocol):
    """A device that kernels are generated for; see `hlo_opt.analysis.targets`."""

    @property
    def name(self) -> str:
        """The device's name, such as `h100_sxm`."""


class Module:
    """A program: computations in the order of the text (callees before callers), one of them the entry.

    `attributes` are those of the header (`entry_computation_layout`, `input_output_alias`, ...). `tables` is the text
    of the stack-frame tables. `target` is the device that the module was fused for, None before fusion; HLO text does
    not record it.
    """

    def __init__(self, name: str, *, source: Source | None = None) -> None:
        self.name = name
        self.target: Target | None = None
        self.attributes: dict[str, Attribute | Called] = {}
        self.tables = ""
        self.source = source
        self._computations: dict[Computation, None] = {}
        self._entry: Computation | None = None
        self._taken: dict[str, int] = {}
        self._names: set[str] | None = None

    @property
    def computations(self) -> KeysView[Computation]:
        """All computations, callees before callers."""
        return self._computations.keys()

    @property
    def entry(self) -> Computation:
        """The entry computation. Raises ValueError for a module without one."""
        if self._entry is None:
            raise ValueError(f"module {self.name} has no entry computation")
        return self._entry

    def unique_name(self, wish: str) -> str:
        """Reserve a name that no computation or instruction has: `wish` itself where it is free.

        Otherwise digits after the last dot of `wish` are replaced by the next free number, as in XLA.
        """
        if self._names is None:
            self._names = {c.name for c in self._computations}
            self._names.update(i.name for c in self._computations for i in c._instructions)
        if wish not in self._names:
            self._names.add(wish)
            return wish
        stem, _, digits = wish.rpartition(".")
        if not stem or not digits.isdigit():
            stem = wish
        number = self._taken.get(stem, 0) + 1
        while (name := f"{stem}.{number}") in self._names:
            number += 1
        self._taken[stem] = number
        self._names.add(name)
        return name

    def span(self, instruction: Instruction) -> Span | None:
        """The instruction's place in the source text; None for one that a pass created."""
        from hlo_opt.diag import Span

        if self.source is None or instruction.offset < 0:
            return None
        return Span(self.source, instruction.offset, max(instruction.end, instruction.offset + 1))

    printer: ClassVar[Callable[[Module], str] | None] = None
    """Set by the text room, which this room may not import."""

    def __str__(self) -> str:
        """Canonical HLO text, as `hlo-opt print` writes it."""
        return repr(self) if Module.printer is None else Module.printer(self)

    def __repr__(self) -> str:
        return f"<module {self.name}: {len(self._computations)} computations>"
