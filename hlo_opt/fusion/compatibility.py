"""Can two kernels be one that writes what both wrote? Structure first, then XLA's rules about heroes, shapes, slices,
updates in place and budgets.

Sources: xla/backends/gpu/transforms/multi_output_fusion.cc, xla/service/gpu/gpu_fusible.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hlo_opt.analysis.graph.cluster import Cluster, Node, merge_clusters, side_by_side
from hlo_opt.analysis.memory.forms import fast_form, moves_data, tiled_transpose
from hlo_opt.analysis.properties import is_generic_triton
from hlo_opt.analysis.xla.heroes import hero_of, is_real_reduction
from hlo_opt.analysis.xla.performance import Priced, fused_estimate
from hlo_opt.diag import Reason
from hlo_opt.fusion.caches import Cache
from hlo_opt.fusion.choices import library_call
from hlo_opt.fusion.in_place import in_place_conflict, readers_of_updated, scatter_conflict
from hlo_opt.fusion.legality import (
    MAX_CODE_SIZE,
    MAX_OPERANDS_AND_OUTPUTS,
    MAX_REDUCTIONS,
    Check,
    Edge,
    boundary,
    control_dependencies,
    lowering_of_consumer,
    lowering_of_producer,
    several_outputs,
    shared_memory_budget,
    side_effects,
)
from hlo_opt.fusion.outline import is_read_by_element
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Instruction, Shape, SliceDimension
from hlo_opt.ops.emission import HEROES, LOOP_PRODUCERS, XlaEmitter, emitters_of
from hlo_opt.ops.sets import fused, is_elementwise, is_view, root_of, tuple_index
from hlo_opt.plans.limits import DEEPEST
from hlo_opt.plans.sketch import Sketch, as_fusion

SMALL_PARENT = 1024
"""Bytes of a value that siblings may read in different places: it stays in a cache."""

_OUTPUT_EMITTERS = ("loop", "in-place", "reduction", "transpose")


@dataclass(eq=False)
class MultiOutputEdge(Edge):
    """A producer that moves into its consumer and is written too, for its other users."""

    def structure(self) -> int:
        """The same number for kernels that differ in names only."""
        return self.state.structure_with_producer(self.producer, self.consumer)

    def cluster(self) -> Cluster:
        state = self.state
        return merge_clusters(
            state.cluster(self.producer), state.cluster(self.consumer), self.producer, keep_producer=True
        )


@dataclass(eq=False)
class Beside(Edge):
    """Two kernels of which neither needs the other; the "producer" is the one that takes the "consumer" in."""

    parent: Instruction | None = None

    def structure(self) -> int:
        """The same number for kernels that differ in names only."""
        return self.state.structure_beside(self.producer, self.consumer)

    def cluster(self) -> Cluster:
        """Both side by side, over common inputs."""
        return side_by_side(self.state.cluster(self.producer), self.state.cluster(self.consumer))


Pair = MultiOutputEdge | Beside
PairCheck = Callable[[Pair], Reason | None]


def structure(pair: Pair) -> Iterator[Reason]:
    """The reasons, whatever the policy, why both cannot be one kernel. The caller makes sure that neither depends on
    the other."""
    checks: tuple[Check, ...] = (
        side_effects,
        control_dependencies,
        boundary,
        lowering_of_producer,
        lowering_of_consumer,
        *((several_outputs,) if isinstance(pair, MultiOutputEdge) else ()),
    )
    for check in checks:
        reason = check(pair)
        if reason is not None:
            yield reason
    for instruction in (pair.producer, pair.consumer):
        if not is_read_by_element(instruction):
            user = next((u.name for u in instruction.users if tuple_index(u) is None), "the caller")
            yield Reason.of("FUS134", instruction=instruction.name, user=user)


def without_plan(pair: Pair) -> Reason | None:
    """Why kernels cannot compute both as one, looked at only where that may be."""
    if not (pair.above.reduces or pair.below.reduces) and pair.above.depth + pair.below.depth <= DEEPEST:
        return None
    planned = _plan(pair)
    return planned if isinstance(planned, Reason) else None


def _plan(pair: Pair) -> Sketch | Reason:
    if pair._merged is None:
        if isinstance(pair, Beside):
            pair._merged = pair.state.sketch_beside(pair.producer, pair.consumer)
        else:
            pair._merged = pair.state.sketch(pair.structure(), pair.cluster)
    return pair._merged


def keeps_row_reductions(pair: Pair) -> Reason | None:
    """Reductions whose rows threads share must not become loops in single threads, nor must cumulative windows."""
    state = pair.state
    windows = pair.above.windows + pair.below.windows
    if not (pair.above.reductions or pair.below.reductions or windows) or next(structure(pair), None) is not None:
        return None
    wanted = state.row_reductions(pair.producer) + state.row_reductions(pair.consumer)
    planned = _plan(pair) if wanted else None
    if not isinstance(planned, Sketch) or planned.row_reductions >= wanted:
        return None
    code = "FUS409" if windows else "FUS407"
    return Reason.of(code, consumer=pair.consumer_name, producer=pair.producer_name, kind=planned.kind)


def is_one_walk(pair: MultiOutputEdge) -> bool:
    """Whether the threads of one kernel go over what both read as they would for either: then it is read once, and
    nothing is computed twice. Threads of columns do so where both sides reduce: they write whole columns worse than a
    loop does."""
    above, below = (pair.state.row_reductions(i) for i in (pair.producer, pair.consumer))
    if not above + below or next(structure(pair), None) is not None:
        return False
    planned = _plan(pair)
    if not isinstance(planned, Sketch) or planned.row_reductions != above + below:
        return False
    return planned.one_walk or (planned.segments == 1 and above > 0 and below > 0)


def output_form(pair: Pair) -> Reason | None:
    """IsFusibleAsMultiOutputFusionRoot, of the consumer; of both where they stand beside each other."""
    for instruction in (pair.producer, pair.consumer) if isinstance(pair, Beside) else (pair.consumer,):
        form = walk_of(pair.state, instruction).form
        if form:
            return Reason.of("FUS133", instruction=_name(pair, instruction), form=form)
    return None


def form_of_output(state: FusionState, instruction: Instruction) -> str:
    """What XLA's loop and reduction emitters cannot write beside other outputs; empty when they can write the
    instruction."""
    body = fused(instruction)
    if body is None:
        if HEROES.get(instruction.opcode) is XlaEmitter.REDUCTION:
            return "" if fast_form(instruction) is not None else "reduce in a loop"
        is_output = is_elementwise(instruction) or tiled_transpose(instruction) is not None
        return "" if is_output else instruction.opcode
    if is_generic_triton(instruction):
        return "Triton fusion"
    emitter, _ = state.emitter(instruction)
    if emitter not in _OUTPUT_EMITTERS:
        return f"{emitter} fusion"
    root = body.root
    if HEROES.get(root.opcode) is XlaEmitter.REDUCTION and root.shape.is_tuple and fast_form(root) is None:
        return "variadic reduce in a loop"
    return ""


def producer_form(pair: Pair) -> Reason | None:
    """IsProducerMultiOutputFusible: no update in place, computed by a loop, no transpose."""
    producer = pair.producer
    cluster = pair.state.cluster(producer)
    why = ""
    if not emitters_of(cluster.opcodes).isdisjoint((XlaEmitter.IN_PLACE, XlaEmitter.SCATTER)):
        why = "updates a buffer in place"
    elif fused(producer) is not None:
        emitter, _ = pair.state.emitter(producer)
        if emitter != "loop" or is_generic_triton(producer):
            why = f"is a {'Triton' if is_generic_triton(producer) else emitter} kernel"
    elif producer.opcode not in LOOP_PRODUCERS and not is_elementwise(producer):
        why = "is no loop"
    if not why and any(moves_data(n.instruction) for n in cluster.members):
        why = "moves data"
    return Reason.of("FUS136", producer=pair.producer_name, opcode=producer.opcode, why=why) if why else None


def plain_siblings(pair: Pair) -> Reason | None:
    """XLA joins siblings into fusions only; two single operations stay apart."""
    if fused(pair.producer) is not None or fused(pair.consumer) is not None:
        return None
    return Reason.of("FUS135", first=pair.producer_name, second=pair.consumer_name)


@dataclass(frozen=True)
class JoinWalk:
    """What two kernels must have in common to become one with several outputs.

    shape  the shape whose elements the threads compute, one after the other
    hero   the form of the hero's emitter; empty for a loop, which goes with every hero
    form   why the kernel cannot have another output beside its own (`form_of_output`); empty where it can
    """

    shape: Shape
    hero: str
    form: str


def walk_of(state: FusionState, instruction: Instruction) -> JoinWalk:
    """How the threads of an instruction's kernel go; computed once, and handed on by `joint` when kernels are
    joined."""
    return state.caches.of(WALK, instruction)


def _walk(state: FusionState, instruction: Instruction) -> JoinWalk:
    hero = hero_for(state, instruction)
    return JoinWalk(_loop_shape(hero), _hero_form(hero), form_of_output(state, instruction))


def code_size(state: FusionState, instruction: Instruction) -> int:
    """Operations that a kernel emits."""
    return state.caches.of(CODE_SIZE, instruction)


def own_code_size(state: FusionState, instruction: Instruction) -> int:
    """The same without what is known of the kernels that it was joined from, whose sizes add up."""
    sizes, number = state.known.code_sizes, state.structure(instruction)
    if number not in sizes:
        sizes[number] = state.priced_by_xla(instruction).usage.code_size
    return sizes[number]


def copies_emitted(edge: Edge) -> int:
    """How often the consumer would emit the producer."""
    state = edge.state
    copies, number = state.known.copies_emitted, state.structure_of_both(edge.producer, edge.consumer)
    if number not in copies:
        below = state.priced_by_xla(edge.consumer)
        copies[number] = below.usage.emitted[below.cluster.inputs[edge.producer]]
    return copies[number]


WALK: Cache[JoinWalk] = Cache(_walk)
CODE_SIZE: Cache[int] = Cache(own_code_size)


def joint(pair: Pair) -> dict[Cache[object], object]:
    """What is known of both as one kernel without looking at it: its code size, and its `JoinWalk` where the outputs of
    both can stand side by side. `FusionState.joined` takes it."""
    if isinstance(pair, MultiOutputEdge):
        return {}
    state = pair.state
    walks = [walk_of(state, i) for i in (pair.producer, pair.consumer)]
    leader = walks[0] if walks[0].hero or not walks[1].hero else walks[1]
    known: dict[Cache[object], object] = {CODE_SIZE: code_size(state, pair.producer) + code_size(state, pair.consumer)}
    if not any(w.form for w in walks):
        known[WALK] = leader
    return known


def hero_for(state: FusionState, instruction: Instruction) -> Node:
    """The hero that constrains the kernel's form most: a reduction or a tiled transpose, else the first root
    (GetRealHeroForMultiOutputFusion)."""
    cluster = state.cluster(instruction)
    for root in cluster.roots:
        hero = hero_of(root, cluster.emitters)
        if not hero.is_input and (is_real_reduction(root, hero) or tiled_transpose(hero.instruction) is not None):
            return hero
    return cluster.roots[0]


def _loop_shape(hero: Node) -> Shape:
    """What the threads of a kernel walk: a reduction's or a transpose's operand, or the output."""
    instruction = hero.instruction
    if not hero.is_input and (fast_form(instruction) is not None or tiled_transpose(instruction) is not None):
        return instruction.operands[0].shape
    return hero.shape


def heroes_fit(pair: Pair) -> Reason | None:
    """FusionHeroesAreCompatible."""
    first, second = (walk_of(pair.state, i).hero for i in (pair.producer, pair.consumer))
    if first and second and first != second:
        return _heroes_differ(pair, first, second)
    tiled = first.startswith("transpose") or second.startswith("transpose")
    if tiled and isinstance(pair, MultiOutputEdge) and not _stays_tiled(pair):
        return _heroes_differ(pair, first or "loop", second or "loop")
    return None


def _heroes_differ(pair: Pair, first: str, second: str) -> Reason:
    return Reason.of(
        "FUS432", first=pair.producer_name, first_hero=first, second=pair.consumer_name, second_hero=second
    )


def _hero_form(hero: Node) -> str:
    """The properties of a hero that its emitter depends on; empty for a loop."""
    if hero.is_input:
        return ""
    reduction = fast_form(hero.instruction)
    if reduction is not None:
        return f"{'row' if reduction.is_row else 'column'} reduction of {_sizes(reduction.sizes)}"
    tiled = tiled_transpose(hero.instruction)
    if tiled is not None:
        return f"transpose of {_sizes(tiled.sizes)} to {_sizes(tiled.permutation)}"
    return ""


def _stays_tiled(pair: MultiOutputEdge) -> bool:
    """Whether only elementwise operations with one user each lie between the producer and the consumer's result."""
    cluster = pair.state.cluster(pair.consumer)
    node = cluster.inputs[pair.producer]
    while node.users:
        if len(node.users) != 1:
            return False
        node = node.users[0]
        if node.opcode == "copy" or not (is_elementwise(node.instruction) or is_view(node.opcode)):
            return tiled_transpose(node.instruction) is not None and not node.users
    return True


