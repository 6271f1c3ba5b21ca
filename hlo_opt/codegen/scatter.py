"""The emitter of scatter plans: each thread combines an update with the element of the output that its index names."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from hlo_opt.codegen.builder import Builder, last_argument
from hlo_opt.codegen.index_text import fits_int, index_type
from hlo_opt.codegen.indices import named, thread_of
from hlo_opt.codegen.loop import own_thread
from hlo_opt.codegen.scalars import loaded, memory_type, stored
from hlo_opt.codegen.tree import AtomicChange, Barrier, Break, Let, Neighbours
from hlo_opt.codegen.vectors import Targets
from hlo_opt.ir import ElementType, Shape
from hlo_opt.ir.index_map import Expression, Variable, add, constant, delinearize, multiply, variable
from hlo_opt.ir.size import unsigned, unsigned_long
from hlo_opt.ops.code import Code, Name, address, both, call, code, of
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.movement.memory import physical_index
from hlo_opt.ops.reduction.reducers import EXTREMES, monoid
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.scatter import ScatterForm, Update, Updates, element_of, places_of_starts

ScatterOutput = tuple[int, Name, Shape]
"""The number of a scatter's result, and the pointer and shape to write it to."""

_FUNCTIONS = {
    "add": "atomicAdd",
    "maximum": "atomicMax",
    "minimum": "atomicMin",
    "and": "atomicAnd",
    "or": "atomicOr",
    "xor": "atomicXor",
}


def emit(builder: Builder, plan: Plan, segment: Segment[Updates], first_block: int, targets: Targets) -> None:
    """One thread per update, or per window element where updates must run in order."""
    form = ScatterForm(segment.hero)
    written = list(_written(plan, segment, targets))
    if segment.aliases:
        if not form.is_empty:
            _spread(builder, plan, segment, first_block, form, written)
        return
    # not in place: the only block copies the operand first
    block = plan.launch.block
    thread = builder.declare("thread", thread_of(block)) if block > 1 else constant(0)
    for number, pointer, shape in written:
        with _strided(builder, thread, shape.element_count, plan.launch.block) as position:
            index = physical_index(shape, position)
            builder.store(pointer, shape, index, builder.value(segment.hero.operands[number], index))
    if plan.launch.block > 1:
        builder.add(Barrier())
    if form.is_empty:
        return
    if not form.in_order:
        with _strided(builder, thread, math.prod(form.space), plan.launch.block) as position:
            update_one(builder, form, written, position)
        return
    with builder.branch(code("{} == 0", thread)), _strided(builder, constant(0), math.prod(form.space), 1) as at:
        update_one(builder, form, written, at)


def _written(plan: Plan, segment: Segment[Updates], targets: Targets) -> Iterator[ScatterOutput]:
    for number in segment.roots:
        element = element_of(plan.region.roots[number])
        for k, (pointer, shape) in enumerate(targets[number]):
            yield (k if element is None else element), pointer, shape


@contextmanager
def _strided(builder: Builder, thread: Expression, count: int, block: int) -> Iterator[Expression]:
    """A loop of the only block over positions."""
    position = Variable(0, max(0, count - 1), builder.names.fresh("linear"))
    with builder.walk(index_type(Variable(0, count + block, "")), position, thread, count, block):
        yield position


def _spread(
    builder: Builder,
    plan: Plan,
    segment: Segment[Updates],
    first_block: int,
    form: ScatterForm,
    written: Sequence[ScatterOutput],
) -> None:
    threads = segment.part.threads
    position = own_thread(builder, "linear", plan, segment, first_block, threads)
    position = position if threads > 1 else constant(0)
    vector = segment.vector
    if vector == 1:
        update_one(builder, form, written, position)
        return
    change = AtomicChange()
    builder.add(change)
    with builder.inside(change.steps):
        update_one(builder, form, written, position, vector)
    counter = builder.numbered("s")
    group = Neighbours(vector, counter)
    change.walking.append(group)
    with builder.inside(group.making):
        own = builder.declare_index("place", add(multiply(position, vector), variable(counter.text, vector)))
        update_one(builder, form, written, own)


