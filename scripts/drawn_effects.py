"""The world outside of a module: answers draws, transfers and unknown custom calls, so that two modules with effects
can be compared.

An occurrence in the text is an instruction that the world answers, reached from the entry through calls, branches and
loops; a callee that is called twice makes two. It is known by the name in the metadata of its instruction, which no
pass looks at, and by its place among those of the same name. What the world gives hangs on that, on the iterations of
the loops around and on the device, but not on anything else. Two modules do the same when the occurrences of one can be
matched with those of the other such that outputs are equal, every occurrence is given the same operands equally often,
and none comes loose from another that it had to wait for.

None of this looks at how the program numbers values or proves graphs equal.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from hlo_opt.evaluate import Occurrence, evaluate_devices
from hlo_opt.evaluate.program import Acting, is_answered
from hlo_opt.ir import Attribute, Computation, Instruction, Metadata, Module, Shape, edit
from hlo_opt.ops.collective.module_devices import counts

__all__ = ["Acting", "Occurrences", "Run", "World", "acts", "counts", "differs", "has_effects", "is_answered", "run"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Name: TypeAlias = tuple[str, int]
"""The name in the metadata, and the place among those of the same name."""
Value: TypeAlias = "int | tuple[Value, ...]"
"""Which occurrences something waits for, a bit for each; of a tuple, its elements."""

SPREAD = 4.0
MOST_MATCHINGS = 1000
"""Ways to match occurrences that are tried."""


def acts(instruction: Instruction) -> bool:
    """Whether its occurrences count. A custom call without side effect is a function of its operands that nobody
    knows."""
    return is_answered(instruction) and not is_function(instruction)


def is_function(instruction: Instruction) -> bool:
    said = instruction.word("custom_call_has_side_effect").lower() == "true"
    return instruction.opcode == "custom-call" and not said


def named(instruction: Instruction) -> str:
    metadata = instruction.attributes.get("metadata")
    value = metadata.value if isinstance(metadata, Attribute) else None
    return value.op_name if isinstance(value, Metadata) and value.op_name else instruction.opcode


@dataclass
class Occurrences:
    """Those of a module: their names by where they are, and which others each has to wait for."""

    names: dict[tuple[int, ...], Name] = field(default_factory=dict)
    waits: dict[Name, set[Name]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @staticmethod
    def of(module: Module) -> Occurrences:
        found = Occurrences()
        walk = _Walk(found)
        walk.computation(module.entry, None, (), 0)
        for name, mask in walk.masks.items():
            found.waits[name] = {other for bit, other in enumerate(walk.order) if mask >> bit & 1}
        return found


def _flat(value: Value) -> int:
    if isinstance(value, int):
        return value
    mask = 0
    for element in value:
        mask |= _flat(element)
    return mask


def _with(value: Value, mask: int) -> Value:
    return value | mask if isinstance(value, int) else tuple(_with(v, mask) for v in value)


class _Walk:
    """Numbers occurrences and finds what each waits for: through operands, tokens and control dependencies, with
    fusions and calls looked through."""

    def __init__(self, found: Occurrences) -> None:
        self.found = found
        self.order: list[Name] = []
        self.masks: dict[Name, int] = {}

    def computation(
        self, computation: Computation, arguments: Sequence[Value] | None, path: tuple[int, ...], around: int
    ) -> Value:
        """What the root waits for. `around` is what everything inside waits for."""
        values: dict[Instruction, Value] = {}
        for i in computation.instructions:
            waits = around
            for p in i.control_predecessors:
                waits |= _flat(values[p])
            if i.parameter_number is not None:
                values[i] = around if arguments is None else _with(arguments[i.parameter_number], around)
                continue
            operands = [values[o] for o in i.operands]
            values[i] = self._value(i, operands, (*path, id(i)), waits)
        return values[computation.root]

    def _value(self, i: Instruction, operands: list[Value], path: tuple[int, ...], waits: int) -> Value:
        if i.opcode == "tuple":
            return _with(tuple(operands), waits)
        if i.opcode == "get-tuple-element":
            given = operands[0]
            return _with(given if isinstance(given, int) else given[i.attribute("index", int)], waits)
        if i.opcode in ("call", "fusion"):
            return self.computation(next(i.called()), operands, path, waits)
        everything = waits
        for operand in operands:
            everything |= _flat(operand)
        if is_answered(i):
            return self._occurrence(i, path, everything) if acts(i) else everything
        result = everything
        before = len(self.order)
        for called in i.called():
            result |= _flat(self.computation(called, None, path, everything))
        for bit in range(before, len(self.order)):
            result |= 1 << bit
        return result

    def _occurrence(self, i: Instruction, path: tuple[int, ...], everything: int) -> int:
        name = named(i)
        known = self.found.names.get(path)
        if known is None:
            known = self.found.names[path] = (name, self.found.counts[name])
            self.found.counts[name] += 1
            self.order.append(known)
        self.masks[known] = self.masks.get(known, 0) | everything
        return everything | 1 << self.order.index(known)


Record: TypeAlias = "dict[tuple[Name, tuple[int, ...], int], tuple[object, ...]]"


class World:
    """Answers the occurrences of a module in one run, and remembers what it was given. `matching` renames them."""

    def __init__(self, occurrences: Occurrences, matching: Mapping[Name, Name] | None = None) -> None:
        self.occurrences = occurrences
        self.matching = matching or {}
        self.record: Record = {}
        self.twice: str | None = None

    def __call__(self, told: Occurrence) -> Any:
        i = told.instruction
        if is_function(i):
            config = i.attributes.get("backend_config")
            key: tuple[object, ...] = (i.word("custom_call_target"), str(config), str(i.shape), _given(told.operands))
            return answer(i, told.operands, key)
        path = (*(id(caller) for caller in told.callers), id(i))
        name = self.occurrences.names[path]
        name = self.matching.get(name, name)
        when = (name, told.iterations, told.device)
        if when in self.record:
            self.twice = f"{name[0]} happens twice"
        self.record[when] = (i.opcode, _given(told.operands))
        return answer(i, told.operands, when)


def _given(operands: Sequence[Any]) -> tuple[object, ...]:
    """The operands' bits; tokens say nothing."""
    return tuple(
        _given(o) if isinstance(o, tuple) else (str(np.asarray(o).dtype), np.shape(o), np.asarray(o).tobytes())
        for o in operands
    )


