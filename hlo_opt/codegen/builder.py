"""The `KernelBuilder`: writes statements that compute values of a region at given indices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from hlo_opt.codegen.index_text import fits_int
from hlo_opt.codegen.indices import Indices
from hlo_opt.codegen.scalars import bits_table, from_table, literal, loaded, register_type, stored, zero
from hlo_opt.codegen.statements import ElementKey
from hlo_opt.codegen.tree import ConstantTable
from hlo_opt.diag import BackendError
from hlo_opt.diag.time_limit import check_time
from hlo_opt.ir import Computation, ElementType, Instruction, Shape
from hlo_opt.ir.element_type import U64
from hlo_opt.ir.index_map import Expression, Sum, Variable, constant, is_even, split_constant
from hlo_opt.ir.literal import SizedLiteral
from hlo_opt.ir.size import unsigned_long
from hlo_opt.ops.code import NOTHING, Cell, Code, Name, PackedElement, call, code
from hlo_opt.ops.lowering import Elementwise, Index, width_text
from hlo_opt.ops.reduction.reducers import widened
from hlo_opt.ops.sets import REINTERPRETS, rounds_nothing
from hlo_opt.ops.spec import find
from hlo_opt.plans.limits import DEEPEST
from hlo_opt.plans.loop import WIDEST_ACCESS


class Builder(Indices):
    """The implementation of `hlo_opt.ops.lowering.KernelBuilder`, with what emitters need besides.

    Values are computed operands first with an explicit stack, so that long chains need no recursion. Only an operation
    that reads operands under a condition or in a loop recurses, at most `DEEPEST` times.
    """

    def value(self, instruction: Instruction, index: Index) -> Code:
        check_time()
        return self._value(self._key(instruction, None, index))

    def element(self, instruction: Instruction, number: int, index: Index) -> Code:
        return self._value(self._key(instruction, number, index))

    def start(self, start: Instruction, at: Index, most: int) -> Expression:
        """See `KernelBuilder`. One variable serves its scope and scopes inside it. A u64 is clamped first, as it may
        exceed the index type. A constant is a number, so that conditions on it are decided before the kernel runs."""
        if not at and start.literal is not None and start.literal.is_known:
            return constant(min(max(int(np.asarray(start.literal.value)), 0), most))
        key = self._key(start, None, at), most
        for scope in reversed(self._scopes):
            if key in scope.starts:
                return scope.starts[key]
        value = self.value(start, at)
        if start.shape.type == U64:
            value = code(f"({{0}} > {unsigned_long(most)} ? {unsigned_long(most)} : {{0}})", value)
        fits = all(fits_int(Variable(0, high, "")) for high in (start.shape.type.limits[1], most))
        self._scopes[-1].starts[key] = index = self.index(value, 0, most, fits=fits)
        self.asked.append((start, at, most))
        return index

    def provide(self, instruction: Instruction, number: int | None, index: Index, name: Code) -> None:
        """Provide a value that the emitter has computed, for this scope and scopes inside it."""
        self.keep(self._key(instruction, number, index), name)

    def known(self) -> dict[ElementKey, Code]:
        """The values computed or provided in the innermost scope."""
        return {key: self._values[key] for key, _ in self._scopes[-1].changes}

    def loads(self) -> list[tuple[Instruction, Index]]:
        """The parameter elements read in the innermost scope."""
        return list(self._scopes[-1].loads)

    def likely_loads(self) -> tuple[list[tuple[Instruction, Index]], bool]:
        """The parameter elements read under `likely` conditions in this scope; and whether these are all reads there
        (none in nested conditions or loops)."""
        return list(self._scopes[-1].likely), not self._scopes[-1].likely_hides

    def apply(
        self,
        computation: Computation,
        arguments: Sequence[Code],
        only: int | None = None,
        index: Index = (),
        *,
        wide: bool = False,
    ) -> list[Code]:
        """See `KernelBuilder`.

        `only` asks for one element of a root tuple, which may leave arguments unread. `index` is the index of the
        arguments, for a computation on arrays that reads only this element.
        """
        if wide:
            if computation not in self._widened:
                self._widened[computation] = widened(computation)
            computation = self._widened[computation]
        with self.scope():
            for parameter, argument in zip(computation.parameters, arguments, strict=True):
                self.keep(self._key(parameter, None, index), argument)
            root = computation.root
            count = None if root.shape.elements is None else len(root.shape.elements)
            if count is None:
                return [self.value(root, index)]
            return [self.element(root, number, index) for number in (range(count) if only is None else (only,))]

    def computed(self, value: Instruction, parameter: Instruction, argument: Code) -> Code:
        """A value of another computation, of which only this parameter is needed."""
        with self.scope():
            self.keep(self._key(parameter, None, ()), argument)
            return self.value(value, ())

    def store(self, pointer: Name, shape: Shape, index: Index, value: Code) -> None:
        """Write one element of an output, converting it to the storage type."""
        self.put(pointer, shape, index, stored(shape.type, value))

    def put(self, pointer: Name, shape: Shape, index: Index, value: Code) -> None:
        """Write one element of an output, in its storage type. For packed elements, other threads may write the same
        byte concurrently."""
        at = self._accessed(pointer, shape, index)
        if shape.type.per_byte == 1:
            self.assign(Code((Cell(pointer, at),)), value)
        else:
            self.do(call(f"hlo_put<{shape.type.bits}>", pointer, at, value, *last_argument(shape)))

    def stored_element(
        self, pointer: Name, shape: Shape, index: Index, first: Index | None = None, number: Code = NOTHING
    ) -> Code:
        """An element of an array, in its storage type.

        For packed elements, `first` may be the index of the first element of a vector, which begins a byte, and
        `number` the element's number in it.
        """
        at = self._accessed(pointer, shape, index)
        if shape.type.per_byte == 1:
            return Code((Cell(pointer, at),))
        if first is None:
            return Code((PackedElement(shape.type.bits, pointer, at),))
        return Code((PackedElement(shape.type.bits, pointer, at, self.address(shape, first), number),))

    def _accessed(self, pointer: Name, shape: Shape, index: Index) -> Code:
        """The position of an element in memory, as C++; `moves_neighbours` knows that it is accessed."""
        at = self.address(shape, index)
        if at.place is not None and shape.type.per_byte == 1 and 2 * shape.type.bytes <= WIDEST_ACCESS:
            base, offset = split_constant(at.place)
            offsets = [offset]
            match base:
                case Sum(left=left, right=Variable(name=name)) if name in self._unrolled:
                    base, offsets = left, [offset, offset + 1]
            self._accesses.setdefault((pointer, base), set()).update(offsets)
        return at

    @property
    def moves_neighbours(self) -> bool:
        """Whether a thread accesses two neighbouring elements that one wider access could move."""
        return any(
            is_even(base) and any(not offset % 2 and offset + 1 in offsets for offset in offsets)
            for (_, base), offsets in self._accesses.items()
            if len(offsets) > 1
        )

    def _key(self, instruction: Instruction, number: int | None, index: Index) -> ElementKey:
        return *_source(instruction, number), tuple([self._settled(e) for e in index])

    def _value(self, key: ElementKey) -> Code:
        known = self._values.get(key)
        if known is not None:
            return known
        if self._depth > DEEPEST + 1:  # counting the outermost value
            raise BackendError(f"operations that read under conditions nest deeper than {DEEPEST}", code="HLO502")
        self._depth += 1
        naming = self._naming
        stack: list[tuple[ElementKey, bool]] = [(key, False)]
        while stack:
            top, ready = stack.pop()
            if top in self._values:
                continue
            if not ready:
                needed = [k for k in self._needs(top) if k not in self._values]
                if needed:
                    stack.append((top, True))
                    stack.extend((k, False) for k in reversed(needed))
                    continue
            self._compute(top)
        self._depth -= 1
        self._naming = naming
        return self._values[key]

    def _needs(self, key: ElementKey) -> list[ElementKey]:
        """Operand values that are certainly read, at indices known already, so that they can be computed first."""
        instruction, _, index = key
        operands = instruction.operands
        if not operands:
            return []
        spec = find(instruction.opcode)
        if spec is None:
            return []
        if isinstance(spec.cuda, Elementwise):
            return _alike(operands, index)
        needs = []
        for number, operand in enumerate(operands):
            if not operand.shape.is_array:
                continue
            if not operand.shape.rank:
                needs.append(self._key(operand, None, ()))
                continue
            index_map = None if spec.index is None else spec.index(instruction, number)
            if index_map is None or index_map.symbols or index_map.runtime or index_map.conditions_at(index):
                continue
            needs.append(self._key(operand, None, index_map.apply(index)))
        return needs

    def _compute(self, key: ElementKey) -> None:
        instruction, _, index = key
        self.name_after(instruction)
        if instruction.parameter_number is not None:
            computed: Code | Sequence[Code] = self._load(instruction, index)
        elif instruction.literal is not None:
            computed = self._constant(instruction, index)
        else:
            computed = self._lowered(instruction, index)
        if isinstance(computed, Code):
            self.keep(key, computed)
        else:
            for k, text in enumerate(computed):
                self.keep((instruction, k, index), text)

    def _lowered(self, instruction: Instruction, index: Index) -> Code | Sequence[Code]:
        spec = find(instruction.opcode)
        lowering = None if spec is None else spec.cuda
        if isinstance(lowering, Elementwise):
            template = lowering.text_for(instruction)
            if template is not None:
                operands = [self._values[k] for k in _alike(instruction.operands, index)]  # see `_needs`
                bind = self.bind_exact if rounds_nothing(instruction) else self.bind
                return bind(instruction.shape.type, code(_filled(template, instruction.shape.type), *operands))
        elif lowering is not None:
            naming = self._naming
            computed = lowering(self, instruction, index)
            self._naming = naming
            if not isinstance(computed, Code) or computed.is_atom:
                return computed
            bind = self.bind_exact if instruction.opcode in REINTERPRETS else self.bind
            return bind(instruction.shape.type, computed)
        if instruction.opcode in ("fusion", "call") and not any(o.shape.rank for o in instruction.operands):
            inner = instruction.called_by("calls" if instruction.opcode == "fusion" else "to_apply")  # inside a reducer
            computed = self.apply(inner, [self.value(o, ()) for o in instruction.operands])
            return computed[0] if instruction.shape.is_array else computed
        raise BackendError(f"no CUDA lowering for {instruction.shape} {instruction.opcode}", code="HLO503")

    def _load(self, parameter: Instruction, index: Index) -> Code:
        shape = parameter.shape
        if not shape.element_count:  # a gather without rows: every index would be out of bounds
            return zero(shape.type)
        self._scopes[-1].loads.append((parameter, index))
        return self.bind_exact(shape.type, loaded(shape.type, self.where(parameter, index)))

    def point(self, parameter: Instruction, name: Name) -> None:
        """Read a parameter from the array of this name."""
        self._pointers[parameter] = name

    def pointer(self, parameter: Instruction) -> Name:
        """The name of the array from which a parameter is read."""
        return self._pointers[parameter]

    def where(self, parameter: Instruction, index: Index, first: Index | None = None, number: Code = NOTHING) -> Code:
        """An element of a parameter, in its storage type; `first` and `number` as in `held`."""
        return self.stored_element(self._pointers[parameter], parameter.shape, index, first, number)

    def _constant(self, instruction: Instruction, index: Index) -> Code:
        import numpy as np

        assert instruction.literal is not None
        element_type = instruction.shape.type
        if isinstance(instruction.literal, SizedLiteral) and instruction.literal.code is not None:
            return code(instruction.literal.code)
        value = np.asarray(instruction.literal.value)
        first = value.reshape(-1)[:1]
        if value.size and (value.size == 1 or (value.tobytes() == first.tobytes() * value.size)):
            return literal(element_type, first[0])
        if instruction not in self._tables:
            name = self.numbered("table")
            kind, elements = bits_table(element_type, value)
            self.tables.append(ConstantTable(kind, name, tuple(elements)))
            self._tables[instruction] = name
        self._scopes[-1].hides = True
        row_major = Shape(element_type, instruction.shape.dimensions)
        element = Code((Cell(self._tables[instruction], self.address(row_major, index)),))
        return self.bind_exact(element_type, from_table(element_type, element))


def last_argument(shape: Shape) -> tuple[int, ...]:
    """The trailing argument of writes of packed elements: the element count where the last byte is partial, so that its
    padding stays 0."""
    return (shape.element_count,) if shape.element_count % shape.type.per_byte else ()


def _source(instruction: Instruction, number: int | None) -> tuple[Instruction, int | None]:
    """The instruction that computes a value or tuple element, looking through tuples."""
    path = [] if number is None else [number]
    while True:
        if instruction.opcode == "get-tuple-element" and not instruction.shape.is_tuple:
            path.append(instruction.attribute("index", int))
            instruction = instruction.operands[0]
        elif instruction.opcode == "tuple" and path:
            instruction = instruction.operands[path.pop()]
        else:
            return instruction, path[0] if path else None


def _alike(operands: Sequence[Instruction], index: Index) -> list[ElementKey]:
    """The operands' values at the index of an elementwise result."""
    return [(*_source(o, None), index if o.shape.rank else ()) for o in operands]


@lru_cache(maxsize=1024)
def _filled(template: str, element_type: ElementType) -> str:
    """An operation's template with only the holes of operands left."""
    return template.format(
        *[f"{{{number}}}" for number in range(10)],
        T=register_type(element_type),
        W=width_text(element_type),
        F="" if element_type.name == "f64" else "f",
        bits=element_type.bits,
        P=f"hlo_{element_type.name}",
    )