def update_one(
    builder: Builder, form: ScatterForm, written: Sequence[ScatterOutput], position: Expression, vector: int = 1
) -> None:
    """Emit a thread's work: one update, a vector of neighbours, or its element of every window in order."""
    sizes = form.hero.operands[form.results + 1].shape.dimensions
    space = form.space if vector == 1 else (*form.space[:-1], form.space[-1] // vector)
    at = dict(zip(form.parallel, delinearize(position, space), strict=True))
    with ExitStack() as stack:
        for d in form.serial:
            at[d] = stack.enter_context(builder.loop(sizes[d]))
        first = tuple(at[d] for d in range(len(sizes)))
        if vector == 1:
            starts = starts_inside(builder, form, first, stack)
            _combine(builder, form, written, first, target_of(form, first, starts))
            return
        along = form.parallel[-1]
        every = [{**at, along: add(multiply(at[along], vector), constant(k))} for k in range(vector)]
        indices = [tuple(a[d] for d in range(len(sizes))) for a in every]
        if not form.are_neighbours:
            _combine_each(builder, form, written, indices)
            return
        _read_early(builder, form, first, indices)
        _combine_together(builder, form, written, indices, starts_inside(builder, form, first, stack))


def _combine_each(
    builder: Builder, form: ScatterForm, written: Sequence[ScatterOutput], indices: Sequence[Index]
) -> None:
    """Emit neighbouring updates of single elements, which go anywhere: read all, then make one after another."""
    for index in indices:
        for window in windows_of(form, index):
            builder.value(form.hero.operands[form.results], window)
        for k in range(form.results):
            builder.value(form.hero.operands[form.results + 1 + k], index)
    builder.do(call("hlo_read_first"))
    for index in indices:
        with ExitStack() as stack:
            starts = starts_inside(builder, form, index, stack)
            _combine(builder, form, written, index, target_of(form, index, starts))


def _read_early(builder: Builder, form: ScatterForm, first: Index, indices: Sequence[Index]) -> None:
    """Read a thread's start indices and updates before the branch on where its window starts."""
    for window in windows_of(form, first):
        builder.value(form.hero.operands[form.results], window)
    for k in range(form.results):
        for index in indices:
            builder.value(form.hero.operands[form.results + 1 + k], index)
    builder.do(call("hlo_read_first"))


def _batch(form: ScatterForm, index: Index) -> Index:
    return tuple(e for d, e in enumerate(index) if d not in form.dimensions.offset_dims)


def windows_of(form: ScatterForm, index: Index) -> list[Index]:
    """The places of the start indices of an update's window, one for each dimension that they move it along."""
    return places_of_starts(form, _batch(form, index))


def starts_inside(builder: Builder, form: ScatterForm, index: Index, stack: ExitStack) -> dict[int, Expression]:
    """The window's start by operand dimension. What follows runs only for windows that lie wholly inside."""
    s, batch = form.dimensions, _batch(form, index)
    indices = form.hero.operands[form.results]
    names: dict[int, Code] = {}
    inside: list[Code] = []
    for d, where in zip(s.start_index_map, windows_of(form, index), strict=True):
        room = form.rooms[d]
        fits = all(fits_int(Variable(0, high, "")) for high in (indices.shape.type.limits[1], room))
        name = names[d] = builder.unclamped_index(builder.value(indices, where), fits=fits)
        kind, most = ("int", unsigned(room)) if fits else ("long long", unsigned_long(room))
        inside.append(code(f"(unsigned {kind}){{}} <= {most}" if room else "{} == 0", name))
    if names:
        stack.enter_context(builder.branch(both(*inside)))  # unsigned, so a negative start fails as well
    starts: dict[int, Expression] = {}
    for d, name in names.items():
        start: Expression = constant(0)
        if form.rooms[d]:
            start = builder.narrowed(name, form.rooms[d])
        starts[d] = start
    for d, along in zip(s.batching.operand_dims, s.batching.indices_dims, strict=True):
        starts[d] = batch[along - (along > s.index_vector_dim)]
    return starts


def target_of(form: ScatterForm, index: Index, starts: dict[int, Expression]) -> Index:
    """The output element that an update changes."""
    s = form.dimensions
    window = iter([index[d] for d in s.offset_dims])
    target: list[Expression] = []
    for d in range(form.hero.operands[0].shape.rank):
        inside = constant(0) if d in s.removed else next(window)
        target.append(add(inside, starts.get(d, constant(0))))
    return tuple(target)


def _combine(
    builder: Builder, form: ScatterForm, written: Sequence[ScatterOutput], index: Index, target: Index
) -> None:
    half = form.results
    updates = [builder.value(form.hero.operands[half + 1 + k], index) for k in range(half)]
    builder.name_after(form.hero)
    if form.in_turns:
        _together(builder, form, written, updates, target)
        return
    for number, pointer, shape in written:
        how, value = form.updates[number], updates[number]
        if how is Update.STORE:
            builder.store(pointer, shape, target, value)
        elif form.finds_extremes(number) and how is Update.ATOMIC:
            change = AtomicChange()
            builder.add(change)
            with builder.inside(change.steps):
                element = address(pointer, builder.address(shape, target))
                builder.do(atomic(monoid(form.combiner) or "", shape.type, element, value))
            with builder.inside(change.walking):
                _change(builder, form, (number, pointer, shape), value, target)
        elif how is Update.ATOMIC:
            element = address(pointer, builder.address(shape, target))
            builder.do(atomic(monoid(form.combiner) or "", shape.type, element, value))
        elif how is Update.PLAIN:
            _change(builder, form, (number, pointer, shape), value, target)
        elif how is Update.SWAP:
            _swap(builder, form, (number, pointer, shape), value, target)


def _combine_together(
    builder: Builder,
    form: ScatterForm,
    written: Sequence[ScatterOutput],
    indices: Sequence[Index],
    starts: dict[int, Expression],
) -> None:
    """Emit a vector of neighbouring updates: read all, then their targets, then write all."""
    targets = [target_of(form, index, starts) for index in indices]
    half = form.results
    updates = [[builder.value(form.hero.operands[half + 1 + k], index) for index in indices] for k in range(half)]
    builder.name_after(form.hero)
    for number, pointer, shape in written:
        values = updates[number]
        if form.sums_together(number) or form.finds_extremes(number):
            element = address(pointer, builder.address(shape, targets[0]))
            words = [stored(shape.type, value) for value in values]
            builder.do(call(_of_neighbours(monoid(form.combiner) or "", shape.type), element, *words))
            continue
        if form.updates[number] is Update.PLAIN:
            currents = [loaded(shape.type, builder.stored_element(pointer, shape, target)) for target in targets]
            current = [builder.bind_exact(shape.type, value) for value in currents]
            values = [combined(builder, form, number, c, v) for c, v in zip(current, values, strict=True)]
        for target, value in zip(targets, values, strict=True):
            builder.store(pointer, shape, target, value)


def _together(
    builder: Builder, form: ScatterForm, written: Sequence[ScatterOutput], updates: list[Code], target: Index
) -> None:
    """Combine all results at once, for a combiner whose results depend on each other.

    A result with several output buffers is computed from its first one.
    """
    first: dict[int, tuple[Name, Shape]] = {}
    for number, pointer, shape in written:
        first.setdefault(number, (pointer, shape))
    currents = []
    for k in range(form.results):
        pointer, shape = first[k]
        currents.append(
            builder.bind_exact(shape.type, loaded(shape.type, builder.stored_element(pointer, shape, target)))
        )
    results = builder.apply(form.combiner, [*currents, *updates])
    types = [form.hero.operands[k].shape.type for k in range(form.results)]
    results = [builder.bind(t, value) for t, value in zip(types, results, strict=True)]
    for number, pointer, shape in written:
        builder.store(pointer, shape, target, results[number])


def combined(builder: Builder, form: ScatterForm, number: int, current: Code, update: Code) -> Code:
    """One result of a combiner that reads only its own element and update."""
    half = form.results
    arguments = [code("0")] * (2 * half)
    arguments[number], arguments[half + number] = current, update
    return builder.apply(form.combiner, arguments, number)[0]


def _swap(builder: Builder, form: ScatterForm, target: ScatterOutput, update: Code, index: Index) -> None:
    _, _, shape = target
    if shape.type.per_byte > 1:
        _swap_part(builder, form, target, update, index)
        return
    change = AtomicChange()
    builder.add(change)
    with builder.inside(change.steps):
        pointer, shape = target[1:]
        element = address(pointer, builder.address(shape, index))
        swap(builder, form, target[0], shape.type, element, update)
    with builder.inside(change.walking):
        _change(builder, form, target, update, index)


def _change(builder: Builder, form: ScatterForm, target: ScatterOutput, update: Code, index: Index) -> None:
    """Read an element, combine, and write it."""
    number, pointer, shape = target
    current = builder.bind_exact(shape.type, loaded(shape.type, builder.stored_element(pointer, shape, index)))
    builder.store(pointer, shape, index, combined(builder, form, number, current, update))


def swap(
    builder: Builder, form: ScatterForm, number: int, element_type: ElementType, where: Code, update: Code
) -> None:
    """Combine an update with the element of array `number` at an address: read it, and swap unless it has changed."""
    kind = memory_type(element_type)
    element = builder.fresh("element")
    builder.add(Let(f"{kind}* const", element, where, constant=False))
    word = "unsigned long long" if element_type.bits == 64 else "unsigned int"
    seen = builder.fresh("seen")
    builder.add(Let(word, seen, call("hlo_seen", element), constant=False))
    with builder.for_ever():
        current = builder.bind_exact(element_type, loaded(element_type, call("hlo_taken", element, seen)))
        replacement = code(f"({kind})({{}})", stored(element_type, combined(builder, form, number, current, update)))
        done = call("hlo_swapped", element, seen, replacement)
        if element_type.is_narrow_float and monoid(form.combiner) in EXTREMES:  # most of them change nothing
            made = builder.fresh("made")
            builder.add(Let(f"const {kind}", made, replacement, constant=False))
            same = code("{} == {}", made, call("hlo_taken", element, seen))
            done = code("{} || {}", same, call("hlo_swapped", element, seen, of(made)))
        builder.add(Break(done))


def _swap_part(builder: Builder, form: ScatterForm, target: ScatterOutput, update: Code, index: Index) -> None:
    """As `_swap`, for an element that shares its byte with others."""
    number, pointer, shape = target
    bits = shape.type.bits
    place = named(builder, builder.place(shape, index))
    at, seen = builder.text(place), builder.fresh("seen")
    builder.add(Let("unsigned int", seen, call(f"hlo_part_seen<{bits}>", pointer, at), constant=False))
    with builder.for_ever():
        current = builder.bind_exact(shape.type, loaded(shape.type, call(f"hlo_part_taken<{bits}>", at, seen)))
        replacement = stored(shape.type, combined(builder, form, number, current, update))
        builder.add(Break(call(f"hlo_part_swapped<{bits}>", pointer, at, seen, replacement, *last_argument(shape))))


def _of_neighbours(name: str, element_type: ElementType) -> str:
    """The function that combines values with neighbours in memory, for a combiner of this name."""
    kind = element_type.name
    if name not in EXTREMES:
        return f"hlo_atomic_add_{kind}"
    if element_type.is_narrow_float:
        return f"hlo_narrow_extremes<{_greatest(name)}, hlo_load_{kind}, hlo_store_{kind}>"
    return f"hlo_extremes<{_greatest(name)}>"


def _greatest(name: str) -> str:
    return "true" if _FUNCTIONS[name] == "atomicMax" else "false"


def atomic(name: str, element_type: ElementType, element: Code, value: Code) -> Code:
    """The atomic operation that combines a value with the element at an address, for a combiner of this name."""
    if element_type.is_complex:
        return call("hlo_atomic_add", element, value)
    if element_type.is_float and name in EXTREMES:
        return call(f"hlo_extreme<{_greatest(name)}>", element, value)
    function = _FUNCTIONS[name]
    if element_type.is_integer and (name not in ("maximum", "minimum")):
        kind = "unsigned long long" if element_type.bits == 64 else "unsigned int"
        return call(function, code(f"({kind}*){{}}", element), code(f"({kind}){{}}", value))
    return call(function, element, value)
