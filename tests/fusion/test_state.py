"""What fusing asks again and again: sums over members, how often code is emitted, what lies below, and when an answer
is found anew."""

from __future__ import annotations

import math

import pytest
from small_modules import H100, SUM_AND_LARGEST, module_of, named, state_of

from hlo_opt.analysis.graph.cluster import Cluster
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.analysis.xla.performance import Priced, fused_estimate
from hlo_opt.analysis.xla.tiled_model import TileSizes
from hlo_opt.analysis.xla.timing import KernelEstimate
from hlo_opt.diag import Reason
from hlo_opt.fusion import state as states
from hlo_opt.fusion.caches import Cache
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.decision import ByStructure
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.joining import ways_between
from hlo_opt.fusion.state import FusionState
from hlo_opt.fusion.traits import Traits
from hlo_opt.ir import Instruction, Module, edit
from hlo_opt.plans.sketch import Sketch

WIDE, ROW = "f32[64,96]{1,0}", "f32[64]{0}"
ROWS = "dimensions={1}, to_apply=sum"
TRITON = 'kind=kCustom, backend_config={"fusion_backend_config":{"kind":"__triton"}}'
WARPS = TRITON.replace("}}", ',"block_level_fusion_config":{"num_warps":"2"}}}')
INPUTS = (f"p = {WIDE} parameter(0)", f"q = {WIDE} parameter(1)", f"v = {ROW} parameter(2)", "z = f32[] constant(0)")
KERNELS = {
    "negated": (f"x0 = {WIDE} parameter(0)", f"y0 = {WIDE} negate(x0)"),
    "of_two": (f"x1 = {WIDE} parameter(0)", f"a1 = {WIDE} abs(x1)", "z1 = f32[] constant(0)",
        f"y1 = {ROW} reduce(a1, z1), {ROWS}"),
}  # fmt: skip


def value(*lines: str) -> Instruction:
    return module_of(*INPUTS, *lines, **KERNELS).entry.root


# ---- sums over members


@pytest.mark.parametrize(
    ("lines", "traits"),
    [
        ((f"r = {WIDE} negate(p)",), Traits(members=1)),
        ((f"r = {ROW} reduce(p, z), {ROWS}",), Traits(1, 1, 0, 1, 1, 1, 128, folds=1)),
        (("r = f32[96]{0} reduce(p, z), dimensions={0}, to_apply=sum",),
         Traits(1, 1, 0, 1, 1, 1, 32 * 129 * 4, folds=1)),
        (("s = f32[4,64]{1,0} parameter(3)", "r = f32[64]{0} reduce(s, z), dimensions={0}, "
                                             "to_apply=sum"), Traits(1, 1, 0, 1, folds=1)),
        (("r = f32[96,64]{1,0} transpose(p), dimensions={1,0}",), Traits(members=1, shared_memory=32 * 33 * 4)),
        (("r = f32[64,64]{1,0} dot(p, q), lhs_contracting_dims={1}, "
          "rhs_contracting_dims={1}",), Traits(1, 1, library="dot")),
        (("r = f32[128,96]{1,0} concatenate(p, q), dimensions={0}",), Traits(1, 1)),
        (
            (
                "i = s32[5,1]{1,0} parameter(3)",
                "u = f32[5,96]{1,0} parameter(4)",
                f"r = {WIDE} scatter(p, i, u), update_window_dims={{1}}, inserted_window_dims={{0}}, "
                "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum",
            ),
            Traits(1, 1, 1, folds=1),
        ),
        ((f"r = {WIDE} fusion(p), kind=kLoop, calls=negated",), Traits(members=1)),
        ((f"r = {ROW} fusion(p), kind=kInput, calls=of_two",), Traits(3, 1, 0, 1, 1, 1, 128, folds=1)),
    ],
)  # fmt: skip
def test_what_members_add_up_to(lines: tuple[str, ...], traits: Traits):
    module = module_of(*INPUTS, *lines, **KERNELS)
    state = state_of(module)
    for _ in range(2):
        assert state.traits(module.entry.root) == traits


def test_sums_are_sums():
    one, other = Traits(*range(1, 10), folds=1), Traits(*range(10, 100, 10), "dot", 2)
    assert one.plus(other) == other.plus(one) == Traits(*range(11, 110, 11), "dot", 3)
    assert Traits(library="sort").plus(other).library == "sort"


