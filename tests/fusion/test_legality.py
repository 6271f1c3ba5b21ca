"""Each check of an edge by itself: what it says just inside its limit and just outside."""

from __future__ import annotations

import pytest
from small_modules import H100, module_of, named, state_of

from hlo_opt.diag import Reason
from hlo_opt.fusion import legality
from hlo_opt.fusion.legality import Check, Edge
from hlo_opt.fusion.traits import Traits
from hlo_opt.plans.limits import DEEPEST, LARGEST

ARRAY = "f32[64]{0}"
IN_PLACE = "kind=kLoop, output_to_operand_aliasing={{}: (0, {})}, calls=product"
GEMM = 'kind=kCustom, calls=product, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}'
KERNELS = {
    "of_two": (f"x1 = {ARRAY} parameter(0)", f"y1 = {ARRAY} negate(x1)", f"t1 = ({ARRAY}, {ARRAY}) tuple(y1, x1)"),
    "product": (f"x2 = {ARRAY} parameter(0)", f"y2 = {ARRAY} negate(x2)"),
    "waiting": (
        f"x3 = {ARRAY} parameter(0)",
        f"n3 = {ARRAY} negate(x3)",
        f"w3 = {ARRAY} abs(x3), control-predecessors={{n3}}",
        f"y3 = {ARRAY} add(n3, w3)",
    ),
}


def edge(*lines: str) -> Edge:
    """From `a` to `b`."""
    module = module_of(f"p = {ARRAY} parameter(0)", *lines, **KERNELS)
    return Edge(named(module, "a"), named(module, "b"), state_of(module))


def no(code: str, **numbers: object) -> Reason:
    return Reason.of(code, **numbers)


A, B = f"a = {ARRAY} negate(p)", f"b = {ARRAY} tanh(a)"
EFFECT = 'custom-call(p), custom_call_target="f", custom_call_has_side_effect=true'
TABLE: dict[str, tuple[Check, tuple[str, ...], Reason | None]] = {
    "plain": (legality.side_effects, (A, B), None),
    "the producer has an effect": (
        legality.side_effects,
        (f"a = {ARRAY} {EFFECT}", B),
        no("FUS102", instruction="a", opcode="custom-call"),
    ),
    "the consumer has an effect": (
        legality.side_effects,
        (A, f"b = {ARRAY} {EFFECT.replace('(p)', '(a)')}"),
        no("FUS102", instruction="b", opcode="custom-call"),
    ),
    "nothing waits": (legality.control_dependencies, (A, B), None),
    "the consumer waits": (
        legality.control_dependencies,
        (A, f"c = {ARRAY} abs(p)", f"{B}, control-predecessors={{c}}"),
        no("FUS103", instruction="b", order="starts only after `c`"),
    ),
    "the producer waits": (
        legality.control_dependencies,
        (f"c = {ARRAY} abs(p)", f"{A}, control-predecessors={{c}}", B),
        no("FUS103", instruction="a", order="starts only after `c`"),
    ),
    "the producer is waited for": (
        legality.control_dependencies,
        (A, B, f"c = {ARRAY} abs(p), control-predecessors={{a}}"),
        no("FUS103", instruction="a", order="must end before `c` starts"),
    ),
    "others wait": (
        legality.control_dependencies,
        (f"c = {ARRAY} abs(p)", f"d = {ARRAY} abs(p), control-predecessors={{c}}", A, B),
        None,
    ),
    "a member waits": (
        legality.control_dependencies,
        (A, f"b = {ARRAY} fusion(a), kind=kLoop, calls=waiting"),
        no("FUS103", instruction="w3", order="starts only after `n3`"),
    ),
    "no member waits": (
        legality.control_dependencies, (A, f"b = {ARRAY} fusion(a), kind=kLoop, calls=product"), None,
    ),
    "no library": (legality.boundary, (A, B), None),
    "the producer is a library's": (
        legality.boundary, (f"a = {ARRAY} fusion(p), {GEMM}", B), no("FUS104", instruction="a"),
    ),
    "the consumer is a library's": (
        legality.boundary, (A, f"b = {ARRAY} fusion(a), {GEMM}"), no("FUS104", instruction="b"),
    ),
    "results that lie in the producer": (
        legality.boundary, (A, f"b = {ARRAY} fusion(a), {IN_PLACE}"), no("FUS611", instruction="b"),
    ),
    "the producer's result lies in an operand": (
        legality.boundary, (f"a = {ARRAY} fusion(p), {IN_PLACE}", B), no("FUS611", instruction="a"),
    ),
    "one output": (legality.several_outputs, (A, B), None),
    "several outputs": (
        legality.several_outputs,
        (f"a = ({ARRAY}, {ARRAY}) fusion(p), kind=kLoop, calls=of_two", f"b = (({ARRAY}, {ARRAY})) tuple(a)"),
        no("FUS105", producer="a", outputs=2),
    ),
    "several outputs of a plain operation": (
        legality.several_outputs,
        (f'a = ({ARRAY}, {ARRAY}, {ARRAY}) custom-call(p), '
         f'custom_call_target="f"', f"b = {ARRAY} get-tuple-element(a), index=0"),
        no("FUS105", producer="a", outputs=3),
    ),
    "used": (legality.is_result, (A, B), None),
    "a library's kernel needs no lowering, "
    "above": (legality.lowering_of_producer, (f"a = {ARRAY} fusion(p), {GEMM}", B), None),
    "a library's kernel needs no lowering, "
    "below": (legality.lowering_of_consumer, (A, f"b = {ARRAY} fusion(a), {GEMM}"), None),
}  # fmt: skip