def shapes_fit(pair: Pair) -> Reason | None:
    """ShapesCompatibleForMultiOutputFusion: one loop for both."""
    first, second = (walk_of(pair.state, i).shape for i in (pair.producer, pair.consumer))
    if same_walk(first, second):
        return None
    return Reason.of(
        "FUS431", first=pair.producer_name, first_shape=str(first), second=pair.consumer_name, second_shape=str(second)
    )


def same_walk(first: Shape, second: Shape) -> bool:
    """Whether elements at the same place in memory belong together: equal shapes but for the type, or a reshape or
    transpose that moves nothing."""
    if not (first.is_array and second.is_array):
        return False
    if first.element_count != second.element_count:
        return False
    if first.dimensions == second.dimensions and first.minor_to_major == second.minor_to_major:
        return True
    return _in_memory(first) == _in_memory(second) or (_is_row_major(first) and _is_row_major(second))


def _in_memory(shape: Shape) -> list[int]:
    """The sizes of the dimensions from the slowest to the fastest in memory, without those of size 1."""
    return [shape.dimensions[d] for d in reversed(shape.minor_to_major) if shape.dimensions[d] != 1]


def _is_row_major(shape: Shape) -> bool:
    return tuple(shape.minor_to_major) == tuple(range(shape.rank - 1, -1, -1))


