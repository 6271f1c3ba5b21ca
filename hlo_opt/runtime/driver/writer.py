"""The text of `driver.py`: a schedule as readable Python that needs only CuPy and NumPy.

Each executed computation becomes a function, each buffer a local name, each launch a line. Names are sanitised, and
values are written as `repr` or hexadecimal bits, so that no text of the HLO module can become code.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from hlo_opt.analysis.graph.loops import derived_trip_count
from hlo_opt.codegen.options import compile_options
from hlo_opt.diag import BackendError
from hlo_opt.ir import ElementType, Literal, Shape
from hlo_opt.ir.values import Array
from hlo_opt.library.arrays import raw_dtype
from hlo_opt.library.functions import texts_of
from hlo_opt.ops.calls.call import DeviceCall, call_of
from hlo_opt.ops.collective.module_devices import WHICH_DEVICE, counts
from hlo_opt.runtime.driver.prelude import (
    ABOUT_ELIDED,
    CONNECTED,
    EPILOGUE,
    MEANING,
    PACKED,
    PLAIN,
    PRELUDE,
    READS_ELIDED,
    RESERVED,
    TAKES_ELIDED,
    ZEROS_FOR_ELIDED,
)
from hlo_opt.runtime.numpy import WORD, held_dtype, to_memory
from hlo_opt.runtime.schedule import Schedule, constant_array
from hlo_opt.runtime.schedule.lifetimes import callees_first
from hlo_opt.runtime.schedule.ops import (
    AliasOp,
    Allocate,
    BranchOp,
    CallOp,
    ConstantOp,
    Copy,
    Free,
    LaunchOp,
    LoopOp,
    Op,
    Relayout,
    Routine,
    RoutineKey,
    callees,
)

_LONGEST = 60  # characters of a name to keep, for readable lines
_UNSAFE = re.compile(r"[^A-Za-z0-9_]")


def sanitised(name: str) -> str:
    """The name in ASCII letters, digits and underscores, beginning with a letter."""
    text = _UNSAFE.sub("_", name)[:_LONGEST].strip("_")
    return text if text[:1].isalpha() else f"v{text}"


class Namespace:
    """Hands out unique identifiers that are not keywords, builtins or reserved."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *reserved}
        self._counts: dict[str, int] = {}

    def take(self, wish: str) -> str:
        """The sanitised name `wish`, with a number if it is taken."""
        stem = sanitised(wish)
        name = stem
        while name in self._taken:
            self._counts[stem] = self._counts.get(stem, 1) + 1
            name = f"{stem}_{self._counts[stem]}"
        self._taken.add(name)
        return name


_INLINE_BYTES = 128  # longer constants go to constants.npz
_DEEPEST = 200  # nested control flow; Python stops at about 1,000 nested calls
_EXCHANGES = frozenset({"exchange_call", "group_exchange_call"})


@dataclass
class Driver:
    """The program, and the arrays of `constants.npz` (no such file if empty)."""

    text: str = ""
    constants: dict[str, Array] = field(default_factory=dict)


def driver_of(schedule: Schedule, files: Mapping[str, str], *, precise: bool = False) -> Driver:
    """The driver of a schedule.

    `files` are the paths of the kernels' texts by symbol, relative to the driver; `precise` as for `compile_options`.
    Raises BackendError, naming the operations, for what CuPy lacks, and for too deeply nested control flow.
    """
    return _Writer(schedule, files, precise).write()