@pytest.mark.parametrize("what", TABLE)
def test_a_check(what: str):
    check, lines, against = TABLE[what]
    assert (
        check(edge(*lines, f"r = {ARRAY} abs(b)" if lines[-1].startswith("b = f32") else "r = f32[] constant(0)"))
        == against
    )


def test_the_result_of_a_computation_stays():
    module = module_of(f"p = {ARRAY} parameter(0)", f"b = {ARRAY} tanh(p)", A)
    found = Edge(named(module, "a"), named(module, "b"), state_of(module))
    assert legality.is_result(found) == no("FUS101", producer="a", computation="e")
    assert found.duplicates


@pytest.mark.parametrize(("more", "stays"), [((), False), ((f"c = {ARRAY} abs(a)",), True)])
def test_a_producer_that_others_read_stays(more: tuple[str, ...], stays: bool):
    assert edge(A, B, *more, f"r = {ARRAY} abs(b)").duplicates == stays


def test_what_nobody_can_compute_has_no_lowering():
    call = 'custom-call(p), custom_call_target="f"'
    above = edge(f"a = {ARRAY} {call}", B, f"r = {ARRAY} abs(b)")
    below = edge(A, f"b = {ARRAY} {call.replace('(p)', '(a)')}", f"r = {ARRAY} abs(b)")
    assert legality.lowering_of_producer(below) is None and legality.lowering_of_consumer(above) is None
    one, other = legality.lowering_of_producer(above), legality.lowering_of_consumer(below)
    assert one is not None and one.code == "FUS308" and one == other
    assert not legality.can_be_planned(above) and not legality.can_be_planned(below)


# ---- budgets


def given(above: Traits, below: Traits) -> Edge:
    found = edge(A, B, f"r = {ARRAY} abs(b)")
    found._above, found._below = above, below
    return found


LIMIT = H100.shared_memory_per_block


@pytest.mark.parametrize(
    ("above", "below", "against"),
    [
        (LIMIT - 1, 1, None),
        (LIMIT, 1, LIMIT + 1),
        (1, LIMIT, LIMIT + 1),
        (LIMIT + 1, 0, None),
        (0, LIMIT + 1, None),
    ],
)
def test_the_shared_memory_of_a_block(above: int, below: int, against: int | None):
    found = legality.shared_memory_budget(given(Traits(shared_memory=above), Traits(shared_memory=below)))
    assert found == (None if against is None else no("FUS202", bytes=against, limit=LIMIT))


