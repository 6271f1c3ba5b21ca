"""Which kernel of one module became which of another, by the operations that they hold: one that split, several that
joined, one that is cheaper or costlier than it was."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from hlo_opt.analysis.graph.compare.flat import Flat, FlatSite, Scope
from hlo_opt.analysis.graph.compare.matching import Matched, is_run
from hlo_opt.analysis.properties import fusion_backend_kind
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.fusion.summary import ModuleSummary
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ops.sets import fused, is_free
from hlo_opt.report.summary import label
from hlo_opt.text.frames import source_location

WAS_DONE = "FUS504"
"""The code of an edge that no pass refuses."""


@dataclass(eq=False)
class LaunchedKernel:
    """What one launch does, and what it takes: microseconds and bytes of one round, and how many rounds there are."""

    module: Module
    instruction: Instruction
    us: float
    bytes: float
    rounds: int
    sites: list[FlatSite] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.instruction.name

    @cached_property
    def source(self) -> str:
        """The Python line: its own, else that of what it computes last that has one."""
        instructions = (self.instruction, *(s.instruction for s in reversed(self.sites)))
        return next((line for i in instructions if (line := source_location(self.module, i))), "")

    @property
    def label(self) -> str:
        return label(self.instruction)

    @property
    def total_us(self) -> float:
        """Microseconds of all iterations."""
        return self.us * self.rounds


@dataclass(frozen=True)
class Seam:
    """A producer and a consumer that are in one kernel on one side and not on the other; on each side what is decided
    about the edge between them, None where they are one. `passed`: our passes ran, so that what they leave apart is
    refused by one of them."""

    producer: str
    consumer: str
    old: FusionDecision | None
    new: FusionDecision | None
    passed: bool


@dataclass(eq=False)
class KernelGroup:
    """Kernels of the old module and what they became. `kind`: split, joined, regrouped, changed (one became one), added
    or lost."""

    old: list[LaunchedKernel]
    new: list[LaunchedKernel]
    seams: list[Seam] = field(default_factory=list)

    @property
    def kind(self) -> str:
        old, new = len(self.old), len(self.new)
        if not old or not new:
            return "added" if new else "lost"
        if old == new == 1:
            return "changed"
        return "split" if old == 1 else "joined" if new == 1 else "regrouped"

    @property
    def us(self) -> float:
        """By how much it is slower now."""
        return sum(k.total_us for k in self.new) - sum(k.total_us for k in self.old)

    @property
    def bytes(self) -> float:
        """How many bytes more it moves, each loop counted once."""
        return sum(k.bytes for k in self.new) - sum(k.bytes for k in self.old)

    @property
    def source(self) -> str:
        kernels = sorted((*self.new, *self.old), key=lambda k: -k.total_us)
        return next((k.source for k in kernels if k.source), "")


def kernels_of(flat: Flat, summary: ModuleSummary, rounds: dict[Computation, int]) -> dict[Instruction, LaunchedKernel]:
    """The kernels of a module that is priced, with the operations in them."""
    module = flat.module
    named = {(i.name, c.name): i for c in module.computations for i in c.instructions}
    kernels: dict[Instruction, LaunchedKernel] = {}
    for one in summary.launched:
        instruction = named[one.instruction, one.computation]
        often = rounds.get(instruction.computation, 1)
        kernels[instruction] = LaunchedKernel(module, instruction, one.est_us, one.bytes, often)
    owners: dict[Scope, LaunchedKernel | None] = {}
    for scope in reversed(flat.scopes.values()):  # callers first
        outside = None if scope.owner is None else _kernel(scope.owner, kernels, owners)
        owners[scope] = outside
        for site in scope.sites if is_run(scope) else ():  # a reducer is one of many kernels
            kernel = _kernel(site, kernels, owners)
            if kernel is not None:
                kernel.sites.append(site)
    return kernels


def _kernel(
    site: FlatSite, kernels: dict[Instruction, LaunchedKernel], owners: dict[Scope, LaunchedKernel | None]
) -> LaunchedKernel | None:
    for instruction in (site.fusion, site.instruction):
        if instruction is not None and instruction in kernels:
            return kernels[instruction]
    return owners.get(site.scope)


def groups(matched: Matched, old: Iterable[LaunchedKernel], new: Iterable[LaunchedKernel]) -> list[KernelGroup]:
    """The kernels that are not what they were, with what they became."""
    mine, theirs = list(old), list(new)
    links = _Links(matched, mine, theirs)
    different = []
    for group in links.groups():
        if group.kind == "changed" and _is_same(group.old[0], group.new[0]):
            continue
        different.append(group)
    return different


NEAR = 1e-3
"""Share by which the prices of two kernels may differ that count as one: a fusion of one operation has fewer operands
than the operation."""


def _is_same(one: LaunchedKernel, other: LaunchedKernel) -> bool:
    """Whether two kernels cost the same, and are of one kind where both are fusions."""
    if fused(one.instruction) is not None and fused(other.instruction) is not None:
        kinds = {fusion_backend_kind(one.instruction), fusion_backend_kind(other.instruction)} - {""}
        if one.label != other.label or len(kinds) > 1:
            return False
    is_near = abs(one.us - other.us) <= NEAR * max(one.us, other.us)
    return is_near and abs(one.bytes - other.bytes) <= max(64, NEAR * one.bytes) and one.rounds == other.rounds


class _Links:
    """Which kernels share operations. An operation that several kernels compute again says where a kernel went only if
    nothing else does."""

    def __init__(self, matched: Matched, old: list[LaunchedKernel], new: list[LaunchedKernel]) -> None:
        self._old, self._new = old, new
        self._parent: dict[LaunchedKernel, LaunchedKernel] = {k: k for k in (*old, *new)}
        self._linked: set[LaunchedKernel] = set()
        self._homes: dict[FlatSite, LaunchedKernel] = {site: k for k in (*old, *new) for site in k.sites}
        self._counts = {s: Counter(site.forward for site in s.sites) for s in _scopes(matched)}
        self._fixed = {s: _constant(s) for s in _scopes(matched)}
        self._by_value: dict[Scope, dict[int, list[LaunchedKernel]]] = {}
        for kernel in old:
            for site in kernel.sites:
                twin = site.partner
                if twin is not None and self._says(site) and self._is_only(site) and self._is_only(twin):
                    self._join(kernel, self._homes.get(twin))
        backwards = {new: old for old, new in matched.scopes.items()}
        for kernels, scopes in ((old, matched.scopes), (new, backwards)):
            for kernel in kernels:
                if kernel not in self._linked:
                    self._by_repeated(kernel, scopes)
        for kernels in (old, new):
            for kernel in kernels:
                if kernel not in self._linked:  # constants alone
                    for site in kernel.sites:
                        if site.partner is not None:
                            self._join(kernel, self._homes.get(site.partner))

    def _by_repeated(self, kernel: LaunchedKernel, scopes: dict[Scope, Scope]) -> None:
        for site in kernel.sites:
            scope = scopes.get(site.scope)
            if scope is None or not self._says(site):
                continue
            if site.partner is not None:
                self._join(kernel, self._homes.get(site.partner))
                continue
            if scope not in self._by_value:
                self._by_value[scope] = _by_forward(scope, self._homes)
            for home in self._by_value[scope].get(site.forward, ()):
                self._join(kernel, home)

    def _says(self, site: FlatSite) -> bool:
        """Whether an operation says what a kernel is for: not what any kernel computes again, because it costs nothing
        or depends on nothing."""
        return not is_free(site.opcode) and site not in self._fixed[site.scope]

    def _is_only(self, site: FlatSite) -> bool:
        return self._counts[site.scope][site.forward] == 1

    def _join(self, one: LaunchedKernel, other: LaunchedKernel | None) -> None:
        if other is None:
            return
        self._linked.update((one, other))
        a, b = self._root(one), self._root(other)
        if a is not b:
            self._parent[b] = a

    def _root(self, kernel: LaunchedKernel) -> LaunchedKernel:
        parent = self._parent
        while parent[kernel] is not kernel:
            parent[kernel] = parent[parent[kernel]]
            kernel = parent[kernel]
        return kernel

    def groups(self) -> list[KernelGroup]:
        different: dict[LaunchedKernel, KernelGroup] = {}
        for kernel in self._old:
            different.setdefault(self._root(kernel), KernelGroup([], [])).old.append(kernel)
        for kernel in self._new:
            different.setdefault(self._root(kernel), KernelGroup([], [])).new.append(kernel)
        return list(different.values())


def _scopes(matched: Matched) -> list[Scope]:
    return [*matched.old.scopes.values(), *matched.new.scopes.values()]


def _by_forward(scope: Scope, homes: dict[FlatSite, LaunchedKernel]) -> dict[int, list[LaunchedKernel]]:
    kernels: dict[int, list[LaunchedKernel]] = defaultdict(list)
    for site in scope.sites:
        home = homes.get(site)
        if home is not None and home not in kernels[site.forward][-1:]:
            kernels[site.forward].append(home)
    return kernels


def _constant(scope: Scope) -> set[FlatSite]:
    """The operations of a scope that depend on nothing: constants, and what is computed from them alone."""
    constants: set[FlatSite] = set()
    for site in scope.sites:
        if site.instruction.parameter_number is None and all(s in constants for s, _ in site.inputs):
            constants.add(site)
    return constants
