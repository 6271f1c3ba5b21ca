"""The plan of a region, or the reason why kernels cannot have it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from hlo_opt.analysis.memory.forms import round_up
from hlo_opt.analysis.targets import DeviceTarget, InLanes
from hlo_opt.diag import Reason
from hlo_opt.diag.time_limit import check_time
from hlo_opt.ir import Computation, Instruction, Shape
from hlo_opt.ir.size import exactly
from hlo_opt.ops.calls.call import call_of
from hlo_opt.ops.collective.module_devices import WHICH_DEVICE, counts
from hlo_opt.ops.custom_calls.targets import find_custom_call
from hlo_opt.ops.lowering import Elementwise, compute_type
from hlo_opt.ops.sets import body_of, looped
from hlo_opt.ops.spec import find
from hlo_opt.plans import scatter
from hlo_opt.plans.columns import SHARED_BYTES, WARP
from hlo_opt.plans.disjoint import disjoint_outputs
from hlo_opt.plans.kinds import Kind, kind_of, kinds_for
from hlo_opt.plans.limits import DEEPEST, LARGEST, is_small, nesting, values_computed
from hlo_opt.plans.plan import Launch, Part, Plan, Region, Segment
from hlo_opt.plans.price import price
from hlo_opt.plans.products import ProductSpace, product_of

LARGEST_CONSTANT = 1024
"""Elements of a constant that becomes a table in a kernel's code."""

_STRUCTURAL = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "fusion", "call"})


def plan(
    region: Region, target: DeviceTarget, *, lowered: bool = False, long_sorts: bool | None = None
) -> Plan | Reason:
    """The plan of one kernel for the region, or the reason why there is none.

    `lowered` says that the caller has already checked the `lowering_reason` of every instruction but the parameters.
    `long_sorts` says whether long sorts may be kernels; if None, only those that no library can do.
    """
    planning = planning_of(region, target, lowered=lowered, long_sorts=long_sorts)
    return planning if isinstance(planning, Reason) else planning()


def planning_of(
    region: Region, target: DeviceTarget, *, lowered: bool = False, long_sorts: bool | None = None
) -> Callable[[], Plan] | Reason:
    """As `plan`, but what computes the plan: arrangements that compete by price take most of the time, and who asks
    only whether there is a plan does not wait for them. The region must not have changed by then."""
    check_time()
    kinds = kinds_for(region)
    if any(k.unheard for k in kinds) and not (_is_unheard(region) if long_sorts is None else long_sorts):
        kinds = [k for k in kinds if not k.unheard]
    limit = None if is_small(region) else _limit_reason(region)
    wholes = _wholes(region, target, kinds)
    # of what is refused in any case, no price is asked
    cheapest = _cheapest(region, wholes, target) if limit is None else None
    alone = next(iter(wholes), None) if cheapest is None else cheapest.segments[0].part
    opened = None if alone is None else kind_of(alone).inside
    inside = opened(alone) if alone is not None and opened is not None else ()
    asked = [
        i
        for i in region.computation.instructions
        if not lowered or looped(i) is not None or _is_tuple_parameter(i) or _has_own_kernel(i)
    ]
    for instruction in (*asked, *inside):
        is_opened = alone is not None and opened is not None and instruction is alone.hero
        reason = None if is_opened else lowering_reason(instruction, None if alone is None else alone.hero)
        if reason is not None:
            return reason
    for root in region.roots:
        if not all(leaf.is_array for leaf in root.shape.leaves()):
            return _no_lowering(root, root.shape)
    reason = scatter.refusal(region)
    if reason is not None:
        return reason
    if limit is not None:
        return limit
    return lambda: _competing(region, target, kinds) if cheapest is None else cheapest


def _competing(region: Region, target: DeviceTarget, kinds: Sequence[Kind]) -> Plan:
    """The plan of a region that is not of a kind for whole regions."""
    product = product_of(region)
    found = None if product is None else _product(region, product, target, kinds)
    return _least(region, target, kinds) if found is None else found


def _least(region: Region, target: DeviceTarget, kinds: Sequence[Kind]) -> Plan:
    """The cheaper of two arrangements: with all kinds, or without those that have rivals. On a CPU, where threads are
    lanes, the first is used: strided accesses cost no more there."""
    arranged = _arrange(region, target, kinds)
    if isinstance(target, InLanes) or not any(kind_of(segment.part).has_rivals for segment in arranged.segments):
        return arranged
    others = _arrange(region, target, [kind for kind in kinds if kind.whole is not None or not kind.has_rivals])
    return min(arranged, others, key=lambda choice: price(choice, target).us)


def separate_plans(region: Region, target: DeviceTarget) -> list[Plan] | Reason:
    """The plans for the outputs of an operation with one launch each, where no kernel writes them together
    (`rng-bit-generator`: bits and state). A reason if one of them has no plan."""
    plans: list[Plan] = []
    for root in region.roots:
        separate = plan(replace(region, roots=(root,)), target)
        if isinstance(separate, Reason):
            return separate
        plans.append(separate)
    return plans