@pytest.mark.parametrize(
    ("above", "below", "fits"), [(1, 7, True), (1, 8, False), (8, 1, False), (0, 9, True), (9, 0, False)]
)
def test_how_many_reductions_a_kernel_holds(above: int, below: int, fits: bool):
    found = legality.reduction_budget(given(Traits(reductions=above), Traits(reductions=below)))
    assert found == (None if fits else no("FUS203", count=9, limit=8))


@pytest.mark.parametrize(("members", "fits"), [(LARGEST - 3, True), (LARGEST - 2, False)])
def test_how_many_values_a_kernel_computes(members: int, fits: bool):
    """Two in the producer, and one that is read."""
    found = legality.size_budget(given(Traits(members=2), Traits(members=members)))
    assert found == (None if fits else no("FUS306", values=LARGEST + 1, limit=LARGEST))


def test_what_both_read_counts_as_values():
    lines = [f"p{n} = {ARRAY} parameter({n + 1})" for n in range(3)]
    found = edge(
        *lines,
        f"a = {ARRAY} add(p0, p1)",
        f"b = {ARRAY} select(p2, a, p)".replace("select(p2, a, p)", "clamp(p2, a, p)"),
        f"r = {ARRAY} abs(b)",
    )
    found._above, found._below = Traits(members=LARGEST), Traits()
    assert legality.size_budget(found) == no("FUS306", values=LARGEST + 4, limit=LARGEST)


def arguments(above: int, below: int, *, common: int = 0, constants: int = 0, outputs: int = 1) -> Edge:
    """`a` with `above` operands, and `b` with `below` besides `a`."""
    lines = [f"p{n} = f32[1]{{0}} parameter({n})" for n in range(above + below - common)]
    lines += [f"c{n} = f32[1]{{0}} constant({{{n}}})" for n in range(constants)]
    one = [f"p{n}" for n in range(above)] + [f"c{n}" for n in range(constants)]
    other = ["a"] + [f"p{n}" for n in range(above - common, above + below - common)]
    shape = "f32[1]{0}" if outputs == 1 else f"({', '.join(['f32[1]{0}'] * outputs)})"
    lines.append(f'a = f32[1]{{0}} custom-call({", ".join(one)}), custom_call_target="f"')
    lines.append(f'b = {shape} custom-call({", ".join(other)}), custom_call_target="f"')
    module = module_of(*lines)
    return Edge(named(module, "a"), named(module, "b"), state_of(module))


@pytest.mark.parametrize(
    ("made", "count"),
    [
        ({"above": 40, "below": 55}, 0),
        ({"above": 40, "below": 56}, 97),
        ({"above": 40, "below": 54, "outputs": 2}, 0),
        ({"above": 40, "below": 55, "outputs": 2}, 97),
        ({"above": 40, "below": 57, "common": 2}, 0),
        ({"above": 40, "below": 58, "common": 2}, 97),
        ({"above": 40, "below": 55, "constants": 2}, 0),
        ({"above": 40, "below": 56, "constants": 2}, 97),
        ({"above": 2, "below": 96, "common": 2}, 0),  # `b` reads one less than before
        ({"above": 1, "below": 96}, 0),  # and here as many
        ({"above": 2, "below": 96}, 99),
    ],
)
def test_how_many_buffers_a_kernel_has(made: dict[str, int], count: int):
    outputs = made.get("outputs", 1)
    numbers = {"count": count, "operands": count - outputs, "outputs": outputs, "limit": 96}
    assert legality.operand_budget(arguments(**made)) == (no("FUS201", **numbers) if count else None)


# ---- plans


@pytest.mark.parametrize(
    ("producer", "above", "below", "wanted"),
    [
        ("reverse(p), dimensions={0}", Traits(), Traits(), False),
        ("reverse(p), dimensions={0}", Traits(reduces=1), Traits(), True),
        ("reverse(p), dimensions={0}", Traits(), Traits(reduces=1), True),
        *[(one, Traits(), Traits(reduces=1), False) for one in ("negate(p)", "reshape(p)", "iota(), iota_dimension=0")],
        ("negate(p)", Traits(depth=DEEPEST - 1), Traits(depth=1), False),
        ("negate(p)", Traits(depth=DEEPEST), Traits(depth=1), True),
    ],
)
def test_where_there_may_be_no_plan(producer: str, above: Traits, below: Traits, wanted: bool):
    found = edge(f"a = {ARRAY} {producer}", B)
    found._above, found._below = above, below
    assert legality.needs_plan(found) == wanted
    assert legality.nests_deep(found) == (above.depth + below.depth > DEEPEST)
    found._merged = no("FUS303", elements=2, limit=1)
    assert legality.has_plan(found) == (found._merged if wanted else None)


