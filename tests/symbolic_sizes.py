"""Rules proved for all sizes: what a rule makes of a family of modules, read as one module with unknown sizes.

A template is an example with expressions of unknowns in the place of numbers. The rule rewrites some instances of it.
Where these differ in their numbers only, each number is the same polynomial of the unknowns in all of them, found from
some and held against the others; so the module before the rule, and the one after it, are read from what the rule does.
Then Z3 shows that both have the same element at each place, for all unknowns for which the premises hold.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import z3
from symbolic_terms import UnknownError
from symbolic_values import answer

from hlo_opt.ir import Instruction, Module
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.contraction.table import DotDimensions
from hlo_opt.ops.movement.table import padding_dimensions, slice_dimensions
from hlo_opt.ops.reduction.reducers import monoid
from hlo_opt.ops.reduction.table import reduced

INSTANCES = 40
Form = tuple[int, ...]
"""The coefficients of the monomials of `Family.monomials`."""


@dataclass(frozen=True)
class Template:
    """A rule, its module with `<expression>` for numbers, the unknowns, and what holds for them besides that they are
    at least `least`."""

    rule: str
    line: str
    premises: tuple[str, ...] = ()
    kind: str = "f32"
    least: int = 2

    @property
    def unknowns(self) -> list[str]:
        words = {w for part in re.findall(r"<([^>]*)>", self.line) for w in re.findall(r"[a-z]\w*", part)}
        return sorted(words | {w for p in self.premises for w in re.findall(r"[a-z]\w*", p)})

    def instances(self) -> Iterator[tuple[dict[str, int], str]]:
        """Values of the unknowns, and the module's line."""
        draw = random.Random(self.line)
        count, unknowns = 0, self.unknowns
        holds = compile(" and ".join(self.premises) or "True", self.rule, "eval")
        for _ in range(400_000):
            values = {u: draw.randint(self.least, 12) for u in unknowns}
            if eval(holds, {}, values):
                yield values, re.sub(r"<([^>]*)>", lambda m, v=values: str(eval(m[1], {}, v)), self.line)
                count += 1
                if count == INSTANCES:
                    return
        raise AssertionError(f"{self.rule}: the premises leave too little")


@dataclass
class Node:
    """An instruction of a family: what is the same in all instances, and its numbers, which are polynomials."""

    opcode: str
    operands: list[Node]
    same: tuple[Any, ...]
    sizes: list[Any] = field(default_factory=list)
    numbers: list[Any] = field(default_factory=list)


def written(i: Instruction) -> tuple[tuple[Any, ...], list[int]]:
    """What of an instruction has to be the same in all instances, and its numbers besides its sizes."""
    same: list[Any] = [i.opcode, str(i.shape.type) if i.shape.is_array else "tuple", len(i.operands)]
    numbers: list[int] = []
    if i.parameter_number is not None:
        same.append(i.parameter_number)
    elif i.literal is not None:
        value = np.asarray(i.literal.value)
        if value.size != 1:
            raise UnknownError("a constant of several numbers")
        if i.shape.type.is_integer:
            numbers.append(int(value.reshape(-1)[0]))
        else:
            same.append(value.tobytes())
    elif i.opcode == "slice":
        same += [p.stride for p in slice_dimensions(i)]
        numbers += [p.start for p in slice_dimensions(i)]
    elif i.opcode == "pad":
        same += [p.interior for p in padding_dimensions(i)]
        numbers += [n for p in padding_dimensions(i) for n in (p.low, p.high)]
    elif i.opcode == "reduce":
        same += [reduced(i), monoid(i.called_by("to_apply"))]
    elif i.opcode == "dot":
        same.append(DotDimensions.of(i))
    else:
        same += [i.ints("dimensions"), i.word("direction"), i.value("iota_dimension", 0), i.value("index", 0)]
    return tuple(same), numbers


