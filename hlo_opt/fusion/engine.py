"""What fusion passes share: judging an edge by legality and policy, fusing it, and looking after the fusions that were
made."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

from hlo_opt.analysis.properties import inside, is_boundary_fusion, is_generic_triton
from hlo_opt.diag import Reason
from hlo_opt.diag.time_limit import check_time
from hlo_opt.fusion.context import PassContext
from hlo_opt.fusion.legality import Edge, control_dependencies, has_plan, illegal, nests_deep
from hlo_opt.fusion.outline import (
    HANDS_ON,
    Origins,
    absorb,
    become_like,
    computed,
    original_name,
    remove_uncalled_of,
    start_fusion,
    tidy,
    undo,
)
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Computation, Instruction, Module, edit
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.sets import results_of

Checked = TypeVar("Checked", bound=Edge)


class Policy(Protocol):
    """What decides whether a legal edge is worth fusing."""

    def against(self, edge: Edge, disabled: frozenset[str] = frozenset()) -> Iterator[Reason]: ...

    def rules_out(self, edge: Edge, disabled: frozenset[str] = frozenset()) -> bool: ...

    @property
    def any_form(self) -> bool:
        """Whether it does not matter which kind of kernel both become; `Engine.finish` takes apart what then has no
        plan."""

    def likeness(self, edge: Edge) -> Hashable:
        """What decides in `against` besides the structure of both sides and the readers of the producer: edges that
        agree in all three are refused alike. None where more decides."""


class Engine:
    """One fusion pass at work on a module, or an explanation of what passes left. `rule` is the pass's name."""

    def __init__(self, module: Module, context: PassContext, rule: str = "") -> None:
        self.module = module
        self.context = context
        self.rule = rule
        self.disabled = context.options.disabled
        self.forced = context.options.forced
        self.separated = context.options.separated
        self.origins = context.origins
        self.forbidden = context.forbidden
        self.state = self._state()
        self.changed: dict[Instruction, None] = {}
        """Fusions that are new or have grown."""
        self.notes: dict[Hashable, Any] = {}
        self.orphans: list[Computation] = []
        """Computations whose fusion is gone."""

    def _state(self) -> FusionState:
        return self.context.memory.state(self.module, self.context.options.target)

    def edge(self, producer: Instruction, consumer: Instruction) -> Edge:
        return Edge(producer, consumer, self.state, self.origins)

    def reasons(self, edge: Edge, policy: Policy) -> Iterator[Reason]:
        """Everything against fusing an edge. A forced edge is only asked whether it is legal."""
        check_time()
        yield from illegal(edge, self.disabled)
        if self.forbidden:
            refused = self.forbidden.get((edge.producer_name, edge.consumer_name))
            if refused is not None:
                yield from self.legal([refused])
        yield from self.forbidding(edge)
        if not self.is_forced(edge):
            yield from policy.against(edge, self.disabled)
            yield from self.chosen(edge)
        unplanned = has_plan(edge) if not policy.any_form or nests_deep(edge) else None
        if unplanned is not None:
            yield from self.legal([unplanned])

    def against(self, checks: Iterable[Callable[[Checked], Reason | None]], edge: Checked) -> Iterator[Reason]:
        """What checks that may be switched off have against an edge, or a pair."""
        check_time()
        return self.switched_on(reason for reason in (check(edge) for check in checks) if reason is not None)

    def switched_on(self, reasons: Iterable[Reason]) -> Iterator[Reason]:
        """Reasons without those that the user switches off."""
        return (reason for reason in reasons if reason.code not in self.disabled)

    def legal(self, reasons: Iterable[Reason]) -> Iterator[Reason]:
        """Reasons that keep a program right: one that is switched off refuses under FUS110."""
        for reason in reasons:
            yield Reason.of("FUS110", rule=reason.code) if reason.code in self.disabled else reason

    def chosen(self, edge: Edge) -> Iterator[Reason]:
        """What the choices of plugins have against fusing an edge."""
        return self.against((choice.against for choice in self.context.options.choices), edge)

    def allows(self, edge: Edge, policy: Policy) -> bool:
        """Whether `reasons` is empty; computed once for edges that are alike."""
        if policy.rules_out(edge, self.disabled) and not self.is_forced(edge):
            return False
        key = self._likeness(edge, policy)
        if key is None:
            return next(self.reasons(edge, policy), None) is None
        known = self.context.memory.known.verdicts
        allowed = known.get(key)
        if allowed is None:
            allowed = known[key] = next(self.reasons(edge, policy), None) is None
        return allowed

    def _likeness(self, edge: Edge, policy: Policy) -> Hashable:
        """Edges alike in this are all allowed or all refused; None where more counts."""
        if self.forced or self.context.options.choices or control_dependencies(edge) is not None:
            return None
        if self.forbidden and (edge.producer_name, edge.consumer_name) in self.forbidden:
            return None
        if self.is_separated(edge):
            return None
        policy_likeness = policy.likeness(edge)
        if policy_likeness is None:
            return None
        producer = edge.producer
        both = self.state.structure_of_both(producer, edge.consumer)
        return both, policy_likeness, policy.any_form, min(len(producer.users), 2), producer.is_root

    def is_forced(self, edge: Edge) -> bool:
        """Whether the user forces the edge: the producer by its name, the consumer by its own or by that of a member
        that reads the producer."""
        if not self.forced:
            return False
        producer = edge.producer_name
        readers = {edge.consumer_name, edge.consumer.name}
        readers.update(reader_names(edge))
        return any((producer, reader) in self.forced for reader in readers)

    def is_forced_pair(self, pair: Edge) -> bool:
        """Whether the user forces one kernel of two, whichever he names first."""
        if not self.forced:
            return False
        names = (pair.producer_name, pair.consumer_name)
        return names in self.forced or names[::-1] in self.forced

    def is_separated(self, edge: Edge) -> bool:
        """Whether the user forbids the edge, or the pair: an output of the producer that he names beside an output of
        the consumer, or beside a member of it that reads the producer."""
        if not self.separated:
            return False
        writers = written_by(edge.producer, self.origins)
        others = written_by(edge.consumer, self.origins)
        readers = set(others)
        for operand in dict.fromkeys(edge.consumer.operands):
            value = operand
            while value is not edge.producer and value.opcode in HANDS_ON and value.operands:
                value = value.operands[0]
            if value is edge.producer:
                readers.update(reader_names(self.edge(operand, edge.consumer)))
        return any(
            (first in writers and second in readers) or (first in others and second in writers)
            for first, second in self.separated
        )

    def forbidding(self, edge: Edge) -> Iterator[Reason]:
        """The reason of an edge, or pair, that the user forbids."""
        if self.is_separated(edge):
            names = {"producer": edge.producer_name, "consumer": edge.consumer_name}
            yield from self.switched_on([Reason.of("FUS505", **names)])

    def refused_before(self, pair: Edge) -> Iterator[Reason]:
        """What the user, or a plan that refused a fusion of one of the pair before, has against a pair."""
        yield from self.forbidding(pair)
        if not self.forbidden:
            return
        reasons = (self.forbidden.get((name, "")) for name in (pair.producer_name, pair.consumer_name))
        yield from self.legal(reason for reason in reasons if reason is not None)

    def fuse(self, producer: Instruction, consumer: Instruction) -> Instruction:
        """Move the producer into the consumer's kernel. Returns the consumer's fusion, made when it is a plain
        instruction."""
        producer_name = original_name(producer, self.origins)
        self.context.fused_by.setdefault(producer_name, self.rule)
        self.context.about = producer_name, original_name(consumer, self.origins)
        structure = self.state.structure_of_both(producer, consumer)
        fusion = consumer if consumer.opcode == "fusion" else self.start(consumer)
        if is_generic_triton(producer) and not is_generic_triton(fusion):
            become_like(fusion, producer)
        self.changed[fusion] = None
        after = self.state.absorbed(producer, fusion, structure)
        moved, called = absorb(producer, fusion, self.origins)
        if called is not None:
            self.orphans.append(called)
        after(moved)
        if producer.parent is None:
            self.changed.pop(producer, None)
        return fusion

    def start(self, instruction: Instruction) -> Instruction:
        """Replace a plain instruction by a fusion that holds it alone, and return that."""
        traits = self.state.traits(instruction)
        fusion = start_fusion(instruction)
        self.state.started(fusion, traits)
        if instruction in self.origins:
            self.origins[fusion.called_by("calls").root] = self.origins[instruction]
        self.state.forget(instruction)
        for user in fusion.users:  # they were looked at with the plain instruction as their operand
            self.state.replaced(instruction, fusion, user)
        self.changed[fusion] = None
        return fusion

    def computations(self) -> list[Computation]:
        """Where kernels are launched from: the entry and bodies of control flow."""
        return list(executed_computations(self.module))

    def finish(self) -> bool:
        """Take apart every new fusion that no plan covers (its edges are refused with the plan's reason), and put the
        rest in order.

        True when a fusion had to be taken apart, so that the pass should look again.
        """
        self.drop_orphans()
        kept: dict[Computation, dict[Instruction, str]] = {}
        again = False
        for fusion in self.changed:
            if fusion.parent is None:
                continue
            self.state.settle(fusion)
            computation = fusion.computation
            edit.sort(fusion.called_by("calls"))
            kind = self.state.kind_of(fusion, with_folds=True)
            fusions = kept.setdefault(computation, {})
            if isinstance(kind, Reason):
                self._take_apart(fusion, kind)
                again = True
            else:
                fusions[fusion] = kind
        for computation, fusions in kept.items():
            tidy(computation, fusions, self.state)
        self.changed.clear()
        if again:
            self.context.memory.clear()
            self.state = self._state()
        return again

    def drop_orphans(self) -> None:
        """Remove the computations whose fusions are gone."""
        remove_uncalled_of(self.module, self.orphans)
        self.orphans.clear()

    def _take_apart(self, fusion: Instruction, reason: Reason) -> None:
        for instruction in undo(fusion):
            self.forbidden[original_name(instruction, self.origins), ""] = reason
            for operand in instruction.operands:
                edge = self.edge(operand, instruction)
                self.forbidden[edge.producer_name, edge.consumer_name] = reason


def reader_names(edge: Edge) -> Iterable[str]:
    """The members of the consumer that read the producer, by their names in the input: those that compute, also through
    bitcasts, before the bitcasts."""
    if edge.consumer.opcode != "fusion" or is_boundary_fusion(edge.consumer):
        return [edge.consumer_name]
    body = edge.consumer.called_by("calls")
    numbers = {n for n, o in enumerate(edge.consumer.operands) if o is edge.producer}
    readers = dict.fromkeys(u for p in body.parameters if p.parameter_number in numbers for u in p.users)
    bitcasts = [r for r in readers if r.opcode == "bitcast"]
    for bitcast in bitcasts:  # grows meanwhile
        del readers[bitcast]
        fresh = dict.fromkeys(u for u in bitcast.users if u not in readers)
        readers.update(fresh)
        bitcasts += [u for u in fresh if u.opcode == "bitcast"]
    return [edge.origins.get(reader, reader.name) for reader in (*readers, *bitcasts)]


def written_by(kernel: Instruction, origins: Origins) -> frozenset[str]:
    """The outputs of a kernel, by the names in the input."""
    body = inside(kernel)
    outputs = [kernel] if body is None else map(computed, results_of(body))
    return frozenset(original_name(output, origins) for output in outputs)