@pytest.mark.parametrize(
    ("given", "made", "dimension", "many"),
    [
        ("f32[64,16]{1,0}", "f32[64]{0}", 1, 1),
        ("f32[64,15]{1,0}", "f32[64]{0}", 1, 0),
        ("f32[0,16]{1,0}", "f32[0]{0}", 1, 0),
    ],
)
def test_which_reductions_fold_many_elements(given: str, made: str, dimension: int, many: int):
    text = f"s = {given} parameter(3)", f"r = {made} reduce(s, z), dimensions={{{dimension}}}, to_apply=sum"
    assert Traits.of(value(*text)).significant_reduces == many


def test_reductions_of_several_arrays_are_not_among_them():
    reduce = module_of(
        *INPUTS, f"r = ({ROW}, {ROW}) reduce(p, q, z, z), dimensions={{1}}, to_apply=pick", pick=SUM_AND_LARGEST
    ).entry.root
    assert Traits.of(reduce) == Traits(1, 1, 0, 1, 1, 0, 256, folds=1)


# ---- how often, and what lies below


def fused(*body: str, shape: str, operands: str = "p, q") -> tuple[FusionState, Instruction, Module]:
    lines = (f"x = {WIDE} parameter(0)", f"y = {WIDE} parameter(1)", *body)
    module = module_of(*INPUTS, f"f = {shape} fusion({operands}), kind=kLoop, calls=held", held=lines)
    return state_of(module), module.entry.root, module


def test_code_is_emitted_once_for_each_index():
    cut = "cut = f32[8,96]{1,0} slice(nx), slice={[0:8], [0:96]}"
    body = (f"nx = {WIDE} negate(x)", f"ny = {WIDE} negate(y)", f"s = {WIDE} add(nx, ny)", cut)
    state, fusion, module = fused(
        *body, f"t = ({WIDE}, f32[8,96]{{1,0}}) tuple(s, cut)", shape=f"({WIDE}, f32[8,96]{{1,0}})"
    )
    emissions = state.emissions(fusion)
    assert [emissions.of(named(module, name)) for name in ("p", "q", "v")] == [2, 1, 0]


@pytest.mark.parametrize(
    ("body", "shape", "count"),
    [
        ((f"a = {WIDE} add(x, y)", f"r = {WIDE} multiply(a, x)"), WIDE, 1),
        ((f"a = {WIDE} add(x, y)", "r = f32[96,64]{1,0} transpose(a), dimensions={1,0}"), "f32[96,64]{1,0}", 1),
        ((f"a = {WIDE} add(x, y)", "r = f32[6144]{0} reshape(a)"), "f32[6144]{0}", 1),
        ((f"a = {WIDE} add(x, y)", "b = f32[6144]{0} reshape(a)", "c = f32[6144]{0} reshape(x)",
            "r = f32[6144]{0} add(b, c)"), "f32[6144]{0}", 2),
        (
            (
                f"a = {WIDE} add(x, y)",
                *(f"c{n} = f32[8,96]{{1,0}} slice(a), slice={{[{n}:{n + 8}], [0:96]}}" for n in range(3)),
                "d = f32[8,96]{1,0} add(c0, c1)",
                "r = f32[8,96]{1,0} add(d, c2)",
            ),
            "f32[8,96]{1,0}",
            3,
        ),
    ],
)  # fmt: skip
def test_how_often_an_operand_would_be_emitted(body: tuple[str, ...], shape: str, count: int):
    state, fusion, module = fused(*body, shape=shape)
    assert state.emissions(fusion).of(named(module, "p")) == count


def test_what_lies_between_an_operand_and_the_results():
    body = (
        "z0 = f32[] constant(0)",
        f"s = {ROW} reduce(x, z0), {ROWS}",
        f"b = {WIDE} broadcast(s), dimensions={{0}}",
        f"a = {WIDE} add(b, y)",
        "c = f32[2,64,96]{2,1,0} broadcast(a), dimensions={1,2}",
    )
    state, fusion, module = fused(*body, shape="f32[2,64,96]{2,1,0}")
    below, inputs = state.below(fusion), state.cluster(fusion).inputs
    found = {
        name: [
            None if (node := table.get(inputs[named(module, name)])) is None else node.instruction.name
            for table in (below.reusing, below.reusing_once_per_row, below.enlarging)
        ]
        for name in ("p", "q")
    }
    # a row kernel computes the sum of a row once, and what is above it no more often
    assert found == {"p": ["b", None, "b"], "q": ["c", "c", "c"]}