class _Writer:
    def __init__(self, schedule: Schedule, files: Mapping[str, str], precise: bool) -> None:
        self.schedule = schedule
        self.options, self.precise = compile_options(precise=precise), precise
        self.files = files
        self.driver = Driver()
        self.globals = Namespace(RESERVED)
        self.functions: dict[RoutineKey, str] = {}
        self.constants: dict[str, str] = {}
        self.elided: dict[str, tuple[str, Shape]] = {}
        self.constant_names: dict[tuple[Literal, tuple[int, ...]], str] = {}
        ops = [op for routine in schedule.routines.values() for op in routine.ops]
        self.calls = {op: self._call_of(op) for op in ops if isinstance(op, CallOp) and op.kind != "empty"}
        self.exchanges = any(call is not None and call.function in _EXCHANGES for call in self.calls.values())
        """Whether the module's devices communicate, so that each runs the driver in its own process."""
        self.numbers = [op for op in ops if isinstance(op, ConstantOp) and op.instruction.opcode in WHICH_DEVICE]
        self.has_relayouts = any(isinstance(op, Relayout) for op in ops)

    def refuse_what_cupy_lacks(self) -> None:
        lacking: dict[str, list[str]] = {}
        known = {op.instruction for op in self.numbers}
        every = (i for computation in self.schedule.module.computations for i in computation.instructions)
        for i in every if self.exchanges else ():
            if i.opcode in WHICH_DEVICE and i not in known:  # kernels hold the number of one device only
                lacking.setdefault(i.opcode, []).append(i.name)
        for _, op in self.schedule.ops():
            if isinstance(op, CallOp) and self.calls.get(op, op) is None:
                lacking.setdefault(op.call, []).append(op.instruction.name)
        if lacking:
            listed = ", ".join(f"{call} ({len(names)}, first {names[0]})" for call, names in sorted(lacking.items()))
            raise BackendError(
                f"no driver: neither a kernel nor CuPy computes {listed}",
                code="HLO530",
                hint="hlo-opt run --backend cupy evaluates these in NumPy",
            )

    def write(self) -> Driver:
        self.refuse_what_cupy_lacks()
        keys = callees_first(self.schedule.routines)
        depth: dict[RoutineKey, int] = {}
        for key in keys:
            depth[key] = 1 + max((depth[c] for op in self.schedule.routines[key].ops for c in callees(op)), default=0)
            if depth[key] > _DEEPEST:
                raise BackendError(f"no driver: control flow nests more than {_DEEPEST} deep", code="HLO531")
            self.functions[key] = self.globals.take(f"computation_{key.computation.name}")
        bodies = ["\n".join(self.function(key)) for key in keys]
        library = "\n\n\n".join(self.library_functions())
        exchanges = self.exchanges
        elided = bool(self.elided)
        bits = {t.name: t.bits for t in self.packed_types()}
        parts = [
            PRELUDE.format(
                module=ascii(self.schedule.module.name),
                imports="\nfrom __future__ import annotations\n"
                if library
                else "",  # what is read as types is not there
                options=repr(self.options),
                **(PACKED if bits else PLAIN),
            ),
            f"PACKED = {bits!r}  # bits of an element, for types of which several share a byte of a buffer"
            if bits
            else "",
            "COMMUNICATOR = []" if exchanges else "",
            library,
            self.tables(),
            *bodies,
            EPILOGUE.format(
                entry=self.functions[keys[-1]],
                arguments=(", elided=None" if elided else "") + (", communicator=None" if exchanges else ""),
                meaning=(ABOUT_ELIDED if elided else "") + (MEANING if exchanges else ""),
                begins=(TAKES_ELIDED if elided else "") + (CONNECTED if exchanges else ""),
                passes=", elided=named" if elided else "",
                passed=(", elided=elided" if elided else "") + (", communicator=communicator" if exchanges else ""),
                named=READS_ELIDED if elided else "",
                zeros=ZEROS_FOR_ELIDED if elided else "",
            ),
        ]
        self.driver.text = "\n\n\n".join(p.strip("\n") for p in parts if p) + "\n"
        return self.driver

    def library_functions(self) -> list[str]:
        """The texts of the functions of `hlo_opt.library` that the driver needs."""
        moves = ["logical", "flat"] if self.has_relayouts else []
        numbers = ["own_number"] if self.exchanges and self.numbers else []
        packs = ["packed", "unpacked"] if self.packed_types() else []
        called = {call.function for call in self.calls.values() if call is not None}
        return texts_of([*sorted(called), *moves, *numbers, *packs])

    def packed_types(self) -> list[ElementType]:
        """The types of buffers in which several elements share a byte, by name."""
        shapes = [shape for routine in self.schedule.routines.values() for shape in routine.shapes]
        return sorted({shape.type for shape in shapes if _shares_bytes(shape)}, key=lambda t: t.name)

    def tables(self) -> str:
        entry = self.schedule.entry
        rows = ["KERNELS = {"]
        for k in self.schedule.kernels:
            numbers = [k.launch.grid, k.launch.block, *[k.kept] * bool(k.kept)]
            how = ["cooperative=True"] * k.launch.cooperative
            arguments = ", ".join([f"{self.files[k.symbol]!r}", f"{k.symbol!r}", *map(str, numbers), *how])
            rows.append(f"    {k.symbol!r}: Kernel({arguments}),")
        rows += ["}", "", "CONSTANTS = {"]
        rows += [f"    {name!r}: {value}" for name, value in self.constants.items()]
        rows += ["}", ""]
        if self.elided:
            rows.append("ELIDED = {  # constants that the HLO text leaves out: name, then as in INPUTS")
            rows += [
                f"    {name!r}: ({origin!a}, *{_described(shape)})," for name, (origin, shape) in self.elided.items()
            ]
            rows += ["}", ""]
        for name, buffers in (("INPUTS", entry.inputs), ("OUTPUTS", entry.results)):
            rows.append(f"{name} = [  # dimensions, dimension numbers from the fastest varying, stored type, HLO type")
            rows += [f"    {_described(entry.shapes[b])}," for b in buffers]
            rows.append("]")
        donated = tuple(number for number, _ in entry.donated)
        rows.append(f"DONATED = {donated!r}  # numbers of inputs whose memory outputs may have")
        return "\n".join(rows)

    def function(self, key: RoutineKey) -> Iterator[str]:
        routine = self.schedule.routines[key]
        names = _buffer_names(routine, {*RESERVED, *self.functions.values()})
        yield f"def {self.functions[key]}({', '.join(names[b] for b in routine.inputs)}):"
        yield f"    # computation {routine.computation.name!a}"
        for op in routine.ops:
            for line in self.lines(routine, op, names):
                yield f"    {line}"
        yield f"    return {_tuple(names[b] for b in routine.results)}"

    def lines(self, routine: Routine, op: Op, names: Mapping[int, str]) -> Iterator[str]:
        inputs, outputs = [names[b] for b in op.inputs], [names[b] for b in op.outputs]
        match op:
            case Allocate():
                yield from (f"{names[b]} = {_empty(routine.shapes[b])}" for b in op.outputs)
            case Copy():
                yield f"{outputs[0]} = {inputs[0]}.copy()  # the kernel updates it in place"
            case AliasOp(is_view=False):
                yield f"{outputs[0]} = {inputs[0]}  # nothing else reads it: updated in place"
            case LaunchOp():
                yield f"KERNELS[{op.kernel.symbol!r}]({', '.join([*inputs, *outputs])})"
            case Free():
                yield f"del {', '.join(inputs)}"
            case ConstantOp() if self.exchanges and op.instruction.opcode in WHICH_DEVICE:
                is_partition = op.instruction.opcode == "partition-id"
                yield f"{outputs[0]} = own_number(cupy, {counts(self.schedule.module)[1]}, {is_partition})"
            case ConstantOp():
                for literal, b in zip(op.literals, op.outputs, strict=True):
                    yield f"{names[b]} = constant({self.constant(op, literal, routine.shapes[b])!r})"
            case AliasOp():
                yield f"{outputs[0]} = {inputs[0]}.view({raw_dtype(held_dtype(routine.shapes[op.outputs[0]])).name!r})"
            case Relayout():
                old, new = (routine.shapes[b] for b in (*op.inputs, *op.outputs))
                array = f"logical({_unpacked(inputs[0], old)}, {old.dimensions!r}, {old.minor_to_major!r})"
                moved = f"flat(cupy, {array}, {new.minor_to_major!r})"
                yield f"{outputs[0]} = {_packed(moved, new)}"
            case CallOp(kind="empty"):
                for b, name in zip(op.outputs, outputs, strict=True):
                    yield f"{name} = {_empty(routine.shapes[b])}"
            case CallOp():
                shapes = routine.shapes
                operands = [_unpacked(name, shapes[b]) for name, b in zip(inputs, op.inputs, strict=True)]
                yield from self.library(op, operands, outputs)
                for name, b in zip(outputs, op.outputs, strict=True):
                    if _shares_bytes(shapes[b]):
                        yield f"{name} = {_packed(name, shapes[b])}"
            case LoopOp():
                state = names[-1 - op.outputs[0]] if op.outputs else "state"
                for k in op.copied:  # the body updates these in place
                    inputs[k] = f"{inputs[k]}.copy()"
                yield f"{state} = {_tuple(inputs)}"
                trips = derived_trip_count(op.instruction)
                if trips:
                    yield f"for _ in range({trips}):  # as its condition will find"
                    yield f"    {state} = {self.functions[op.body]}(*{state})"
                yield f"while {self.functions[op.condition]}(*{state})[0].item():"
                yield f"    {state} = {self.functions[op.body]}(*{state})"
                if outputs:
                    yield f"{_tuple(outputs)} = {state}"
                yield f"del {state}"
            case BranchOp():
                yield from self.branch(routine, op, names, outputs)

    def _call_of(self, op: CallOp) -> DeviceCall | None:
        call = call_of(op.instruction)
        return call.precise if call is not None and self.precise else call

    def library(self, op: CallOp, inputs: list[str], outputs: list[str]) -> Iterator[str]:
        call = self.calls[op]
        assert call is not None, op.instruction.name
        yield f"{_tuple(outputs)} = {call.function}("
        yield "    cupy,"
        yield f"    [{', '.join(inputs)}],"
        yield "    ["
        for shape in call.shapes:
            yield f"        {shape!r},"
        yield "    ],"
        for argument in call.arguments:
            yield f"    {argument!r},"
        yield ")"

    def branch(self, routine: Routine, op: BranchOp, names: Mapping[int, str], outputs: list[str]) -> Iterator[str]:
        target = f"{_tuple(outputs)} = " if outputs else ""
        calls = [
            f"{target}{self.functions[c]}({', '.join(names[b] for b in arguments)})"
            for c, arguments in zip(op.branches, op.arguments, strict=True)
        ]
        if op.selector is None:
            yield calls[0]
            return
        selector = names[op.selector]
        is_pred = routine.shapes[op.selector].type.kind == "pred"
        for number, call in enumerate(calls):
            condition = f"{selector}.item()" if is_pred else f"{selector}.item() == {number}"
            if number == len(calls) - 1:
                yield "else:" if len(calls) > 1 else "if True:"
            else:
                yield f"{'if' if number == 0 else 'elif'} {condition}:"
            yield f"    {call}"

    def constant(self, op: ConstantOp, literal: Literal, shape: Shape) -> str:
        """The key in the driver's table of a literal in the shape's layout."""
        key = (literal, shape.minor_to_major)
        if key in self.constant_names:
            return self.constant_names[key]
        name = f"c{len(self.constants) + len(self.elided)}"
        if not literal.is_known:
            self.elided[name] = (literal.origin, shape)
            self.constant_names[key] = name
            return name
        value = constant_array(op, literal, None)
        memory = to_memory(value, shape)
        stored = memory.view(raw_dtype(memory.dtype))
        first = stored[:1]
        stored_text: str | None
        if stored.size and bool((stored.view(np.uint8).reshape(stored.size, -1) == first.view(np.uint8)).all()):
            stored_text = first.tobytes().hex()
        elif stored.nbytes <= _INLINE_BYTES:
            stored_text = stored.tobytes().hex()
        else:
            self.driver.constants[name] = stored
            stored_text = None
        shown = f"{shape.type} {value.reshape(-1)[0]!s}" if value.size == 1 else f"{value.size} elements"
        self.constants[name] = f"({stored.dtype.name!r}, {stored.size}, {stored_text!r}),  # {shown}"
        self.constant_names[key] = name
        return name