def answer(instruction: Instruction, operands: Sequence[Any], key: object) -> Any:
    """What the world gives: a draw within the bounds of an `rng`, else small numbers; the same for the same key."""
    generator = np.random.default_rng(zlib.crc32(repr(key).encode()))
    shape = instruction.shape
    if instruction.opcode == "recv-done":
        return operands[0][0], ()
    if instruction.opcode != "rng":
        return _drawn(shape, generator)
    dtype = shape.type.dtype
    first, second = (np.asarray(o).astype(np.float64) for o in operands)
    if instruction.word("distribution") == "rng_normal":
        return np.asarray(first + second * np.clip(generator.normal(size=shape.dimensions), -2, 2)).astype(dtype)
    low, high = min(first, second), max(first, second)
    made = np.asarray(generator.uniform(low, high, shape.dimensions)).astype(dtype)
    inside = np.clip(made, np.asarray(low).astype(dtype), np.asarray(high).astype(dtype))
    return np.asarray(inside).astype(dtype)  # NumPy clips scalars of bf16 and f8 in f32


def _drawn(shape: Shape, generator: np.random.Generator) -> Any:
    if shape.elements is not None:
        return tuple(_drawn(element, generator) for element in shape.elements)
    if not shape.is_array:
        return ()
    kind, dtype = shape.type.kind, shape.type.dtype
    if shape.type.name == "u64":
        return generator.integers(0, 2**64 - 1, shape.dimensions, np.uint64, endpoint=True)
    if kind in ("signed", "unsigned", "pred"):
        low = {"signed": -int(SPREAD), "unsigned": 0, "pred": 0}[kind]
        high = 1 if kind == "pred" else int(SPREAD)
        return generator.integers(low, high, shape.dimensions, endpoint=True).astype(dtype)
    return np.asarray(generator.uniform(-SPREAD, SPREAD, shape.dimensions)).astype(dtype)


# ---- comparing