def test_what_reads_several_times_need_not_make_more():
    """A sum reads its first value for every row; it makes fewer elements, and what follows it none more."""
    body = (
        "z1 = f32[] constant(0)",
        f"n = {WIDE} negate(x)",
        "b = f32[96,64]{1,0} broadcast(n), dimensions={1,0}",
        "a = f32[96,64]{1,0} abs(b)",
    )
    state, fusion, module = fused(*body, shape="f32[96,64]{1,0}")
    below, place = state.below(fusion), state.cluster(fusion).inputs[named(module, "p")]
    assert below.reusing[place].instruction.name == below.reusing_once_per_row[place].instruction.name == "b"
    assert below.enlarging.get(place) is None


@pytest.mark.parametrize(
    ("line", "shape", "enlarging"),
    [
        ("r = f32[2,64,96]{2,1,0} broadcast(x), dimensions={1,2}", "f32[2,64,96]{2,1,0}", True),
        ("r = f32[96,64]{1,0} broadcast(x), dimensions={1,0}", "f32[96,64]{1,0}", False),
        (f"r = {WIDE} negate(x)", WIDE, False),
        ("r = f32[128,96]{1,0} concatenate(x, x), dimensions={0}", "f32[128,96]{1,0}", False),
    ],
)
def test_what_makes_more_elements_of_fewer(line: str, shape: str, enlarging: bool):
    module = module_of(
        *INPUTS, f"f = {shape} fusion(p), kind=kLoop, calls=held", held=(f"x = {WIDE} parameter(0)", line)
    )
    state = state_of(module)
    below, place = state.below(module.entry.root), state.cluster(module.entry.root).inputs[named(module, "p")]
    assert (below.enlarging.get(place) is not None) == enlarging


def test_windows_make_more_elements_of_fewer():
    held = (
        f"x = {WIDE} parameter(0)",
        "z0 = f32[] constant(0)",
        f"r = {WIDE} reduce-window(x, z0), window={{size=1x1}}, to_apply=sum",
    )
    module = module_of(*INPUTS, f"f = {WIDE} fusion(p), kind=kLoop, calls=held", held=held)
    state = state_of(module)
    place = state.cluster(module.entry.root).inputs[named(module, "p")]
    assert state.below(module.entry.root).enlarging[place].opcode == "reduce-window"


# ---- what is remembered, and until when


def test_an_answer_holds_until_the_instruction_changes():
    module = module_of(*INPUTS, f"a = {WIDE} negate(p)", f"r = {WIDE} abs(a)")
    state, a = state_of(module), named(module, "a")
    asked: list[str] = []

    def count(_: FusionState, instruction: Instruction) -> int:
        asked.append(instruction.name)
        return len(asked)

    counted = Cache(count)
    assert [state.caches.of(counted, a) for _ in range(3)] == [1, 1, 1]
    first = state.cluster(a)
    state.forget(named(module, "r"))
    assert state.caches.of(counted, a) == 1 and state.cluster(a) is first
    state.forget(a)
    assert state.caches.of(counted, a) == 2 and state.cluster(a) is not first
    assert asked == ["a", "a"]


def test_what_is_waited_for():
    held = (
        f"x = {WIDE} parameter(0)",
        f"a = {WIDE} abs(x)",
        f"w = {WIDE} negate(x), control-predecessors={{a}}",
        f"y = {WIDE} add(a, w)",
    )
    module = module_of(
        *INPUTS, f"f = {WIDE} fusion(p), kind=kLoop, calls=held", f"g = {WIDE} fusion(p), kind=kLoop, calls=negated",
        f"r = {WIDE} add(f, g), control-predecessors={{g}}", held=held, **KERNELS,
    )  # fmt: skip
    state = state_of(module)
    assert state.waited_for(module.entry) == {named(module, "g"): named(module, "r")}
    assert state.waited_for(module.entry) is state.waited_for(module.entry)
    assert {c.name: i.name for c, i in state.waiting.items()} == {"held": "w", "e": "r"}


