"""What the rounds of a loop by lanes read from arrays where counters say: it can be read some rounds before."""

from __future__ import annotations

from collections.abc import Callable

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.scalars import register_type
from hlo_opt.ir.index_map import Expression, add, constant, multiply, substitute
from hlo_opt.ops.code import Code, code
from hlo_opt.plans.lane_loop import LANE, ROUNDS_AHEAD, CarriedValue, Lanes


def in_rounds_ahead(
    builder: Builder, part: Lanes, position: Expression, trips: int, run: Callable[[Expression], None]
) -> None:
    """Emit all rounds of a lane, `ROUNDS_AHEAD` of them one after another in the text: each round reads, into
    the variables that it has just used, what the round `ROUNDS_AHEAD` later needs, so that nothing moves between
    registers."""
    firsts = [_read(builder, part, position, constant(n)) for n in range(ROUNDS_AHEAD)]
    held: list[list[Code]] = []
    for values in firsts:
        held.append([])
        for (window, _), value in zip(part.ahead, values, strict=True):
            builder.name_after(window)
            held[-1].append(builder.variable(window.shape.type, value))

    def round_of(variables: list[Code], round_: Expression) -> None:
        with builder.scope():
            for (window, index), name in zip(part.ahead, variables, strict=True):
                builder.provide(window, None, of_lane(index, position), name)
            run(round_)

    whole, rest = divmod(trips, ROUNDS_AHEAD)
    with builder.loop(whole, carries=True) as chunk:
        for number, variables in enumerate(held):
            round_ = add(multiply(chunk, ROUNDS_AHEAD), constant(number))
            round_of(variables, round_)
            later = _read(builder, part, position, add(round_, constant(ROUNDS_AHEAD)))
            for name, value in zip(variables, later, strict=True):
                builder.assign(name, value)
    for number in range(rest):
        round_of(held[number], constant(whole * ROUNDS_AHEAD + number))


def of_lane(index: tuple[Expression, ...], position: Expression) -> tuple[Expression, ...]:
    """An index of a plan, with the thread's lane in it."""
    return tuple(substitute(e, {LANE: position}) for e in index)


def _read(builder: Builder, part: Lanes, position: Expression, round_: Expression) -> list[Code]:
    """What a round reads of `Lanes.ahead`. The starts of windows are clamped, as always: where there is no such round,
    something inside the array is read."""
    with builder.scope():
        provide_counters(builder, part, round_)
        return [builder.value(window, of_lane(index, position)) for window, index in part.ahead]


def provide_counters(builder: Builder, part: Lanes, round_: Expression) -> None:
    """Provide the counters of an iteration."""
    for value in part.values:
        if value.counts is not None:
            builder.name_after(value.parameter)
            builder.provide(value.parameter, None, (), counted(value, round_, builder))


def counted(value: CarriedValue, round_: Expression, builder: Builder) -> Code:
    """The value of a counter in an iteration."""
    assert value.counts is not None
    first, step = value.counts
    kind = value.parameter.shape.type
    at = builder.text(add(multiply(round_, step), constant(first)))
    return builder.bind(kind, code(f"({register_type(kind)})({{}})", at))
