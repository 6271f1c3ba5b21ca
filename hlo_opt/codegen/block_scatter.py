"""The emitter of block scatters: start the block's copies, combine updates in them, then change the output."""

from __future__ import annotations

from contextlib import ExitStack

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.index_text import index_type
from hlo_opt.codegen.indices import block_of, only_first, thread_of
from hlo_opt.codegen.scalars import literal, loaded, memory_type, stored
from hlo_opt.codegen.scatter import atomic, starts_inside, swap, target_of, windows_of
from hlo_opt.codegen.tree import AtomicChange, Barrier, ThreadChain
from hlo_opt.codegen.vectors import Targets
from hlo_opt.ir.index_map import Expression, Variable, add, constant, delinearize, modulo, multiply
from hlo_opt.ops.code import Code, Name, address, cell, code
from hlo_opt.ops.reduction.reducers import monoid
from hlo_opt.plans.block_scatter import BLOCK, SharedUpdates, start
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.scatter import ScatterForm, Update


def emit(builder: Builder, plan: Plan, segment: Segment[SharedUpdates], first_block: int, targets: Targets) -> None:
    """Emit the phases, with a barrier between two."""
    part = segment.part
    hero, form, kind = part.hero, ScatterForm(part.hero), part.hero.shape.type
    only_first(builder, BLOCK, plan.launch.block)
    block = builder.declare("block", block_of(first_block, segment.blocks))
    thread = builder.declare("thread", thread_of(BLOCK))
    table = builder.array(memory_type(kind), builder.numbered("copies"), part.cells * part.copies, shared=True)
    nothing = literal(kind, kind.dtype.type(start(hero)))
    every = Variable(0, part.cells * part.copies - 1, builder.names.fresh("cell"))
    with builder.walk("int", every, thread, part.cells * part.copies, BLOCK):
        builder.assign(cell(table, builder.text(every)), stored(kind, nothing))
    builder.add(Barrier())
    first = builder.declare("first", add(multiply(block, BLOCK), thread))
    copy = builder.declare("of_lane", modulo(thread, part.copies))
    _combine_all(builder, segment, table, first, builder.text(copy))
    builder.add(Barrier())
    own = Variable(0, part.cells - 1, builder.names.fresh("cell"))
    with builder.walk("int", own, thread, part.cells, BLOCK):
        total = builder.variable(kind, nothing)
        with builder.loop(part.copies) as number:
            of_thread = modulo(add(thread, number), part.copies)  # neighbouring threads use different banks
            one = loaded(kind, cell(table, builder.text(add(multiply(own, part.copies), of_thread))))
            (combination,) = builder.apply(form.combiner, [total, builder.bind_exact(kind, one)])
            builder.assign(total, combination)
        for root in segment.roots:
            for pointer, _ in targets[root]:
                _change(builder, form, pointer, builder.text(own), total)


def _combine_all(builder: Builder, segment: Segment[SharedUpdates], table: Name, first: Expression, copy: Code) -> None:
    """Combine the block's share of the updates in its copies; a single processor does so thread after thread."""
    part, threads = segment.part, segment.blocks * BLOCK
    chain = ThreadChain()
    builder.add(chain)
    for statements in (chain.steps, chain.walking):
        with builder.inside(statements):
            share = Variable(0, part.shares - 1, builder.names.fresh("share"))
            kind = index_type(Variable(0, part.shares + threads, ""))
            with builder.walk(kind, share, first, part.shares, threads):
                _combine_some(builder, part, table, share, copy, at_once=statements is chain.steps)


def _combine_some(
    builder: Builder, part: SharedUpdates, table: Name, share: Expression, copy: Code, *, at_once: bool
) -> None:
    """Combine neighbouring updates: read all before the first is combined, so that loads are wide."""
    form, vector = ScatterForm(part.hero), part.vector
    indices, updates = part.hero.operands[1:]
    shape = part.hero.shape
    at = dict(zip(form.parallel, delinearize(share, (*form.space[:-1], form.space[-1] // vector)), strict=True))
    along = form.parallel[-1]
    every = [{**at, along: add(multiply(at[along], vector), constant(k))} for k in range(vector)]
    places = [tuple(each[d] for d in range(updates.shape.rank)) for each in every]
    for place in places:
        for window in windows_of(form, place):
            builder.value(indices, window)
        builder.value(updates, place)
    for place in places:
        with ExitStack() as stack:
            starts = starts_inside(builder, form, place, stack)
            update = builder.value(updates, place)
            own = builder.text(builder.place(shape, target_of(form, place, starts)))
            where = code("{} * {} + {}", own, part.copies, copy) if part.copies > 1 else own
            _combine(builder, form, table, where, update, at_once=at_once)


def _change(builder: Builder, form: ScatterForm, array: Name, at: Code, value: Code) -> None:
    """Combine a value with an element of the output."""
    change = AtomicChange()
    builder.add(change)
    for statements in (change.steps, change.walking):
        with builder.inside(statements):
            _combine(builder, form, array, at, value, at_once=statements is change.steps)


def _combine(builder: Builder, form: ScatterForm, array: Name, at: Code, value: Code, *, at_once: bool) -> None:
    """Combine a value with an element; `at_once` by an atomic operation."""
    kind = form.hero.shape.type
    if not at_once:
        current = builder.bind_exact(kind, loaded(kind, cell(array, at)))
        (combination,) = builder.apply(form.combiner, [current, value])
        builder.assign(cell(array, at), stored(kind, combination))
    elif form.updates[0] is Update.ATOMIC:
        builder.do(atomic(monoid(form.combiner) or "", kind, address(array, at), value))
    else:
        swap(builder, form, 0, kind, address(array, at), value)