def tiled(producer: str, consumer: str) -> tuple[FusionState, Instruction, Instruction]:
    def line(name: str, given: str, kind: str) -> str:
        tiled = f"fusion({given}), {TRITON}, calls=negated_{name}"
        return f"{name} = {WIDE} {tiled if kind == 'tiled' else f'abs({given})'}"

    kernels = {f"negated_{n}": (f"x{n} = {WIDE} parameter(0)", f"y{n} = {WIDE} negate(x{n})") for n in "ab"}
    module = module_of(*INPUTS, line("a", "p", producer), line("b", "a", consumer), **kernels)
    return state_of(module), named(module, "a"), module.entry.root


@pytest.mark.parametrize(
    ("producer", "consumer"), [("tiled", "plain"), ("plain", "tiled"), ("tiled", "tiled"), ("plain", "plain")]
)
def test_tiled_kernels_are_priced_by_their_tiles(producer: str, consumer: str, monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[list[str], list[str]]] = []
    best_tiling = states.best_tiling

    def tiling(cluster: Cluster, device: DeviceTarget) -> tuple[TileSizes | None, KernelEstimate]:
        asked.append(([i.name for i in cluster.inputs], [n.opcode for n in cluster.members]))
        return best_tiling(cluster, device)

    monkeypatch.setattr(states, "best_tiling", tiling)
    state, a, b = tiled(producer, consumer)
    found = [state.fused_by_xla(a, b).us for _ in range(2)]
    plain = fused_estimate(Priced(a, H100), Priced(b, H100)).us
    if producer == consumer == "plain":
        assert not asked and found == [plain, plain] and len(state.known.estimates) == 1
        return
    opcodes = ["negate" if kind == "tiled" else "abs" for kind in (producer, consumer)]
    assert (
        asked == [(["p"], opcodes)] and found[0] == found[1] and math.isfinite(found[0]) and not state.known.estimates
    )
    assert state.best_tiles(a, b) is not None and len(asked) == 1
    state.forget(b)  # it is remembered by structure
    assert state.fused_by_xla(a, b).us == found[0] and len(asked) == 1


def test_estimates_of_equal_kernels_are_made_once(monkeypatch: pytest.MonkeyPatch):
    module = module_of(
        *INPUTS,
        f"a = {WIDE} tanh(p)",
        f"b = {WIDE} tanh(q)",
        f"c = {WIDE} abs(a)",
        f"d = {WIDE} abs(b)",
        f"r = {WIDE} add(c, d)",
    )
    state = state_of(module)
    of = {i.name: i for i in module.entry.instructions}
    assert state.estimate_by_xla(of["a"]) is state.estimate_by_xla(of["b"]) is not state.estimate_by_xla(of["c"])
    assert state.fused_by_xla(of["a"], of["c"]) is state.fused_by_xla(of["b"], of["d"])
    assert state.estimate_by_xla(of["a"]) == Priced(of["a"], H100).estimate
    assert len(state.known.alone) == 2 and len(state.known.estimates) == 1


def test_what_is_known_of_kernels_holds_for_a_copy_of_the_module(monkeypatch: pytest.MonkeyPatch):
    module = module_of(*INPUTS, f"k = {ROW} fusion(p), kind=kLoop, calls=of_two", f"r = {ROW} negate(k)", **KERNELS)
    context = PassContext(FuseOptions(H100))
    state, kernel = context.memory.state(module, H100), named(module, "k")
    of = (FusionState.structure, FusionState.traits, FusionState.lowering, FusionState.row_reductions)
    known = [ask(state, kernel) for ask in of]
    context.keep_apart(module)
    edit.set_root(module.entry, kernel)
    edit.remove(named(module, "r"))
    earlier = context.as_apart()
    assert earlier is not None and context.apart is not None
    copy = context.apart.module
    there = earlier.memory.state(copy, H100)
    for name in ("_structure", "_traits", "_lowering", "_row_reductions"):
        monkeypatch.setattr(FusionState, name, lambda *_: pytest.fail("was found again"))
    assert [ask(there, named(copy, "k")) for ask in of] == known
    assert there is not state and there.module is copy and named(copy, "r").is_root