def is_left_to_library(instruction: Instruction) -> bool:
    """Whether an instruction gets no kernel: it is left to a GPU library (a `dot`), or, if it has side effects, to the
    runtime. Other library operations get a kernel if there is a plan for them."""
    spec = find(instruction.opcode)
    is_call = spec is not None and spec.is_library and not spec.own_kernel
    return spec is not None and (spec.side_effects or (is_call and call_of(instruction) is not None))


def _limit_reason(region: Region) -> Reason | None:
    depth = nesting(region.computation)
    if depth > DEEPEST:
        return Reason.of("FUS305", depth=depth, limit=DEEPEST)
    values = values_computed(region)
    return Reason.of("FUS306", values=values, limit=LARGEST) if values > LARGEST else None


def _is_unheard(region: Region) -> bool:
    """Whether the region is a single operation that no library can do."""
    return body_of(region.instruction) is None and call_of(region.instruction) is None


def _arrange(region: Region, target: DeviceTarget, kinds: Sequence[Kind]) -> Plan:
    """Makes a segment of outputs that share work and an index space. Each segment has its own range of the launch's
    blocks.

    A value that two segments need is computed in both; policies decide whether that is worth it. The largest block that
    a segment needs is the launch's.
    """
    parts: list[Part] = []
    room = SHARED_BYTES
    for group in disjoint_outputs(region):
        of_group = arranged_group(region, group, target, kinds, room)
        room -= sum(part.shared_bytes(part.block) for part in of_group)
        parts += of_group
    parts.sort(key=lambda part: kind_of(part).order)
    return _launch(region, [beside(part) for part in parts] if len(parts) > 1 else parts)


def beside(part: Part) -> Part:
    """The part in a launch that holds others too."""
    changed = kind_of(part).beside
    return part if changed is None else changed(part)


def arranged_group(
    region: Region, group: Sequence[int], target: DeviceTarget, kinds: Sequence[Kind], room: int
) -> list[Part]:
    """The parts of outputs that share work (`group` are positions), with `room` free bytes of shared memory."""
    parts: list[Part] = []
    rest = list(group)
    for kind in kinds:
        if kind.match is not None and rest and (kind.may_pay is None or kind.may_pay(region)):
            matched, rest = kind.match(region, rest, target, room)
            parts += matched
            room -= sum(part.shared_bytes(part.block) for part in matched)
    return parts


def _wholes(region: Region, target: DeviceTarget, kinds: Sequence[Kind]) -> list[Part]:
    """The region as one part of kinds for whole regions: of the first kind that matches, and, if that has rivals or
    fewer threads than a warp, of the next ones. On a CPU a block for all rounds has no rival: no barrier of all blocks
    is as cheap as its own."""
    candidates: list[Part] = []
    for kind in kinds:
        part = None if kind.whole is None else kind.whole(region, target)
        if part is not None:
            launch = _launch(region, [part]).launch
            candidates.append(part)
            other = None if kind.otherwise is None or target.in_lanes else kind.otherwise(region, target, part)
            candidates += [] if other is None else [other]
            if launch.grid * launch.block >= WARP and (target.in_lanes or not kind.has_rivals):
                break
    return candidates


def _product(region: Region, product: ProductSpace, target: DeviceTarget, kinds: Sequence[Kind]) -> Plan | None:
    """The plan of one product of the first kind that matches, or, if that has rivals, of the cheapest."""
    candidates: list[Part] = []
    for kind in kinds:
        part = None if kind.product is None else kind.product(region, product, target)
        if part is not None:
            candidates.append(part)
            if not kind.has_rivals:
                break
    return _cheapest(region, candidates, target)


def _cheapest(region: Region, candidates: Sequence[Part], target: DeviceTarget) -> Plan | None:
    """The plan of the cheapest of several parts that are the whole region each; its price is kept with it."""
    plans = [_launch(region, [part]) for part in candidates]
    return plans[0] if len(plans) == 1 else min(plans, key=lambda each: price(each, target).us, default=None)


def _launch(region: Region, parts: Sequence[Part]) -> Plan:
    block = exactly(block_of(parts))
    segments = tuple(part.segment(block) for part in parts)
    return Plan(region, launch_of(segments, block), segments)


def block_of(parts: Iterable[Part]) -> int:
    """Threads of a block of a launch that holds parts: of the largest that one needs."""
    block, whole_warps = 1, False
    for part in parts:
        block, whole_warps = max(block, part.block), whole_warps or kind_of(part).whole_warps
    return round_up(block, WARP) if whole_warps else block


def launch_of(segments: Sequence[Segment[Part]], block: int) -> Launch:
    """The launch of segments, with blocks of that size."""
    shared = exactly(sum(segment.part.shared_bytes(block) for segment in segments))
    cluster = max((s.cluster for s in segments), default=1)
    return Launch(sum(s.blocks for s in segments), block, shared, any(s.together for s in segments), cluster)