def _buffer_names(routine: Routine, reserved: set[str]) -> dict[int, str]:
    """A local name for each buffer; the state of a loop has the number `-1 - b`, where `b` is the loop's first
    output."""
    space = Namespace(reserved)
    names: dict[int, str] = {}
    for parameter in routine.computation.parameters:
        leaves = list(parameter.shape.leaves())
        buffers = routine.inputs[len(names) : len(names) + len(leaves)]
        for number, buffer in enumerate(buffers):
            names[buffer] = space.take(parameter.name if len(leaves) == 1 else f"{parameter.name}_{number}")
    for op in routine.ops:
        if isinstance(op, Allocate | Copy | Free) or (isinstance(op, AliasOp) and not op.is_view):
            continue  # the following launch names all its outputs
        wish = op.instruction.name
        for number, buffer in enumerate(op.outputs):
            names[buffer] = space.take(wish if len(op.outputs) == 1 else f"{wish}_{number}")
        if isinstance(op, LoopOp) and op.outputs:
            names[-1 - op.outputs[0]] = space.take(f"{wish}_state")
    return names


def _tuple(names: Iterator[str] | list[str]) -> str:
    listed = list(names)
    return f"({listed[0]},)" if len(listed) == 1 else f"({', '.join(listed)})"


def _stored(shape: Shape) -> str:
    return raw_dtype(shape.type.dtype).name


def _shares_bytes(shape: Shape) -> bool:
    """Whether several elements of a buffer share a byte."""
    return shape.is_array and shape.type.per_byte > 1


def _unpacked(text: str, shape: Shape) -> str:
    """The elements of a buffer, unpacked for the functions of `hlo_opt.library`."""
    return f"unpacked(cupy, {text}, {shape.type.bits}, {shape.element_count})" if _shares_bytes(shape) else text


def _packed(text: str, shape: Shape) -> str:
    """The result of such a function, packed as a buffer."""
    return f"packed(cupy, {text}, {shape.type.bits})" if _shares_bytes(shape) else text


def _empty(shape: Shape) -> str:
    if _shares_bytes(shape):
        size = shape.stored_bytes
        words = f"cupy.empty({-(-size // WORD) * WORD}, 'uint8')"  # in which kernels change single elements
        return words if size % WORD == 0 else f"{words}[:{size}]"
    return f"cupy.empty({shape.element_count}, {_stored(shape)!r})" if shape.is_array else "None"


def _described(shape: Shape) -> str:
    if not shape.is_array:
        return "None"
    return repr((shape.dimensions, shape.minor_to_major, _stored(shape), shape.type.name))