def test_what_kernels_of_a_structure_have_in_common():
    other = (f"xo = {WIDE} parameter(0)", f"yo = {WIDE} negate(xo)")
    lines = (
        f"a = {WIDE} fusion(p), kind=kLoop, calls=negated",
        f"b = {WIDE} fusion(q), kind=kLoop, calls=other",
        f"c = {WIDE} fusion(p), {TRITON}, calls=custom",
        f"c2 = {WIDE} fusion(q), {TRITON}, calls=custom2",
        f"c3 = {WIDE} fusion(q), {WARPS}, calls=custom3",
        f"d = {WIDE} add(p, q)",
        f"e2 = {WIDE} add(q, p)",
        f"f = {WIDE} add(p, p)",
        f"two = {WIDE} constant({{...}})",
        f"g = {WIDE} add(p, two)",
        f"r = {WIDE} subtract(p, q)",
    )
    custom = {f"custom{n}": tuple(line.replace("o", f"k{n}") for line in other) for n in ("", "2", "3")}
    module = module_of(*INPUTS, *lines, **KERNELS, other=other, **custom)
    state = state_of(module)
    number = {
        i.name: state.structure(i) for i in module.entry.instructions if i.opcode not in ("parameter", "constant")
    }
    assert number["a"] == number["b"] and number["d"] == number["e2"]
    assert number["c"] == number["c2"] != number["c3"]
    assert len(set(number.values())) == 7 and number["c"] not in (number["a"], number["d"])
    of = {i.name: i for i in module.entry.instructions}
    both = state.structure_of_both
    assert both(of["a"], of["d"]) == both(of["b"], of["e2"])


@pytest.mark.parametrize("shared", [("a", "p"), ("a", "q"), ("p", "a")])
def test_how_a_reader_shares_what_its_producer_reads(shared: tuple[str, str]):
    """The producer once and its own operand, the producer and something else."""
    module = module_of(
        *INPUTS, f"a = {WIDE} negate(p)", f"b = {WIDE} subtract({shared[0]}, {shared[1]})", f"c = {WIDE} subtract(a, p)"
    )
    state = state_of(module)
    of = {i.name: i for i in module.entry.instructions}
    same = state.structure_of_both(of["a"], of["b"]) == state.structure_of_both(of["a"], of["c"])
    assert same == (shared == ("a", "p"))


# ---- plans


def test_what_a_plan_would_be_is_found_once_for_each_structure(monkeypatch: pytest.MonkeyPatch):
    tried: list[int] = []
    trial = states.sketch_of
    monkeypatch.setattr(
        states,
        "sketch_of",
        lambda module, cluster, device: tried.append(cluster.size) or trial(module, cluster, device),
    )
    module = module_of(*INPUTS, f"a = {ROW} reduce(p, z), {ROWS}", f"r = {ROW} reduce(q, z), {ROWS}")
    state = state_of(module)
    a, r = named(module, "a"), module.entry.root
    assert state.row_reductions(a) == state.row_reductions(r) == 1 and tried == [1]
    found = state.sketch(state.structure(a), lambda: state.cluster(a))
    assert isinstance(found, Sketch) and found.row_reductions == 1 and state.known.sketches[state.structure(a)] is found
    assert state.sketch(-1, lambda: state.cluster(r)) is found and tried == [1]  # another structure, the same plan
    again = FusionState(module, H100, ByStructure())
    assert again.row_reductions(a) == 1 and tried == [1, 1]


def test_a_reason_names_instructions_and_is_found_anew(monkeypatch: pytest.MonkeyPatch):
    reasons = [Reason.of("FUS303", elements=n, limit=1) for n in (2, 3)]
    given = iter(reasons)
    monkeypatch.setattr(states, "sketch_of", lambda *rest: next(given))
    module = module_of(*INPUTS, f"r = {ROW} reduce(p, z), {ROWS}")
    state = state_of(module)
    assert [state.sketch(7, lambda: state.cluster(module.entry.root)) for _ in reasons] == reasons
    assert not state.known.sketches and not state.known.plans