class Family:
    """The instances of one module, read as a module with unknown sizes."""

    def __init__(self, template: Template, values: Sequence[dict[str, int]], modules: Sequence[Module]) -> None:
        self.names, self.values = template.unknowns, values
        pairs = itertools.combinations_with_replacement(self.names, 2)
        self.monomials = [(), *((n,) for n in self.names), *pairs]
        if any(n.count("*") > 1 for n in re.findall(r"<([^>]*)>", template.line)):
            self.monomials += list(itertools.combinations_with_replacement(self.names, 3))
        self._rows = np.array([[_product(m, v) for m in self.monomials] for v in values], float)
        self.unknown = {n: z3.Int(n) for n in self.names}
        known: dict[tuple[Instruction, ...], Node] = {}
        self.root = self._node([m.entry.root for m in modules], known)

    def _node(self, instances: list[Instruction], known: dict[tuple[Instruction, ...], Node]) -> Node:
        key = tuple(instances)
        if key in known:
            return known[key]
        read = [written(i) for i in instances]
        if len({same for same, _ in read}) > 1:
            raise UnknownError(f"instances differ: {sorted({str(same) for same, _ in read})}")
        operands = [self._node([i.operands[k] for i in instances], known) for k in range(len(instances[0].operands))]
        node = known[key] = Node(instances[0].opcode, operands, read[0][0])
        if instances[0].shape.is_array:
            node.sizes = [self._fit(list(s)) for s in zip(*(i.shape.dimensions for i in instances), strict=True)]
        node.numbers = [self._fit(list(n)) for n in zip(*(numbers for _, numbers in read), strict=True)]
        return node

    def _fit(self, numbers: list[int]) -> Any:
        """The polynomial that gives these numbers, few and small coefficients first: constants, affine, products."""
        for width in (1, 1 + len(self.names), len(self.monomials)):
            rows = self._rows[:, :width]
            coefficients = np.rint(np.linalg.lstsq(rows, np.array(numbers, float), rcond=None)[0])
            if (rows @ coefficients == numbers).all():
                terms = [
                    int(c) * _product(m, self.unknown) for c, m in zip(coefficients, self.monomials, strict=False) if c
                ]
                return z3.simplify(z3.IntVal(0) + z3.Sum(terms)) if terms else z3.IntVal(0)
        raise UnknownError(f"no polynomial gives {numbers}")


def _product(monomial: Sequence[str], values: Any) -> Any:
    result: Any = 1
    for name in monomial:
        result = result * values[name]
    return result


@dataclass
class Fold:
    """What folding gives: the operation, the number that it starts with, and an element for each value of the bound
    unknowns, which are below these sizes."""

    operation: str
    start: Any
    bound: list[Any]
    sizes: list[Any]
    body: Any


