"""Recipes of what has an effect: random draws, transfers, custom calls that nobody knows, and tokens between them.

The world outside answers each occurrence (see `scripts.drawn_effects`). It knows an instruction by the name in its
metadata, which no pass looks at: so two draws may be equal in all that counts, and must stay two. A value that the
world gives is exact, for both modules that are compared are told the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.ir import Attribute, Instruction, Metadata, Quoted, Raw, Shape, edit
from random_modules.builder import TOKEN, U32
from random_modules.comparable.known import Known, largest
from random_modules.comparable.writer import Writer, arr, family, tup

DRAWN = ("f32", "f64", "f16", "bf16", "s32", "u32")
SENT = ("f32", "f32", "s32", "f64", "bf16")
TARGETS = ("first", "second")
"""Of custom calls that nobody knows."""

SPREAD = 4.0
"""What the world gives where the module names no bounds lies within this of zero."""


def bounds(shape: Shape) -> Known:
    """Of values that the world gives."""
    return Known(0 if shape.type.kind == "unsigned" else -SPREAD, SPREAD, True)


def act(w: Writer, opcode: str, shape: Shape, operands: Sequence[Instruction], **attributes: object) -> Instruction:
    """An instruction that the world answers. It may have to wait for others of its computation."""
    made = w.emit(opcode, shape, operands, **attributes)
    edit.set_attribute(made, "metadata", Attribute.of(Metadata(op_name=made.name)))
    acted = [i for i in w.frame.acted if i.computation is made.computation]
    if acted and not w.number(0, 4):
        made.control_predecessors.append(w.pick(acted))
    w.frame.acted.append(made)
    return made


def twins(w: Writer, values: Sequence[Instruction]) -> None:
    """Users that look alike, of values that are made alike, and what only differs when the values do."""
    one, other = values
    known = w.known[one]
    if w.flag():
        if one.shape.type.is_float and w.flag():
            opcode, now = w.pick(("cosine", "tanh", "logistic")), Known(-1.0, 1.0, False)
            one, other = (w.keep(w.emit(opcode, one.shape, [v]), now) for v in (one, other))
        elif one.shape.type.kind != "unsigned":
            now = Known(-known.high, -known.low, known.exact)
            one, other = (w.keep(w.emit("negate", one.shape, [v]), now) for v in (one, other))
    known = w.known[one]
    if one.shape.type.is_float and w.flag():
        size = largest(known) + largest(w.known[other])
        w.keep(w.emit("subtract", one.shape, [one, other]), Known(-size, size, False))
    elif w.flag() or not one.shape.rank:
        w.moved(w.emit(w.pick(("maximum", "minimum")), one.shape, [one, other]), one, other)
    else:
        sizes = (2 * one.shape.dimensions[0], *one.shape.dimensions[1:])
        w.moved(w.emit("concatenate", arr(one.shape.type, *sizes), [one, other], dimensions=(0,)), one, other)


def several(w: Writer, made: list[Instruction], known: Known) -> None:
    """Offer some of these values, so that others are dead; of two, users that look alike."""
    kept = [w.keep(value, known) for value in made if w.number(0, 5)]
    if len(kept) == 2 and w.number(0, 3):
        twins(w, kept)


@family("random draws", "rng")
def _rng(w: Writer, opcode: str) -> None:
    shape = w.array(DRAWN)
    bound = Shape(shape.type)
    low, high = bounds(shape).low, bounds(shape).high
    operands = [w.take(bound, low, high) for _ in range(2)]
    normal = shape.type.is_float and w.flag()
    distribution = "rng_normal" if normal else "rng_uniform"
    made = [act(w, opcode, shape, operands, distribution=distribution) for _ in range(w.number(1, 2))]
    size = 3 * SPREAD if normal else SPREAD
    several(w, made, Known(0 if low == 0 else -size, size, True))


@family("random draws", "rng-get-and-update-state")
def _state(w: Writer, opcode: str) -> None:
    shape, delta = arr("u64", w.number(1, 2)), w.number(1, 2)
    made = [act(w, opcode, shape, [], delta=delta) for _ in range(w.number(1, 2))]
    if len(made) == 2 and w.flag() and not made[1].control_predecessors:
        made[1].control_predecessors.append(made[0])
    several(w, made, Known(0, 2**64 - 1, True))


def token(w: Writer) -> Instruction:
    """One that is there, one that joins several, or a fresh one."""
    found = w.frame.tokens
    if found and w.number(0, 3):
        return w.pick(found)
    joined = list(dict.fromkeys(w.pick(found) for _ in range(w.number(0, 2)))) if found else []
    return w.emit("after-all", TOKEN, joined)


def _received(w: Writer, whole: Instruction, data: Shape) -> Instruction:
    """The data of (data, .., token), and the token for others."""
    assert whole.shape.elements is not None
    value = w.emit("get-tuple-element", data, [whole], index=0)
    if w.number(0, 3):
        last = len(whole.shape.elements) - 1
        w.frame.tokens.append(w.emit("get-tuple-element", TOKEN, [whole], index=last))
    return value


@family("transfers", "infeed")
def _infeed(w: Writer, opcode: str) -> None:
    """One or two, along one chain of tokens or on the same token."""
    data = w.array(SENT)
    start, made = token(w), []
    for _ in range(w.number(1, 2)):
        made.append(_received(w, act(w, opcode, tup(data, TOKEN), [start], infeed_config=Quoted("feed")), data))
        start = start if w.flag() else token(w)
    several(w, made, bounds(data))


@family("transfers", "outfeed")
def _outfeed(w: Writer, opcode: str) -> None:
    data = w.take(w.array(SENT))
    start = token(w)
    for _ in range(w.number(1, 2)):
        w.frame.tokens.append(act(w, opcode, TOKEN, [data, start], outfeed_shape=Raw(str(data.shape))))
        start = start if w.flag() else token(w)


@family("transfers", "send", "send-done")
def _send(w: Writer, opcode: str) -> None:
    data = w.take(w.array(SENT))
    channel = {"channel_id": w.channel(), "is_host_transfer": True}
    start = act(w, "send", tup(data.shape, U32, TOKEN), [data, token(w)], **channel)
    w.frame.tokens.append(act(w, "send-done", TOKEN, [start], **channel))


@family("transfers", "recv", "recv-done")
def _recv(w: Writer, opcode: str) -> None:
    data = w.array(SENT)
    channel = {"channel_id": w.channel(), "is_host_transfer": True}
    start = act(w, "recv", tup(data, U32, TOKEN), [token(w)], **channel)
    done = act(w, "recv-done", tup(data, TOKEN), [start], **channel)
    several(w, [_received(w, done, data)], bounds(data))


@family("unknown custom calls", "custom-call")
def _custom_call(w: Writer, opcode: str) -> None:
    """With a side effect or without; on tokens or not; one result or several; often two that look alike."""
    data = w.array(SENT)
    operands: list[Instruction] = [w.take(w.array(SENT)) for _ in range(w.number(0, 2))]
    ordered, effect = w.flag(), w.number(0, 3) > 0
    attributes = {
        "custom_call_target": Quoted(w.pick(TARGETS)),
        "custom_call_has_side_effect": True if effect else None,
    }
    made = []
    start = token(w) if ordered else None
    for _ in range(w.number(1, 2)):
        given = [*operands, *([start] if start is not None else [])]
        shape = tup(data, TOKEN) if ordered else data
        whole = act(w, opcode, shape, given, **attributes)
        made.append(_received(w, whole, data) if ordered else whole)
        if start is not None and w.flag():
            start = token(w)
    several(w, made, bounds(data))