def slices_overlap(pair: Pair) -> Reason | None:
    """ParameterSlicesAreNonOverlapping: siblings that read other parts of their parent share nothing."""
    if not isinstance(pair, Beside) or pair.parent is None:
        return None
    parent = pair.parent
    if not parent.shape.is_array or parent.shape.byte_size < SMALL_PARENT:
        return None
    first, second = (_only_slice(pair, i, parent) for i in (pair.producer, pair.consumer))
    if first is None or second is None:
        return None
    if all(a.start < b.limit and b.start < a.limit for a, b in zip(first, second, strict=True)):
        return None
    return Reason.of(
        "FUS433",
        first=pair.producer_name,
        first_slice=_slice_text(first),
        second=pair.consumer_name,
        second_slice=_slice_text(second),
        parent=parent.name,
    )


def _only_slice(pair: Pair, user: Instruction, parent: Instruction) -> list[SliceDimension] | None:
    """The dimensions of the slice through which a user reads its parent, when it reads it in no other way."""
    place = pair.state.cluster(user).inputs.get(parent)
    if place is None or len(place.users) != 1 or place.users[0].opcode != "slice":
        return None
    parts = place.users[0].instruction.value("slice", ())
    return [d for d in parts if isinstance(d, SliceDimension)] if isinstance(parts, tuple) else None