@dataclass
class Run:
    """What a module did: its outputs, device by device, and what the world was given."""

    outputs: list[Array]
    record: Record
    occurrences: Occurrences


def run(
    module: Module, inputs: Sequence[Sequence[Array]], matching: Mapping[Name, Name] | None = None, **limits: Any
) -> Run:
    """Evaluate a module on all its devices, within the limits of `evaluate_devices`."""
    occurrences = Occurrences.of(module)
    if not has_effects(module):
        return Run([array for own in evaluate_devices(module, inputs, **limits) for array in own], {}, occurrences)
    world = World(occurrences, matching)
    made = evaluate_devices(module, inputs, effects=world, **limits)
    if world.twice is not None:
        raise AssertionError(world.twice)
    return Run([array for own in made for array in own], world.record, occurrences)


def same_bits(left: Sequence[Array], right: Sequence[Array]) -> str | None:
    """Which output differs in any bit."""
    if len(left) != len(right):
        return f"{len(left)} outputs, expected {len(right)}"
    for k, (a, b) in enumerate(zip(left, right, strict=True)):
        if (a.dtype, a.shape, a.tobytes()) != (b.dtype, b.shape, b.tobytes()):
            return f"out{k} differs when fused"
    return None


def _matchings(occurring: Mapping[str, int]) -> Iterator[dict[Name, Name]]:
    """Ways to match the occurrences of each name among themselves, the plain one first."""
    names = [name for name, count in occurring.items() if count > 1]
    orders = [itertools.permutations(range(occurring[name])) for name in names]
    for chosen in itertools.islice(itertools.product(*orders), MOST_MATCHINGS):
        yield {(name, k): (name, to) for name, order in zip(names, chosen, strict=True) for k, to in enumerate(order)}


def differs(before: Run, fused: Module, inputs: Sequence[Sequence[Array]], **limits: Any) -> str | None:
    """What a module does otherwise than one that ran before; None where nothing is."""
    after = Occurrences.of(fused)
    old, new = dict(before.occurrences.counts), dict(after.counts)
    if old != new:
        name = next(n for n in {**old, **new} if old.get(n, 0) != new.get(n, 0))
        return f"{name} occurs {new.get(name, 0)} times, {old.get(name, 0)} in the original"
    first = None
    for matching in _matchings(new):
        why = _matched(before, fused, after, inputs, matching, limits)
        if why is None:
            return None
        first = first or why
    return first


def _matched(
    before: Run,
    fused: Module,
    after: Occurrences,
    inputs: Sequence[Sequence[Array]],
    matching: Mapping[Name, Name],
    limits: Mapping[str, Any],
) -> str | None:
    for name, waits in after.waits.items():
        kept = {matching.get(w, w) for w in waits}
        lost = before.occurrences.waits[matching.get(name, name)] - kept
        if lost:
            return f"{name[0]} no longer waits for {sorted(lost)[0][0]}"
    made = run(fused, inputs, matching, **limits)
    if made.record.keys() != before.record.keys():
        when = sorted(made.record.keys() ^ before.record.keys())[0]
        return f"{when[0][0]} happens at other times: {when}"
    for when, given in before.record.items():
        if made.record[when] != given:
            return f"{when[0][0]} is given other operands: {when}"
    return same_bits(made.outputs, before.outputs)


def alike(module: Module) -> Module:
    """The module with one name for all instructions that only their names tell apart, so that their occurrences may be
    matched either way."""
    module = edit.clone_module(module)
    for computation in module.computations:
        for i in computation.instructions:
            if acts(i):
                attributes = sorted(
                    (name, value.text)
                    for name, value in i.attributes.items()
                    if isinstance(value, Attribute) and name != "metadata"
                )
                key = f"{i.opcode} {i.shape} {attributes}"
                edit.set_attribute(i, "metadata", Attribute.of(Metadata(op_name=f"like {zlib.crc32(key.encode())}")))
    return module


def matchings(module: Module) -> int:
    """In how many ways its occurrences can be matched with themselves by their names."""
    return math.prod(math.factorial(count) for count in Occurrences.of(module).counts.values())


def has_effects(module: Module) -> bool:
    """Whether the world is asked anything."""
    return any(is_answered(i) for c in module.computations for i in c.instructions)
