"""Recipes of control flow, computations that are called, tuples, random bits, and what runs on one device."""

from __future__ import annotations

from hlo_opt.ir import Called, Instruction, Raw, Shape
from random_modules.comparable import collectives, effects  # noqa: F401  # in the families that are looked up below
from random_modules.comparable.known import TRUTH, Known
from random_modules.comparable.writer import FAMILIES, FLOATS, INTEGERS, PRED, S32, Writer, arr, family, tup

STATES = (*FLOATS, *INTEGERS, "pred")

OUTSIDE_OF_FUSIONS = frozenset(
    o for o, name in FAMILIES.items() if name in ("random draws", "transfers", "unknown custom calls", "devices")
)
"""Opcodes that no fusion may hold."""


def _outcome(w: Writer, shape: Shape, known: Known) -> Instruction:
    """A value of the computation that is being written, of this shape, clamped into this interval."""
    return w.take(shape, known.low, known.high, exact=known.exact)


def _interval(value: Instruction, known: Known) -> Known:
    """What a state's value may be in every iteration: the interval of operands of its type, and exact only where every
    computation is."""
    return Known(known.low, known.high, known.exact and not value.shape.type.is_float)


@family("control flow", "while")
def _while(w: Writer, opcode: str) -> None:
    """Counts to a limit that the text tells, or an operand; a condition on exact values may end it sooner. Sometimes it
    runs twice."""
    count = w.number(0, 3)
    starts = [w.take(w.array(STATES, 0, 2)) for _ in range(count)]
    if w.number(0, 3) == 0:
        starts, count = [*starts, w.take(PRED)], count + 1
    knowns = [_interval(s, w.known[s]) for s in starts]
    most = w.number(0, 6)
    limit = w.take(S32, 0, most) if w.number(0, 3) == 0 else None
    flags = [k for k, s in enumerate(starts) if s.shape == PRED]
    is_known = limit is None and not flags
    form = "known trip count" if is_known else "trip count that depends on data" if flags else "computed trip count"
    w.forms.append(f"while, {form}{', nested' if w.nested else ''}")
    carried = [] if limit is None else [limit]
    knowns += [w.known[v] for v in carried]
    state = tup(S32, *(s.shape for s in (*starts, *carried)))
    with w.computation([state], [TRUTH]) as (whole,):
        at = w.emit("get-tuple-element", S32, [whole], index=0)
        end = w.constant(S32, most) if limit is None else w.emit("get-tuple-element", S32, [whole], index=count + 1)
        goes = w.emit("compare", PRED, [at, end], direction="LT")
        for k in flags:
            goes = w.emit("and", PRED, [goes, w.emit("get-tuple-element", PRED, [whole], index=k + 1)])
        condition = w.finish(goes)
    with w.computation([state], [TRUTH], meets=is_known) as (whole,):
        at = w.element(whole, 0, Known(0, most, True))
        inner = [w.element(whole, k + 1, known) for k, known in enumerate(knowns)]
        w.grow(4)
        after = [w.emit("add", S32, [at, w.constant(S32, 1)])]
        pairs = list(zip(inner, knowns, strict=True))
        after += [i if not w.number(0, 3) else _outcome(w, i.shape, k) for i, k in pairs[:count]] + inner[count:]
        body = w.finish(w.emit("tuple", state, after))
    first = w.emit("tuple", state, [w.constant(S32, 0), *starts, *carried])
    for _ in range(2 if w.number(0, 5) == 0 else 1):
        made = w.emit(opcode, state, [first], condition=condition, body=body)
        w.element(made, 0, Known(0, most, True))
        for k, known in enumerate(knowns[:count]):
            w.element(made, k + 1, known)


@family("control flow", "conditional")
def _conditional(w: Writer, opcode: str) -> None:
    shape = w.array(STATES, 0, 2)
    selector = w.take(PRED) if w.flag() else w.take(S32, -1, 4, exact=True)
    count = 2 if selector.shape == PRED else w.number(1, 4)
    chosen = "by a truth value" if selector.shape == PRED else "one branch" if count == 1 else "several branches"
    w.forms.append(f"conditional, {chosen}{', nested' if w.nested else ''}")
    operands, branches, total = [], [], None
    for _ in range(count):
        value = w.take(w.array(STATES, 0, 2))
        packed = w.flag()
        operands.append(w.emit("tuple", tup(value.shape), [value]) if packed else value)
        known = w.known[value]
        with w.computation([operands[-1].shape], [known]) as (given,):
            if packed:
                w.element(given, 0, known)
            w.grow(3)
            root = w.take(shape)
            total = w.known[root] if total is None else total.union(w.known[root])
            # a parameter as the root of several branches is fine, the root of one must be in it
            branches.append(w.finish(root if root.opcode != "parameter" else w.emit("copy", shape, [root])))
    if selector.shape == PRED:
        named = {"true_computation": branches[0], "false_computation": branches[1]}
    else:
        named = {"branch_computations": Called(*(c for b in branches for c in b.computations), is_list=True)}
    assert total is not None
    for _ in range(2 if w.number(0, 5) == 0 else 1):
        w.keep(w.emit(opcode, shape, [selector, *operands], **named), total)


