"""Wrong rewrites of random programs, each of which the proof must refuse.

    python -m scripts.wrong_rewrites [--count 500] [--seed 1] [--seconds S]

The programs are those of tests/random_modules/comparable/drawn.py that have effects. In each, some single things are
changed: an operand, a token, a control dependency that goes, two effects that become one, one that becomes two or goes,
users that take another's value, operands that change places. What then does something else (see `drawn_effects`) must
be refused by `prove_same_graph`. Prints for each kind of change how many were refused and accepted; exit code 1 where
one was accepted that does something else. That a change is refused although it shows in no bit of one run is no
mistake.
"""

from __future__ import annotations

import argparse
import collections
import math
import random
import sys
import time
from collections.abc import Callable, Iterator

import hlo_opt
from hlo_opt.diag import HloOptError, ProofError
from hlo_opt.fusion.proof import prove_same_graph
from hlo_opt.ir import Instruction, Module, edit
from hlo_opt.text import print_module
from scripts import drawn_effects
from scripts.swept import KINDS_OF_PROGRAMS, drawn

OF_A_PROGRAM = 6
"""Changes that are tried on each program."""

Change = Callable[[random.Random, list[Instruction]], bool]
"""Changes one thing of these instructions; False where there is nothing to change."""


def _before(i: Instruction) -> Iterator[Instruction]:
    for other in i.computation.instructions:
        if other is i:
            return
        yield other


def _chosen(generator: random.Random, found: list[tuple[Instruction, int, Instruction]]) -> bool:
    if found:
        user, place, new = generator.choice(found)
        edit.replace_operand(user, place, new)
    return bool(found)


def _others(every: list[Instruction], *, tokens: bool) -> list[tuple[Instruction, int, Instruction]]:
    """(user, place of an operand, another value of its shape that is there before the user)."""
    return [
        (i, place, other)
        for i in every
        for place, old in enumerate(i.operands)
        if (not old.shape.is_array and not old.shape.is_tuple) is tokens
        for other in _before(i)
        if other is not old and other.shape == old.shape
    ]


def operand(generator: random.Random, every: list[Instruction]) -> bool:
    """Another value instead of an operand."""
    return _chosen(generator, _others(every, tokens=False))


def token(generator: random.Random, every: list[Instruction]) -> bool:
    """Another token instead of one."""
    return _chosen(generator, _others(every, tokens=True))


def wait(generator: random.Random, every: list[Instruction]) -> bool:
    """A control dependency less."""
    found = [(i, p) for i in every for p in i.control_predecessors]
    if found:
        user, gone = generator.choice(found)
        user.control_predecessors = [p for p in user.control_predecessors if p is not gone]
    return bool(found)


def merge(generator: random.Random, every: list[Instruction]) -> bool:
    """Two effects become one."""
    effects = [i for i in every if drawn_effects.is_answered(i)]
    found = [(i, o) for i in effects for o in _before(i) if o in effects and o.shape == i.shape]
    if found:
        gone, kept = generator.choice(found)
        edit.replace_all_uses(gone, kept)
        _take_out(gone)
    return bool(found)


def users(generator: random.Random, every: list[Instruction]) -> bool:
    """The users of an effect take another value."""
    effects = [i for i in every if drawn_effects.is_answered(i) and i.users]
    found = [(i, o) for i in effects for o in _before(i) if o.shape == i.shape]
    if found:
        edit.replace_all_uses(*generator.choice(found))
    return bool(found)


def double(generator: random.Random, every: list[Instruction]) -> bool:
    """An effect more, like one that there is."""
    effects = [i for i in every if drawn_effects.is_answered(i)]
    if effects:
        old = generator.choice(effects)
        root = old.computation.root
        edit.clone_into(old.computation, old, list(old.operands))
        edit.set_root(old.computation, root)
    return bool(effects)


def drop(generator: random.Random, every: list[Instruction]) -> bool:
    """An effect less, of which nobody takes the value."""
    found = [i for i in every if drawn_effects.is_answered(i) and not i.users and not i.is_root]
    if found:
        _take_out(generator.choice(found))
    return bool(found)


def swap(generator: random.Random, every: list[Instruction]) -> bool:
    """Two operands change places."""
    found = [i for i in every if len(i.operands) == 2 and i.operands[0].shape == i.operands[1].shape]
    if found:
        user = generator.choice(found)
        edit.set_operands(user, list(reversed(user.operands)))
    return bool(found)


def _take_out(i: Instruction) -> None:
    for other in i.computation.instructions:
        other.control_predecessors = [p for p in other.control_predecessors if p is not i]
    edit.remove(i)


CHANGES: tuple[Change, ...] = (operand, token, wait, merge, users, double, drop, swap)


def changed(generator: random.Random, module: Module) -> tuple[str, Module] | None:
    """The module with one thing changed, and what; None where that gives no module."""
    change = generator.choice(CHANGES)
    made = edit.clone_module(module)
    if not change(generator, [i for c in made.computations for i in c.instructions]):
        return None
    try:
        for computation in made.computations:
            edit.sort(computation)
        made = hlo_opt.parse(print_module(made))
        hlo_opt.verify(made)
    except (HloOptError, ValueError):
        return None
    return change.__name__, made


def is_refused(module: Module, other: Module) -> bool:
    try:
        prove_same_graph(module, other)
    except ProofError:
        return True
    return False


def _unlike(module: Module, other: Module, inputs: list[list[drawn_effects.Array]]) -> str | None:
    """How the modules differ when effects that only their names tell apart may be matched either way; None also where
    there are too many ways to try."""
    module, other = drawn_effects.alike(module), drawn_effects.alike(other)
    if drawn_effects.matchings(module) > drawn_effects.MOST_MATCHINGS:
        return None
    try:
        return drawn_effects.differs(drawn_effects.run(module, inputs), other, inputs)
    except hlo_opt.EvaluationError as error:
        return str(error)


def tried(seed: int, number: int, counts: collections.Counter[tuple[str, str]]) -> Iterator[str]:
    """Change a program in some ways and count; yields what was wrongly accepted."""
    program, _ = drawn(seed, number)
    module = hlo_opt.parse(print_module(program.module))
    inputs = [program.inputs(device) for device in range(math.prod(drawn_effects.counts(module)))]
    before = drawn_effects.run(module, inputs)
    for again in range(OF_A_PROGRAM):
        found = changed(random.Random(f"{seed} {number} {again}"), module)
        if found is None:
            continue
        name, other = found
        refused = is_refused(module, other)
        try:
            why = drawn_effects.differs(before, other, inputs)
        except hlo_opt.EvaluationError as error:
            why = str(error)
        if why is not None and not refused:
            why = _unlike(module, other, inputs)
        does = "does something else" if why is not None else "does the same here"
        counts[name, f"{'refused' if refused else 'accepted'}, {does}"] += 1
        if why is not None and not refused:
            yield f"seed {seed}, number {number}, change {again} ({name}): accepted, but {why}\n{print_module(other)}"


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500, help="of programs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf)
    options = parser.parse_args()
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    wrong, end = 0, time.monotonic() + options.seconds
    for place in range(options.count):
        if time.monotonic() > end:
            break
        for found in tried(options.seed, place * KINDS_OF_PROGRAMS, counts):
            wrong += 1
            print(found, flush=True)
    for (name, what), number in sorted(counts.items()):
        print(f"{number:6d} {name}: {what}")
    print(f"{sum(counts.values())} wrong rewrites, {wrong} wrongly accepted")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