@pytest.mark.parametrize(
    "lines",
    [
        (f"a = {ARRAY} fusion(p), {GEMM}", B, f"r = {ARRAY} abs(b)"),
        (A, f"b = {ARRAY} fusion(a), {GEMM}", f"r = {ARRAY} abs(b)"),
        (f"a = ({ARRAY}, {ARRAY}) fusion(p), kind=kLoop, "
         f"calls=of_two", f"b = (({ARRAY}, {ARRAY})) tuple(a)", "r = f32[] constant(0)"),
    ],
)  # fmt: skip
def test_where_a_plan_makes_no_sense(lines: tuple[str, ...]):
    found = edge(*lines)
    found._above = found._below = Traits(reduces=1)
    assert not legality.can_be_planned(found) and not legality.needs_plan(found) and legality.has_plan(found) is None


def test_the_plan_of_both_is_made_once(monkeypatch: pytest.MonkeyPatch):
    found = edge(A, B, f"r = {ARRAY} abs(b)")
    monkeypatch.setattr(found.state, "sketch", lambda structure, cluster: [structure, cluster()])
    first = found.merged
    assert found.merged is first
    number, cluster = first
    assert number == found.state.structure_of_both(found.producer, found.consumer)
    assert [n.instruction.name for n in cluster.members] == ["a", "b"] and [i.name for i in cluster.inputs] == ["p"]


# ---- rules that are switched off


def says(code: str) -> Check:
    numbers = {
        "FUS101": {"producer": "a", "computation": "e"},
        "FUS102": {"instruction": "a", "opcode": "rng"},
        "FUS103": {"instruction": "a", "order": "starts only after `b`"},
        "FUS104": {"instruction": "a"},
        "FUS105": {"producer": "a", "outputs": 2},
        "FUS306": {"values": 2, "limit": 1},
        "FUS203": {"count": 9, "limit": 8},
    }
    return lambda edge: no(code, **numbers[code])


CODES = ("FUS101", "FUS102", "FUS103", "FUS104", "FUS105", "FUS306", "FUS203")


def test_what_speaks_against_an_edge_is_told_once_and_in_order():
    found = edge(A, B, f"r = {ARRAY} abs(b)")
    checks = tuple(says(code) for code in (*CODES, "FUS102"))
    assert [r.code for r in legality.illegal(found, frozenset(), checks)] == list(CODES)


def test_rules_that_keep_a_program_right_refuse_under_another_code():
    found = edge(A, B, f"r = {ARRAY} abs(b)")
    for code in CODES:
        reasons = list(legality.illegal(found, frozenset({code}), (says(code),)))
        assert reasons == ([] if code in ("FUS101", "FUS203") else [no("FUS110", rule=code)])


def test_names_are_those_of_the_input():
    module = module_of(
        f"p = {ARRAY} parameter(0)",
        A,
        f"b = {ARRAY} fusion(a), kind=kLoop, calls=product",
        f"r = {ARRAY} abs(b)",
        **KERNELS,
    )
    origins = {named(module, "a"): "first", module.entry.root: "last"}
    found = Edge(named(module, "a"), named(module, "b"), state_of(module), origins)
    assert (found.producer_name, found.consumer_name) == ("first", "y2")
    assert found.above == Traits(members=1) and found.below == Traits(members=1)
    pair = (
        f'p2 = ({ARRAY}, {ARRAY}) custom-call(p), custom_call_target="f"',
        f"g = {ARRAY} get-tuple-element(p2), index=0",
    )
    module = module_of(f"p = {ARRAY} parameter(0)", *pair)
    found = Edge(named(module, "p2"), module.entry.root, state_of(module), {named(module, "p2"): "both"})
    assert legality.several_outputs(found) == no("FUS105", producer="both", outputs=2)