def _slice_text(dimensions: list[SliceDimension]) -> str:
    return "[" + ", ".join(f"{d.start}:{d.limit}" for d in dimensions) + "]"


def updates_in_place(pair: Pair) -> Reason | None:
    """The loops of a kernel that updates in place cover the update only."""
    for instruction in (pair.producer, pair.consumer):
        root = root_of(instruction)
        if HEROES.get(root.opcode) is XlaEmitter.IN_PLACE:
            return Reason.of("FUS631", update=_name(pair, instruction), size=root.operands[1].shape.element_count)
    return None


def updates_wait(pair: Pair) -> Reason | None:
    """A kernel that updates a buffer in place, and waits for another that reads it, cannot run as early as its pair."""
    for kernel in (pair.producer, pair.consumer):
        for buffer, reader in readers_of_updated(pair.state.cluster(kernel), kernel):
            names = {"buffer": buffer.name, "reader": reader.name}
            return Reason.of("FUS632", update=_name(pair, kernel), **names)
    return None


def buffers_fit(pair: Pair) -> Reason | None:
    """FusionFitsInBudget: operands and outputs of both as one kernel."""
    operands, outputs = buffers(pair)
    if operands + outputs <= MAX_OPERANDS_AND_OUTPUTS:
        return None
    return Reason.of(
        "FUS201", count=operands + outputs, operands=operands, outputs=outputs, limit=MAX_OPERANDS_AND_OUTPUTS
    )


