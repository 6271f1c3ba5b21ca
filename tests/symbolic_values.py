"""Whether two modules give the same for all values of their parameters, as Z3 sees it."""

from __future__ import annotations

from typing import Any

import z3
from symbolic_arrays import Arrays
from symbolic_terms import Terms, UnknownError

from hlo_opt.ir import Module

LIMIT = 4000
"""Milliseconds for a proof."""


def proved(claim: Any, *given: Any) -> bool:
    """Whether a claim holds for all unknowns for which the conditions do; False where Z3 does not say."""
    return answer(claim, *given) is True


def answer(claim: Any, *given: Any) -> bool | None:
    """Whether a claim holds for all unknowns for which the conditions do; None where Z3 does not say."""
    solver = z3.Solver()
    solver.set("timeout", LIMIT)
    solver.add(*given, z3.Not(claim))
    result = solver.check()
    return None if result == z3.unknown else bool(result == z3.unsat)


def equal_for_all_values(before: Module, after: Module, exact: bool = True) -> bool | None:
    """None where Z3 does not say, or nothing here says what an operation gives. What holds for any operation in the
    place of those on floats holds for these."""
    if exact and _compared(before, after, Terms(exact, any_operation=True)):
        return True
    return _compared(before, after, Terms(exact))


def _compared(before: Module, after: Module, terms: Terms) -> bool | None:
    try:
        sides = [Arrays(module, terms).outputs() for module in (before, after)]
    except UnknownError:
        return None
    assert [x.shape for x in sides[0]] == [x.shape for x in sides[1]]
    left, right = ([e for array in side for e in array.reshape(-1)] for side in sides)
    claims: dict[str, Any] = {}
    for x, y in zip(left, right, strict=True):
        for a, b in zip(x, y, strict=True) if isinstance(x, tuple) else ((x, y),):
            claim = z3.simplify(a == b, som=True)
            if not z3.is_true(claim):
                whole = renamed(_with(claim, terms.assumed))
                claims[whole.sexpr()] = whole
    answers = {answer(claim) for claim in claims.values()}
    return False if False in answers else None if None in answers else True


def _with(claim: Any, assumed: list[Any]) -> Any:
    """The claim, under those assumptions that are about its unknowns only."""
    own = set(_unknowns(claim))
    given = [fact for fact in assumed if own.issuperset(_unknowns(fact))]
    return z3.Implies(z3.And(*given), claim) if given else claim


def _unknowns(term: Any) -> list[Any]:
    """The unknown constants of a term, each once, in the order in which it names them."""
    found: dict[Any, None] = {}
    seen, todo = set(), [term]
    while todo:
        part = todo.pop()
        if part.get_id() in seen:
            continue
        seen.add(part.get_id())
        if z3.is_const(part) and part.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            found[part] = None
        todo += reversed(part.children())
    return list(found)


def renamed(claim: Any) -> Any:
    """The claim with its unknowns numbered: what is said of one element and of another is said once."""
    return z3.substitute(claim, *[(u, z3.Const(f"u{k}", u.sort())) for k, u in enumerate(_unknowns(claim))])