class Reading:
    """The elements of a family's module. `given` are conditions that hold by themselves: of digits, and of unknowns."""

    def __init__(self) -> None:
        self.given: list[Any] = []
        self._count = 0
        self._digits: dict[str, list[Any]] = {}

    def fresh(self, name: str = "d") -> Any:
        self._count += 1
        return z3.Int(f"{name}!{self._count}")

    def element(self, n: Node, at: list[Any]) -> Any:
        """One element. Raises UnknownError for an operation that no line here is about."""
        own = getattr(self, "_" + n.opcode.replace("-", "_"), None)
        if own is not None:
            return own(n, at)
        spec = find(n.opcode)
        if spec is None or spec.kind is not OpKind.ELEMENTWISE:
            raise UnknownError(n.opcode)
        operands = [self.element(o, at if o.sizes else []) for o in n.operands]
        if any(isinstance(o, Fold) for o in operands):
            raise UnknownError("an operation on a fold")
        if n.opcode in COMBINED and operands[0].sort() != z3.BoolSort():
            return combined(n.opcode, operands)
        if n.opcode == "select":
            return z3.If(*operands)
        if n.opcode == "copy":
            return operands[0]
        return z3.Function(f"{n.opcode} {n.same[4:]}", *[o.sort() for o in operands], sort_of(n))(*operands)

    def _parameter(self, n: Node, at: list[Any]) -> Any:
        name = f"p{n.same[3]}"
        return z3.Function(name, *[z3.IntSort()] * len(at), sort_of(n))(*at) if at else z3.Const(name, sort_of(n))

    def _constant(self, n: Node, at: list[Any]) -> Any:
        if n.numbers:
            return n.numbers[0]
        if sort_of(n) == z3.BoolSort():
            return z3.BoolVal(n.same[3] != b"\0")
        value = float(np.frombuffer(n.same[3], np.float32)[0])
        return z3.RealVal(value) if np.isfinite(value) else z3.Real(f"constant {value}")

    def _iota(self, n: Node, at: list[Any]) -> Any:
        along = at[n.same[5]]
        return along if sort_of(n) == z3.IntSort() else z3.ToReal(along)

    def _broadcast(self, n: Node, at: list[Any]) -> Any:
        return self.element(n.operands[0], [at[d] for d in n.same[3]])

    def _transpose(self, n: Node, at: list[Any]) -> Any:
        order = n.same[3]
        return self.element(n.operands[0], [at[order.index(d)] for d in range(len(order))])

    def _slice(self, n: Node, at: list[Any]) -> Any:
        strides = n.same[3:]
        return self.element(n.operands[0], [s + k * t for k, s, t in zip(at, n.numbers, strides, strict=True)])

    def _reverse(self, n: Node, at: list[Any]) -> Any:
        turned = [s - 1 - k if d in n.same[3] else k for d, (k, s) in enumerate(zip(at, n.sizes, strict=True))]
        return self.element(n.operands[0], turned)

    def _pad(self, n: Node, at: list[Any]) -> Any:
        source, value = n.operands
        lows, interiors = n.numbers[::2], n.same[3:]
        places, inside = [], []
        for k, low, interior, size in zip(at, lows, interiors, source.sizes, strict=True):
            step = (k - low) if not interior else (k - low) / (interior + 1)
            places.append(step)
            inside += [k >= low, step < size]
            inside += [(k - low) % (interior + 1) == 0] if interior else []
        return self._choice(z3.And(*inside), self.element(source, places), self.element(value, []))

    def _concatenate(self, n: Node, at: list[Any]) -> Any:
        (along,) = n.same[3]
        begins, value = z3.IntVal(0), None
        parts = []
        for operand in n.operands:
            moved = [*at[:along], at[along] - begins, *at[along + 1 :]]
            parts.append((begins, self.element(operand, moved)))
            begins = begins + operand.sizes[along]
        for begin, element in parts:
            value = element if value is None else self._choice(at[along] >= begin, element, value)
        return value

    def _dynamic_slice(self, n: Node, at: list[Any]) -> Any:
        source, *starts = n.operands
        places = [k + s for k, s in zip(at, self._starts(starts, source.sizes, n.sizes), strict=True)]
        return self.element(source, places)

    def _dynamic_update_slice(self, n: Node, at: list[Any]) -> Any:
        source, update, *starts = n.operands
        places = [k - s for k, s in zip(at, self._starts(starts, source.sizes, update.sizes), strict=True)]
        inside = [c for p, s in zip(places, update.sizes, strict=True) for c in (p >= 0, p < s)]
        return self._choice(z3.And(*inside), self.element(update, places), self.element(source, at))

    def _starts(self, starts: list[Node], sizes: list[Any], window: list[Any]) -> list[Any]:
        found = []
        for start, size, part in zip(starts, sizes, window, strict=True):
            s = self.element(start, [])
            found.append(z3.If(s < 0, 0, z3.If(s > size - part, size - part, s)))
        return found

    def _choice(self, condition: Any, x: Any, y: Any) -> Any:
        if isinstance(x, Fold) or isinstance(y, Fold):
            raise UnknownError("a choice between folds")
        return z3.If(condition, x, y)

    def _reshape(self, n: Node, at: list[Any]) -> Any:
        """Row-major places, group by group of dimensions that have the same number of elements on both sides."""
        source, d, k = n.operands[0], 0, 0
        places = [z3.IntVal(0) for _ in source.sizes]
        wide = [[k for k, s in enumerate(sizes) if not is_number(s, 1)] for sizes in (source.sizes, n.sizes)]
        while k < len(wide[0]) or d < len(wide[1]):
            own, new = wide[0][k : k + 1], wide[1][d : d + 1]
            while not is_number(_size([source.sizes[x] for x in own]) - _size([n.sizes[x] for x in new]), 0):
                if k + len(own) < len(wide[0]) and len(own) <= len(new):
                    own.append(wide[0][k + len(own)])
                elif d + len(new) < len(wide[1]):
                    new.append(wide[1][d + len(new)])
                elif k + len(own) < len(wide[0]):
                    own.append(wide[0][k + len(own)])
                else:
                    raise UnknownError("no groups")
            k, d = k + len(own), d + len(new)
            found = self._regrouped([at[x] for x in new], [n.sizes[x] for x in new], [source.sizes[x] for x in own])
            for x, place in zip(own, found, strict=True):
                places[x] = place
        return self.element(source, places)

    def _regrouped(self, at: list[Any], sizes: list[Any], source: list[Any]) -> list[Any]:
        """The digits by the sizes of a source of the number that has these digits by these sizes; no size is 1."""
        if len(at) == len(source) and all(is_number(a - b, 0) for a, b in zip(sizes, source, strict=True)):
            return at
        place: Any = z3.IntVal(0)
        for a, s in zip(at, sizes, strict=True):
            place = place * s + a
        if len(source) == 1:
            return [z3.simplify(place, som=True)]
        place = z3.simplify(place, som=True)
        key = f"{place.sexpr()} in {[s.sexpr() for s in source]}"
        if key in self._digits:
            return self._digits[key]
        digits = self._digits[key] = [self.fresh() for _ in source]
        whole: Any = z3.IntVal(0)
        for digit, size in zip(digits, source, strict=True):
            self.given += [digit >= 0, digit < size]
            whole = whole * size + digit
        self.given.append(z3.simplify(whole == place, som=True))
        return digits

    _bitcast = _reshape

    def _reduce(self, n: Node, at: list[Any]) -> Any:
        source, start = n.operands
        folded, operation = n.same[3], n.same[4]
        if operation is None:
            raise UnknownError("a reducer without a name")
        bound = [self.fresh("r") for _ in folded]
        sizes = [source.sizes[d] for d in folded]
        kept = iter(at)
        places = [bound[folded.index(d)] if d in folded else next(kept) for d in range(len(source.sizes))]
        body, first = self.element(source, places), self.element(start, [])
        return self._folded(operation, first, bound, sizes, body)

    def _folded(self, operation: str, first: Any, bound: list[Any], sizes: list[Any], body: Any) -> Any:
        if any(is_number(s, 0) for s in sizes):
            return first
        ones = [k for k, s in enumerate(sizes) if is_number(s, 1)]
        if ones:
            zero = [(bound[k], z3.IntVal(0)) for k in ones]
            body = z3.substitute(body, *zero) if not isinstance(body, Fold) else body
            if isinstance(body, Fold):
                raise UnknownError("a fold of folds of one element")
            bound = [b for k, b in enumerate(bound) if k not in ones]
            sizes = [s for k, s in enumerate(sizes) if k not in ones]
        if not bound and not isinstance(body, Fold):
            return combined(operation, [first, body])
        if isinstance(body, Fold):
            if body.operation != operation or operation != "add" or not z3.is_true(z3.simplify(body.start == 0)):
                raise UnknownError("a fold of folds")
            bound, sizes, body = [*bound, *body.bound], [*sizes, *body.sizes], body.body
        return Fold(operation, first, bound, sizes, body)

    def _dot(self, n: Node, at: list[Any]) -> Any:
        d: DotDimensions = n.same[3]
        left, right = n.operands
        bound = [self.fresh("r") for _ in d.lhs_contracting]
        sizes = [left.sizes[k] for k in d.lhs_contracting]
        batch = at[: len(d.lhs_batch)]
        free_left, free_right = d.free(len(left.sizes), right=False), d.free(len(right.sizes), right=True)
        own = dict(zip(d.lhs_batch, batch, strict=True)) | dict(zip(d.lhs_contracting, bound, strict=True))
        own |= dict(zip(free_left, at[len(batch) : len(batch) + len(free_left)], strict=True))
        other = dict(zip(d.rhs_batch, batch, strict=True)) | dict(zip(d.rhs_contracting, bound, strict=True))
        other |= dict(zip(free_right, at[len(batch) + len(free_left) :], strict=True))
        factors = [
            self.element(o, [places[k] for k in range(len(o.sizes))]) for o, places in ((left, own), (right, other))
        ]
        if any(isinstance(f, Fold) for f in factors):
            raise UnknownError("a product of folds")
        return self._folded("add", z3.RealVal(0), bound, sizes, factors[0] * factors[1])

    def _tuple(self, n: Node, at: list[Any]) -> Any:
        raise UnknownError("a tuple")