def lowering_reason(
    instruction: Instruction, planned: Instruction | None = None, *, unplanned: bool = False
) -> Reason | None:
    """Why kernels cannot compute this instruction, or None when they can.

    Looks only at the instruction and the computations that it calls. `planned` is a sort or a scan that is known to
    have a plan; `unplanned` says that a plan will tell of all of them. Loops inside a fusion are not checked: only a
    plan can tell.
    """
    stack = [instruction]
    seen: set[Computation] = set()
    while stack:
        current = stack.pop()
        if looped(current) is not None and current is not instruction:
            continue
        reason = _own_reason(current, current is planned or (unplanned and _has_own_kernel(current)))
        if reason is not None:
            return reason
        for called in current.called():
            if called not in seen:
                seen.add(called)
                stack.extend(called.instructions)
    return None


def _has_own_kernel(instruction: Instruction) -> bool:
    spec = find(instruction.opcode)
    return spec is not None and spec.own_kernel


def _own_reason(instruction: Instruction, is_planned: bool) -> Reason | None:
    structural = instruction.opcode in _STRUCTURAL
    if instruction.opcode == "fusion":
        reason = _layout_reason(instruction)
        if reason is not None:
            return reason
    if not structural and not is_planned:
        spec = find(instruction.opcode)
        if spec is None or (spec.cuda is None and not spec.is_planned and not spec.has_expansion(instruction)):
            if spec is not None and spec.is_library:
                return Reason.of("FUS302", opcode=instruction.opcode, runs_as=spec.runs_as)
            if instruction.opcode == "custom-call":
                return _call_reason(instruction)
            if looped(instruction) is not None:
                return Reason.of("FUS310", loop=instruction.name)
            return _no_lowering(instruction, instruction.shape)
        if instruction.opcode in WHICH_DEVICE and _is_for_several_devices(instruction):
            return _no_lowering(instruction, instruction.shape)
        if isinstance(spec.cuda, Elementwise) and spec.cuda.text_for(instruction) is None:
            by = spec.cuda.by
            return _no_lowering(
                instruction, instruction.shape if isinstance(by, str) else instruction.operands[by].shape
            )
    shapes = [instruction.shape] if structural else [instruction.shape, *(o.shape for o in instruction.operands)]
    for shape in shapes:
        for leaf in shape.leaves():
            if not leaf.is_array or compute_type(leaf.type) is None:
                return _no_lowering(instruction, leaf)
            if any(leaf.dynamic) or -1 in leaf.dimensions:
                return Reason.of("FUS307", shape=str(leaf))
    if _is_tuple_parameter(instruction):
        return _no_lowering(instruction, instruction.shape)
    return _constant_reason(instruction) if instruction.opcode == "constant" else None


def _call_reason(instruction: Instruction) -> Reason:
    """Why no kernel can hold a custom call: a library runs it, its code is compiled, or its declaration has no HLO for
    it."""
    target = instruction.word("custom_call_target")
    spec = find_custom_call(target)
    if spec is not None and spec.library not in ("", "xla"):  # whose own kernels are opaque
        return Reason.of("FUS302", opcode=target, runs_as=f"a call of {spec.library}")
    if spec is None:
        why = "it runs compiled code that the dump does not show"
    else:
        why = "what it computes is known, but its declaration does not write it as HLO"
    return Reason.of("FUS308", target=target or "(no target)", why=why)


def _is_tuple_parameter(instruction: Instruction) -> bool:
    """Whether the instruction is a parameter that is a tuple: kernels take arrays only."""
    return instruction.parameter_number is not None and instruction.shape.is_tuple


def _is_for_several_devices(instruction: Instruction) -> bool:
    """Whether the module is for several devices: a kernel does not know which of them it runs on."""
    module = None if instruction.parent is None else instruction.parent.module
    return module is not None and counts(module) != (1, 1)


def _layout_reason(fusion: Instruction) -> Reason | None:
    """The reason against a fusion whose parameters or root differ in layout from its operands or result."""
    body = fusion.called_by("calls")
    pairs = [(o.shape, p.shape) for o, p in zip(fusion.operands, body.parameters, strict=True)]
    for outside, inside in (*pairs, (body.root.shape, fusion.shape)):
        if not outside.same_bytes(inside):
            return Reason.of("FUS309", fusion=fusion.name, given=str(outside), taken=str(inside))
    return None


def _constant_reason(instruction: Instruction) -> Reason | None:
    literal, elements = instruction.literal, instruction.shape.element_count
    if not instruction.shape.is_array or literal is None or literal.is_elided:
        return _no_lowering(instruction, instruction.shape)
    if elements > LARGEST_CONSTANT:
        return Reason.of("FUS303", elements=elements, limit=LARGEST_CONSTANT)
    return None


def _no_lowering(instruction: Instruction, shape: Shape) -> Reason:
    element_type = "tuple" if shape.is_tuple else shape.type.name
    return Reason.of("FUS301", element_type=element_type, opcode=instruction.opcode)
