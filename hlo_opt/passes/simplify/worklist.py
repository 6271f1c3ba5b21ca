"""Applies rules to a computation until none fits: each instruction is tried once, and again when something beside it
has changed."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Mapping

from hlo_opt.analysis.properties import has_side_effect
from hlo_opt.diag import ProofError
from hlo_opt.diag.time_limit import check_time
from hlo_opt.fusion.context import Rewritten
from hlo_opt.ir import Computation, Instruction, Shape, edit
from hlo_opt.passes.simplify.collectives import marks_sharding
from hlo_opt.passes.simplify.rule import ANY, Rule, rules, rules_by_opcode
from hlo_opt.passes.simplify.site import Site, packed_tail

MOST_REWRITES = 20
"""The most rewrites per instruction of the input, besides `SPARE`: rules that undo each other end here."""
SPARE = 1000


@functools.lru_cache(maxsize=8192)
def _is_simple(shape: Shape) -> bool:
    """Whether rules may work on values of the shape: all sizes are known, and its layout has an order of dimensions,
    and says of a type of less than a byte that it is packed, but no more."""
    if shape.is_buffer:
        return False
    return all(
        not any(s.dynamic) and (s.layout is None or s.layout.tail in ("", packed_tail(s))) for s in shape.leaves()
    )


class Worklist:
    """The rewriting of one computation."""

    def __init__(self, computation: Computation, effects: set[Computation], fast_math: bool = False) -> None:
        computation.index_users()
        self.computation = computation
        self.rules: Mapping[str, tuple[Rule, ...]] = rules_by_opcode(fast_math)
        self.others = self.rules.get(ANY, ())
        self.effects = effects
        self.waited_for = {p for i in computation.instructions for p in i.control_predecessors}
        self.steps: list[Rewritten] = []
        self.last_created: list[Instruction] = []
        self.left = MOST_REWRITES * len(computation.instructions) + SPARE
        self._by_operands: dict[tuple[str, frozenset[str]], tuple[Rule, ...]] = {}
        self._todo: deque[Instruction] = deque()
        self._listed: set[Instruction] = set()

    def run(self, most: int | None = None) -> int:
        """Rewrite until nothing is left to do, at most `most` times. Returns how often; `edit.sort` has to follow."""
        limit = self.left if most is None else min(most, self.left)
        for instruction in self.computation.instructions:
            self._push(instruction)
        while self._todo and len(self.steps) < limit:
            check_time()
            instruction = self._todo.popleft()
            self._listed.discard(instruction)
            if instruction.parent is self.computation:
                self._look_at(instruction)
        return len(self.steps)

    def replay(self, steps: list[Rewritten]) -> None:
        """Do the steps of a certificate again, in their order. Raises ProofError for a step without a rule or an
        instruction, or with a rule that does not fit."""
        names = {i.name: i for i in self.computation.instructions}
        for step in steps:
            rule, instruction = rules().get(step.rule), names.get(step.instruction)
            if rule is None or instruction is None or instruction.parent is not self.computation:
                raise ProofError(f"the certificate does not fit: {step}")
            fits = instruction.opcode in rule.opcodes or ANY in rule.opcodes
            if not fits or not self.may_go(instruction) or not self._replay(rule, instruction):
                raise ProofError(f"the certificate does not fit: {step}")
            if [new.name for new in self.last_created] != list(step.made):
                raise ProofError(f"the certificate does not fit: {step} makes other operations")
            names.update((new.name, new) for new in self.last_created)

    def _push(self, instruction: Instruction) -> None:
        if instruction not in self._listed and instruction.parameter_number is None:
            self._listed.add(instruction)
            self._todo.append(instruction)

    def may_go(self, instruction: Instruction) -> bool:
        """Whether an instruction may be replaced: it is at no end of a control dependency, has no sharding unless there
        is one device and it does nothing else, and something needs its value."""
        is_sharded = "sharding" in instruction.attributes and not marks_sharding(instruction)
        if is_sharded or self._is_awaited(instruction):
            return False
        if not instruction.users and not instruction.is_root:
            return False
        return _is_simple(instruction.shape) and all(_is_simple(o.shape) for o in instruction.operands)

    def _look_at(self, instruction: Instruction) -> None:
        if not self.may_go(instruction):
            return
        site = Site(instruction)
        for rule in self._worth_trying(instruction):
            value = rule.rewrite(instruction, site)
            if value is None or value is instruction:  # of nearly all
                if site.created or site.met:
                    site.undo()
            elif self._take(rule, instruction, site, value):
                return

    def _worth_trying(self, instruction: Instruction) -> tuple[Rule, ...]:
        """The rules for an opcode and those of the operands."""
        key = instruction.opcode, frozenset([o.opcode for o in instruction.operands])
        found = self._by_operands.get(key)
        if found is None:
            of_opcode = self.rules.get(instruction.opcode, self.others)
            found = self._by_operands[key] = tuple(r for r in of_opcode if not r.of or not key[1].isdisjoint(r.of))
        return found

    def _replay(self, rule: Rule, instruction: Instruction) -> bool:
        """Try one rule; True where it replaced the instruction."""
        site = Site(instruction)
        value = rule.rewrite(instruction, site)
        return value is not None and value is not instruction and self._take(rule, instruction, site, value)

    def _take(self, rule: Rule, instruction: Instruction, site: Site, value: Instruction) -> bool:
        """Put a value that a rule found in the place of an instruction; False where it does not fit."""
        if not self._fits(instruction, value, site):
            site.undo()
            return False
        new_names = tuple(new.name for new in site.created)
        self.steps.append(Rewritten(rule.name, self.computation.name, instruction.name, new_names))
        self.last_created = list(site.created)
        users = list(instruction.users)
        edit.redirect_users(instruction, value)
        self._drop(instruction)
        for collective in site.met:
            if collective.parent is not None and not self._is_awaited(collective):
                self._drop(collective)
        self._sweep(list(reversed(site.created)))
        for new in site.created:
            if new.parent is not None:
                self._push(new)
        self._push(value)
        for user in users:
            self._push(user)
        return True

    def _fits(self, old: Instruction, new: Instruction, site: Site) -> bool:
        """Whether the new value can replace the old one; a new operation gets the old one's layout."""
        assert new.shape.same_values(old.shape), f"{new.name} is {new.shape}, {old.name} {old.shape}"
        if any(
            "sharding" in instruction.attributes for instruction in site.created
        ):  # it was said of what another operation gives
            return False
        if new in site.created and new.shape.is_array:
            edit.set_shape(new, old.shape)
            return True
        return new.shape.same_bytes(old.shape)

    def _sweep(self, todo: list[Instruction]) -> None:
        """Remove values that nothing needs. Operands that lose a user are tried again, with their readers: rules ask
        who else reads a value."""
        while todo:
            dead = todo.pop()
            if dead.parent is None or dead.users or dead.is_root or dead.parameter_number is not None:
                continue
            if self._is_awaited(dead) or has_side_effect(dead):
                continue
            if not self.effects.isdisjoint(dead.called()):
                continue
            todo += self._remove(dead)

    def _is_awaited(self, instruction: Instruction) -> bool:
        """Whether it stands at an end of a control dependency."""
        return bool(instruction.control_predecessors) or instruction in self.waited_for

    def _drop(self, replaced: Instruction) -> None:
        """Remove an instruction that a rule has replaced: the new value has its effect, if any, or the effect is not
        needed, as the meeting of a collective's devices."""
        if not replaced.users and not replaced.is_root:
            self._sweep(self._remove(replaced))

    def _remove(self, dead: Instruction) -> list[Instruction]:
        """Remove an instruction. Returns the operands that nothing needs any more."""
        operands = list(dict.fromkeys(dead.operands))
        edit.remove(dead)
        for operand in operands:
            if len(operand.users) == 1:
                self._push(operand)
                for user in operand.users:
                    self._push(user)
        return [operand for operand in operands if not operand.users]