def test_no_rows_where_there_is_no_lowering_or_no_plan(monkeypatch: pytest.MonkeyPatch):
    module = module_of(*INPUTS, f'a = {ROW} custom-call(p), custom_call_target="f"', f"r = {ROW} reduce(p, z), {ROWS}")
    state = state_of(module)
    monkeypatch.setattr(states, "sketch_of", lambda *rest: Reason.of("FUS303", elements=2, limit=1))
    assert state.row_reductions(named(module, "a")) == 0 and not state.known.plans
    assert state.row_reductions(module.entry.root) == 0


def test_rows_of_what_folds_nothing_need_no_plan(monkeypatch: pytest.MonkeyPatch):
    """An operation that only its expansion computes may fold all the same."""
    monkeypatch.setattr(states, "sketch_of", lambda *rest: pytest.fail("planned"))
    state = state_of(module_of(*INPUTS, f"r = {WIDE} fusion(p), kind=kLoop, calls=negated", **KERNELS))
    assert state.row_reductions(state.module.entry.root) == 0
    normal = "batch-norm-inference(p, v, v, v, v), epsilon=1, feature_index=0"
    assert Traits.of(value(f"r = {WIDE} {normal}")).folds == 1


def test_lowerings_of_equal_instructions_are_found_once(monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []
    monkeypatch.setattr(states, "lowering_reason", lambda i, **_: asked.append(i.name))
    module = module_of(
        *INPUTS,
        f"a = {WIDE} abs(p)",
        f"b = {WIDE} abs(q)",
        f"c = {WIDE} fusion(a), kind=kLoop, calls=negated",
        f"r = {WIDE} add(b, c)",
        **KERNELS,
    )
    state = state_of(module)
    for name in ("a", "b", "c", "a"):
        state.lowering(named(module, name))
    assert asked == ["a", "c"]


def test_the_plan_of_a_fusion_that_was_made(monkeypatch: pytest.MonkeyPatch):
    module = module_of(
        *INPUTS,
        f"f = {ROW} fusion(p), kind=kInput, calls=of_two",
        f"g = {WIDE} fusion(p), kind=kLoop, calls=negated",
        "r = f32[] add(z, z)",
        **KERNELS,
    )
    state = state_of(module)
    found = [state.kind_of(named(module, name)) for name in ("f", "f", "g")]
    assert found == ["row-reduction", "row-reduction", "loop"] and len(state.known.plans) == 2
    again = state_of(module)
    assert [again.kind_of(named(module, name), with_folds=True) for name in ("f", "g")] == ["row-reduction", ""]
    made = ["summary" in vars(sketch) for sketch in again.known.plans.values()]
    assert made == [True, False]  # whether there is a plan is known without making it
    refusal = Reason.of("FUS303", elements=2, limit=1)
    monkeypatch.setattr(states.Grouping, "sketch_of", lambda *rest: None)
    monkeypatch.setattr(states, "sketch_of", lambda *rest: refusal)
    monkeypatch.setattr(states, "plan", lambda *rest, **named: refusal)
    assert state_of(module).kind_of(named(module, "f")) is refusal


# ---- while kernels grow


def grown(*lines: str, **kernels: tuple[str, ...]) -> tuple[Engine, dict[str, Instruction]]:
    module = module_of(*INPUTS, *lines, **KERNELS, **kernels)
    return Engine(module, PassContext(FuseOptions(H100))), {i.name: i for i in module.entry.instructions}


def test_a_grown_kernel_is_known_before_anybody_asks():
    engine, of = grown(f"a = {WIDE} abs(p)", f"s = {ROW} reduce(a, z), {ROWS}", f"r = {ROW} negate(s)")
    state = engine.state
    number = state.structure_of_both(of["a"], of["s"])
    fusion = engine.fuse(of["a"], of["s"])
    assert state.structure(fusion) == number
    assert state.traits(fusion) == Traits(2, 1, 0, 1, 1, 1, 128, folds=1)
    assert state.lowering(fusion) is None
    state.settle(fusion)
    assert state.structure(fusion) == number and state.traits(fusion).members == 2


def test_a_reader_of_something_else_forgets_what_it_knew():
    engine, of = grown(
        f"a = {WIDE} abs(p)", f"f = {WIDE} fusion(a), kind=kLoop, calls=negated", f"r = {WIDE} negate(f)"
    )
    state = engine.state
    f = of["f"]
    known = state.cluster(f)
    state.replaced(of["q"], of["p"], f)  # it never read q
    assert state.cluster(f) is not known
    known = state.cluster(of["r"])
    state.replaced(f, of["a"], of["r"])
    assert state.cluster(of["r"]) is not known
    known, number = state.cluster(f), state.structure(f)
    edit.replace_operand(f, 0, of["q"])
    state.replaced(of["a"], of["q"], f)
    assert state.cluster(f) is known and list(known.inputs) == [of["q"]] and state.structure(f) == number


@pytest.mark.parametrize(
    "body",
    [
        (f"a = {WIDE} negate(x)", f"r = {WIDE} abs(a)"),
        (
            f"a = {WIDE} add(x, y)",
            "t = f32[96,64]{1,0} reshape(a)",
            f"b = {WIDE} reshape(t)",
            f"r = {WIDE} multiply(b, x)",
        ),
    ],
)
def test_how_often_code_is_emitted_is_kept_up_when_two_kernels_become_one(body: tuple[str, ...]):
    upper = (f"x = {WIDE} parameter(0)", f"y = {WIDE} parameter(1)", *body)
    lower = (f"u = {WIDE} parameter(0)", f"v0 = {WIDE} parameter(1)", f"n = {WIDE} negate(v0)", f"w = {WIDE} add(u, n)")
    lower = (*lower, "e0 = f32[6144]{0} reshape(w)", "d0 = f32[6144]{0} exponential(e0)")
    module = module_of(
        *INPUTS,
        f"f = {WIDE} fusion(p, q), kind=kLoop, calls=upper",
        "g = f32[6144]{0} fusion(f, p), kind=kLoop, calls=lower",
        upper=upper,
        lower=lower,
    )
    engine = Engine(module, PassContext(FuseOptions(H100)))
    f, g = named(module, "f"), module.entry.root
    for fusion in (f, g):  # what was asked before is kept up
        engine.state.emissions(fusion)
        engine.state.below(fusion)
    made = engine.fuse(f, g)
    fresh = FusionState(module, H100)
    counts = [state.emissions(made).of(named(module, name)) for state in (engine.state, fresh) for name in ("p", "q")]
    assert counts[:2] == counts[2:] and counts[0] > 0
    for table in ("reusing", "reusing_once_per_row", "enlarging"):
        places = [state.cluster(made).inputs[named(module, "p")] for state in (engine.state, fresh)]
        found = [
            getattr(state.below(made), table).get(place)
            for state, place in zip((engine.state, fresh), places, strict=True)
        ]
        assert [f is None for f in found] == [found[1] is None] * 2


def test_what_reads_through_tuples_is_planned_once_for_alike(monkeypatch: pytest.MonkeyPatch):
    """Readers of the same element by views of the same shape are alike; those of another element, or by two views
    instead of one, are not."""
    both = (f"x2 = {WIDE} parameter(0)", f"a2 = {WIDE} abs(x2)", f"n2 = {WIDE} negate(x2)",
        f"t2 = ({WIDE}, {WIDE}) tuple(a2, n2)")  # fmt: skip
    flat = "f32[6144]{0}"
    module = module_of(
        *INPUTS,
        f"k = ({WIDE}, {WIDE}) fusion(p), kind=kLoop, calls=both",
        *[f"e{n} = {WIDE} get-tuple-element(k), index={n}" for n in (0, 1)],
        *[f"b{n} = {flat} bitcast(e{n % 2})" for n in range(3)],
        *[f"r{n} = {flat} exponential(b{n})" for n in range(3)],
        f"one = {flat} multiply(b0, b0)",
        f"two = {flat} multiply(b0, b2)",
        f"t = ({flat}, {flat}, {flat}, {flat}, {flat}) tuple(r0, r1, r2, one, two)",
        both=both,
    )
    state, asked = state_of(module), list[Cluster]()
    monkeypatch.setattr(
        FusionState, "sketch_of", lambda self, cluster: asked.append(cluster) or Sketch(lambda: pytest.fail("asked"))
    )
    kernel = named(module, "k")
    for reader in ("r0", "r1", "r2", "one", "two"):
        consumer = named(module, reader)
        ways = ways_between(kernel, consumer)
        assert ways
        for _ in range(2):
            state.prices.sketch_through(kernel, consumer, ways, [named(module, "e1")])
    assert len(asked) == 4