COMBINED: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "negate": lambda a: -a,
    "maximum": lambda a, b: z3.If(a > b, a, b),
    "minimum": lambda a, b: z3.If(a < b, a, b),
}


def combined(operation: str, operands: Sequence[Any]) -> Any:
    if operation not in COMBINED:
        raise UnknownError(operation)
    return COMBINED[operation](*operands)


def is_number(term: Any, number: int) -> bool:
    return z3.is_true(z3.simplify(term == number, som=True))


def sort_of(n: Node) -> Any:
    kind = n.same[1]
    return z3.BoolSort() if kind == "pred" else z3.IntSort() if kind[0] in "su" else z3.RealSort()


def _size(sizes: Sequence[Any]) -> Any:
    result: Any = z3.IntVal(1)
    for s in sizes:
        result = result * s
    return result


def equal_for_all_sizes(template: Template, rewrite: Callable[[str, str], tuple[Module, Module]]) -> bool | None:
    """Whether both modules of a template have the same elements; None where that cannot be read, or Z3 does not say."""
    instances = list(template.instances())
    pairs = [rewrite(line, template.kind) for _, line in instances]
    values = [v for v, _ in instances]
    before, after = (Family(template, values, [pair[side] for pair in pairs]) for side in (0, 1))
    premises = [eval(p, {}, before.unknown) for p in template.premises]
    premises += [u >= template.least for u in before.unknown.values()]
    roots = [(before.root, after.root)]
    if before.root.opcode == "tuple":
        roots = list(zip(before.root.operands, after.root.operands, strict=True))
    answers = []
    for left, right in roots:
        at = [z3.Int(f"i{d}") for d in range(len(left.sizes))]
        inside = [c for k, s in zip(at, left.sizes, strict=True) for c in (k >= 0, k < s)]
        sizes = z3.And(*[a == b for a, b in zip(left.sizes, right.sizes, strict=True)])
        reading = Reading()
        x, y = reading.element(left, at), reading.element(right, at)
        answers.append(answer(sizes, *premises))
        answers.append(_same(x, y, [*premises, *inside, *reading.given]))
    return False if False in answers else None if None in answers else True


def _same(x: Any, y: Any, given: list[Any]) -> bool | None:
    if not isinstance(x, Fold) and not isinstance(y, Fold):
        return answer(x == y, *given)
    if not isinstance(x, Fold) or not isinstance(y, Fold) or x.operation != y.operation:
        return None
    if len(x.bound) != len(y.bound):
        return None
    best: bool | None = False
    for order in itertools.permutations(range(len(y.bound))):
        renamed = [(y.bound[k], x.bound[n]) for n, k in enumerate(order)]
        body, extra = z3.substitute(y.body, *renamed), [z3.substitute(g, *renamed) for g in given]
        within = [c for b, s in zip(x.bound, x.sizes, strict=True) for c in (b >= 0, b < s)]
        sizes = z3.And(*[x.sizes[n] == y.sizes[k] for n, k in enumerate(order)])
        claims = [answer(z3.And(x.start == y.start, sizes), *given), answer(x.body == body, *extra, *within)]
        if all(claims):
            return True
        best = None if None in claims else best
    return best