def buffers(pair: Pair) -> tuple[int, int]:
    """(operands, outputs) of both as one kernel. Constants become code."""
    one, other = pair.producer, pair.consumer
    outputs = sum(1 for i in (one, other) for _ in i.shape.leaves())
    if len(one.operands) + len(other.operands) + outputs <= MAX_OPERANDS_AND_OUTPUTS:
        return len(one.operands) + len(other.operands), outputs
    needed = dict.fromkeys((*one.operands, *other.operands))
    return sum(o.literal is None and o is not one for o in needed), outputs


def reductions_fit(pair: Pair) -> Reason | None:
    count = pair.above.reductions + pair.below.reductions
    if count <= MAX_REDUCTIONS or not (pair.above.reductions and pair.below.reductions):
        return None
    return Reason.of("FUS203", count=count, limit=MAX_REDUCTIONS)


def code_fits(pair: Pair) -> Reason | None:
    """ProducerConsumerMergedTooLarge; of siblings the sizes add up."""
    copies = copies_emitted(pair) if isinstance(pair, MultiOutputEdge) else 1
    size = code_size(pair.state, pair.producer) * copies + code_size(pair.state, pair.consumer)
    if size <= MAX_CODE_SIZE:
        return None
    return Reason.of("FUS230", producer=pair.producer_name, consumer=pair.consumer_name, size=size, limit=MAX_CODE_SIZE)


def pays(pair: Pair, worth: float = 1.0) -> Reason | None:
    """Whether one kernel takes no longer than two, or that share of it; or why there can be none."""
    prices = pair.state.prices
    one, other = pair.producer, pair.consumer
    fused = prices.with_producer(one, other) if isinstance(pair, MultiOutputEdge) else prices.beside(one, other)
    if isinstance(fused, Reason):
        return fused
    us_unfused = prices.of(one).us + prices.of(other).us
    return None if fused.us <= worth * us_unfused else _slower(pair, "", fused.us, us_unfused)


def reductions_pay(pair: Pair) -> Reason | None:
    """As `pays`, asked only where there are reductions: in one launch these share the shared memory, and what finds
    none left is folded by single threads, or in narrower tiles. Loops have nothing to lose."""
    return pays(pair) if pair.above.reduces or pair.below.reduces else None


def pays_by_xla(pair: Pair) -> Reason | None:
    """EstimateRunTimesForMultiOutputFusion; for siblings the same sum over their common cluster."""
    us_unfused, us_fused = times_by_xla(pair)
    return None if us_fused <= us_unfused else _slower(pair, XLAS_MODEL, us_fused, us_unfused)


XLAS_MODEL = " by XLA's model"
"""After a price that is not of our kernels."""


def _slower(pair: Pair, model: str, us_fused: float, us_unfused: float) -> Reason:
    return Reason.of(
        "FUS434",
        first=pair.producer_name,
        second=pair.consumer_name,
        model=model,
        us_fused=us_fused,
        us_unfused=us_unfused,
    )


def times_by_xla(pair: Pair) -> tuple[float, float]:
    """Microseconds of both as two kernels and as one, launches included."""
    state = pair.state
    above, below = (state.priced_by_xla(i) for i in (pair.producer, pair.consumer))
    launch = state.target.kernel_launch_us
    if isinstance(pair, MultiOutputEdge):
        fused = fused_estimate(above, below, keep_producer=True).us
    else:
        fused = Priced(as_fusion(pair.cluster()), state.target).estimate.us
    return 2 * launch + above.estimate.us + below.estimate.us, launch + fused


BUDGETS: tuple[PairCheck, ...] = (library_call, buffers_fit, shared_memory_budget, reductions_fit)
KEPT: tuple[PairCheck, ...] = (output_form, producer_form, heroes_fit, shapes_fit)
KEPT_DEAR: tuple[PairCheck, ...] = (scatter_conflict, in_place_conflict, code_fits, keeps_row_reductions)
ONE_WALK_DEAR: tuple[PairCheck, ...] = (scatter_conflict, in_place_conflict)
BESIDE: tuple[PairCheck, ...] = (output_form, heroes_fit, shapes_fit, slices_overlap, updates_in_place)
BESIDE_DEAR: tuple[PairCheck, ...] = (code_fits, keeps_row_reductions)


def _name(pair: Edge, instruction: Instruction) -> str:
    return pair.producer_name if instruction is pair.producer else pair.consumer_name


def _sizes(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))