@family("call and fusion", "call", "fusion")
def _call(w: Writer, opcode: str) -> None:
    """Several operands; one result or a tuple of several. A call may be made twice. Fusions hold nothing that has an
    effect."""
    operands = [w.take(w.array(STATES)) for _ in range(w.number(1, 3))]
    called_twice = opcode == "call" and w.number(0, 2) == 0
    w.forms.append(f"{opcode}{', made twice' if called_twice else ''}{', nested' if w.nested else ''}")
    left_out = w.left_out
    if opcode == "fusion":
        w.left_out = {*left_out, *OUTSIDE_OF_FUSIONS}
    with w.computation([o.shape for o in operands], [w.known[o] for o in operands], meets=True) as parameters:
        w.grow(4)
        made = [i for i in w.frame.values if i not in parameters and not i.users]
        roots = made[-w.number(1, 3) :] or [w.emit("copy", p.shape, [p]) for p in parameters[:1]]
        knowns = [w.known.get(r, w.known[operands[0]]) for r in roots]
        alone = len(roots) == 1 and w.flag()
        shape = roots[0].shape if alone else tup(*(r.shape for r in roots))
        body = w.finish(roots[0] if alone else w.emit("tuple", shape, roots))
    w.left_out = left_out
    named = {"to_apply": body} if opcode == "call" else {"kind": "kLoop", "calls": body}
    for _ in range(2 if called_twice else 1):
        called = w.emit(opcode, shape, operands, **named)
        if alone:
            w.keep(called, knowns[0])
            continue
        for index, known in enumerate(knowns):
            w.element(called, index, known)


@family("tuples", "tuple", "get-tuple-element")
def _tuple(w: Writer, opcode: str) -> None:
    """Values into a nested tuple and out again."""
    values = [w.take(w.array(STATES)) for _ in range(w.number(1, 3))]
    inner = w.emit("tuple", tup(*(v.shape for v in values)), values)
    outer = w.emit("tuple", tup(inner.shape, values[0].shape), [inner, values[0]])
    again = w.emit("get-tuple-element", inner.shape, [outer], index=0)
    index = w.number(0, len(values) - 1)
    w.element(again, index, w.known[values[index]])


@family("random bits", "rng-bit-generator")
def _random_bits(w: Writer, opcode: str) -> None:
    algorithm, words = w.pick((("rng_three_fry", 2), ("rng_philox", 3)))
    state, bits = arr("u64", words), arr(w.pick(("u32", "u64", "u16", "u8")), *w.dimensions())
    made = w.emit(opcode, tup(state, bits), [w.take(state)], algorithm=algorithm)
    w.element(made, 0, Known(0, 2**64 - 1, True))
    w.element(made, 1, Known(0, 2**bits.type.bits - 1, True))


@family("tuples", "after-all", "add-dependency")
def _tokens(w: Writer, opcode: str) -> None:
    value = w.take(w.array(STATES))
    w.moved(w.emit("add-dependency", value.shape, [value, effects.token(w)]), value)


@family("tuples", "constant", "parameter")
def _fresh(w: Writer, opcode: str) -> None:
    shape = w.array(STATES)
    low, high = (-9.0, 9.0) if shape.type.is_float else (0, 1) if shape.type.kind == "pred" else (0, 100)
    w.fresh(shape, low, high)


@family("copy", "domain")
def _domain(w: Writer, opcode: str) -> None:
    source = w.take(w.array(STATES))
    domain = Raw('{kind="sharding", entry={replicated}, exit={maximal device=0}}')
    w.moved(w.emit(opcode, source.shape, [source], domain=domain), source)


@family("asynchronous forms", "async-start", "async-update", "async-done", "copy-start", "copy-done")
def _asynchronous(w: Writer, opcode: str) -> None:
    source = w.take(w.array(FLOATS))
    shape, context = source.shape, arr("u32")
    if opcode.startswith("copy"):
        start = w.emit("copy-start", tup(shape, shape, context), [source])
        w.moved(w.emit("copy-done", shape, [start]), source)
        return
    body = w.computation([shape], [w.known[source]])
    with body as (parameter,):
        called = w.finish(w.emit("negate", shape, [parameter]))
    start = w.emit("async-start", tup(tup(shape), shape, context), [source], calls=called)
    middle = w.emit("async-update", start.shape, [start]) if opcode == "async-update" else start
    known = w.known[source]
    w.keep(w.emit("async-done", shape, [middle]), Known(-known.high, -known.low, known.exact))
