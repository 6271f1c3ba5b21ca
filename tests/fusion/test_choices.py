"""What costs too much to compute again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_modules import module_of, named, state_of

from hlo_opt.diag import Reason
from hlo_opt.fusion import choices
from hlo_opt.fusion import state as states
from hlo_opt.fusion.choices import InstructionFusionChoices, always_duplicable, is_expensive
from hlo_opt.fusion.legality import Check, Edge
from hlo_opt.fusion.prices import Prices
from hlo_opt.ir import Instruction
from hlo_opt.plans import Launch
from hlo_opt.plans.price import FREE
from hlo_opt.plans.sketch import Sketch, Summary
from hlo_opt.text import parse


def root(expression: str) -> Instruction:
    return parse(
        f"HloModule m\nENTRY e {{\n  p = f32[64] parameter(0)\n  q = f64[64] parameter(1)\n  h = bf16[64] parameter(2)\n  x = f16[64] parameter(3)\n  ROOT r = {expression}\n}}\n"
    ).entry.root


@pytest.mark.parametrize("opcode", ["exponential", "sqrt", "rsqrt"])
def test_what_special_function_units_compute_is_cheap(opcode: str) -> None:
    assert [is_expensive(root(f"{t}[64] {opcode}({n})")) for t, n in (("f32", "p"), ("bf16", "h"), ("f16", "x"))] == [
        False
    ] * 3
    assert is_expensive(root(f"f64[64] {opcode}(q)"))


def test_a_tuple_is_no_number_of_a_cheap_type() -> None:
    (entry,) = parse("HloModule m\nENTRY e { p = (f32[8]) parameter(0) ROOT r = (f32[8]) sqrt(p) }\n").computations
    assert is_expensive(entry.root)


def test_other_functions_are_not() -> None:
    assert is_expensive(root("f32[64] unheard-of(p)"))
    assert is_expensive(root("f32[64] tanh(p)")) and is_expensive(root("f64[64] divide(q, q)"))
    assert not is_expensive(root("f32[64] divide(p, p)")) and not is_expensive(root("f32[64] add(p, p)"))


def test_what_costs_nothing_to_compute_again() -> None:
    assert always_duplicable(root("f64[64] convert(p)")) and not always_duplicable(root("f32[64] convert(q)"))
    assert always_duplicable(root("f32[2] iota(), iota_dimension=0")) and not always_duplicable(
        root("f32[64] negate(p)")
    )


# ---- each rule by itself

WIDE, ROW = "f32[64,96]{1,0}", "f32[64]{0}"
GEMM = 'kind=kCustom, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}'
ROWS = "dimensions={1}, to_apply=sum"
INPUTS = (
    f"p = {WIDE} parameter(0)",
    f"v = {ROW} parameter(1)",
    "few = f32[4,64]{1,0} parameter(2)",
    "t = f32[96,64]{1,0} parameter(3)",
    "d = f64[64]{0} parameter(4)",
    "z = f32[] constant(0)",
)
KERNELS = {
    "of_three": (f"x0 = {WIDE} parameter(0)", f"a0 = {WIDE} abs(x0)", f"b0 = {WIDE} tanh(a0)",
        f"y0 = {WIDE} negate(b0)"),
    "product": (
        "x1 = f32[64,64]{1,0} parameter(0)",
        "y1 = f32[64,64]{1,0} dot(x1, x1), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "sums": (f"x2 = {WIDE} parameter(0)", "z2 = f32[] constant(0)", f"e2 = {WIDE} exponential(x2)",
        f"y2 = {ROW} reduce(e2, z2), {ROWS}"),
    "enlarged": (f"x3 = {ROW} parameter(0)", f"n3 = {ROW} negate(x3)", f"y3 = {WIDE} broadcast(n3), dimensions={{0}}"),
    "scaled": (
        f"x4 = {ROW} parameter(0)",
        f"w4 = {WIDE} parameter(1)",
        "z4 = f32[] constant(0)",
        f"b4 = {WIDE} broadcast(x4), dimensions={{0}}",
        f"m4 = {WIDE} multiply(w4, b4)",
        f"y4 = {ROW} reduce(m4, z4), {ROWS}",
    ),
}  # fmt: skip


def edge(*lines: str, **kernels: tuple[str, ...]) -> Edge:
    """From `a` to `b`."""
    module = module_of(*INPUTS, *lines, "r = f32[] constant(0)", **KERNELS, **kernels)
    return Edge(named(module, "a"), named(module, "b"), state_of(module))


def no(code: str, **numbers: object) -> Reason:
    return Reason.of(code, **numbers)


PLAIN = InstructionFusionChoices()
ONCE = InstructionFusionChoices(may_duplicate=False)
XLA = InstructionFusionChoices(row_kernels=False)
TWICE = (f"a = {WIDE} tanh(p)", f"b = {WIDE} negate(a)", f"c = {WIDE} abs(a)")
SUM = f"a = {ROW} reduce(p, z), {ROWS}"
TABLE: dict[str, tuple[Check, tuple[str, ...], Reason | None]] = {
    "one reader": (ONCE.duplication, TWICE[:2], None),
    "two readers, no copies": (ONCE.duplication, TWICE, no("FUS501", producer="a", users=2)),
    "two readers of what costs nothing": (ONCE.duplication, (f"a = {WIDE} broadcast(v), dimensions={{0}}", *TWICE[1:]),
        None),
    "two readers of what is expensive": (PLAIN.duplication, TWICE, no("FUS401", producer="a", opcode="tanh", users=2)),
    "two readers of what is cheap": (PLAIN.duplication, (f"a = {WIDE} abs(p)", *TWICE[1:]), None),
    "an operation": (choices.producer_is_fusion, TWICE[:2], None),
    "a fusion": (
        choices.producer_is_fusion, (f"a = {WIDE} fusion(p), kind=kLoop, "
                                     f"calls=of_three", TWICE[1]), no("FUS107", producer="a", size=3)
    ),
    "no library": (choices.library_call, TWICE[:2], None),
    "a product above": (
        choices.library_call,
        ("a = f32[96,96]{1,0} dot(t, p), lhs_contracting_dims={1}, "
         "rhs_contracting_dims={0}", "b = f32[96,96]{1,0} negate(a)"),
        no("FUS302", opcode="dot", runs_as="a library call"),
    ),
    "a product below": (
        choices.library_call,
        (TWICE[0], "b = f32[96,96]{1,0} dot(t, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        no("FUS302", opcode="dot", runs_as="a library call"),
    ),
    "a library's kernel": (
        choices.library_call,
        ("x = f32[64,64]{1,0} parameter(5)", f"a = f32[64,64]{{1,0}} fusion(x), {GEMM}, "
                                             f"calls=product", "b = f32[64,64]{1,0} abs(a)"),
        None,
    ),
    # read several times
    "once": (PLAIN.expensive_reuse, TWICE[:2], None),
    "several times": (
        PLAIN.expensive_reuse,
        (f"a = {ROW} tanh(v)", f"b = {WIDE} broadcast(a), dimensions={{0}}"),
        no("FUS402", producer="a", opcode="tanh", user="b", user_opcode="broadcast"),
    ),
    "several times, further down": (
        PLAIN.expensive_reuse,
        (f"a = {ROW} tanh(v)", f"b = {WIDE} fusion(a), kind=kLoop, calls=enlarged"),
        no("FUS402", producer="a", opcode="tanh", user="y3", user_opcode="broadcast"),
    ),
    "several times what is cheap": (PLAIN.expensive_reuse,
        (f"a = {ROW} abs(v)", f"b = {WIDE} broadcast(a), dimensions={{0}}"), None),
    "several times one element": (PLAIN.expensive_reuse,
        ("a = f32[] tanh(z)", f"b = {WIDE} broadcast(a), dimensions={{}}"), None),
    "several times a fusion": (
        PLAIN.expensive_reuse, (f"a = {ROW} fusion(p), kind=kInput, "
                                f"calls=sums", f"b = {WIDE} broadcast(a), dimensions={{0}}"), None
    ),
    "a reduction's result in rows": (
        PLAIN.expensive_reuse, (SUM, f"b = {WIDE} broadcast(a), dimensions={{0}}"), None,
    ),
    "a reduction's result in a loop": (
        XLA.expensive_reuse,
        (SUM, f"b = {WIDE} broadcast(a), dimensions={{0}}"),
        no("FUS402", producer="a", opcode="reduce", user="b", user_opcode="broadcast"),
    ),
    "once per row": (
        PLAIN.expensive_reuse, (f"a = {ROW} tanh(v)", f"b = {ROW} fusion(a, p), kind=kInput, calls=scaled"),
        no("FUS402", producer="a", opcode="tanh", user="b4", user_opcode="broadcast"),
    ),
    # transposes and reductions
    "no transpose before a reduction": (
        choices.transpose_before_reduction, (f"a = {WIDE} tanh(p)", f"b = {ROW} reduce(a, z), {ROWS}"), None
    ),
    "a transpose before a reduction": (
        choices.transpose_before_reduction,
        (f"a = {WIDE} transpose(t), dimensions={{1,0}}", f"b = {ROW} reduce(a, z), {ROWS}"),
        no("FUS405", producer="a", transpose="a", reduction="b"),
    ),
    "a transpose before a reduction in a loop": (
        choices.transpose_before_reduction,
        ("a = f32[4,64]{1,0} transpose(l), dimensions={1,0}",
            "b = f32[64]{0} reduce(a, z), dimensions={0}, to_apply=sum", ),
        None,
    ),
    "a transpose before a loop": (
        choices.transpose_before_reduction, (f"a = {WIDE} transpose(t), "
                                             f"dimensions={{1,0}}", f"b = {WIDE} negate(a)"), None
    ),
    # what follows a reduction
    "a reduction in a loop": (
        XLA.reduction_epilogue, ("a = f32[64]{0} reduce(few, z), dimensions={0}, "
                                 "to_apply=sum", f"b = {ROW} negate(a)"), None
    ),
    "a reduction's end": (XLA.reduction_epilogue, (SUM, "b = f16[64]{0} convert(a)"), None),
    "a reduction's end as it lies": (XLA.reduction_epilogue, (SUM, "b = f32[8,8]{1,0} bitcast(a)"), None),
    "a reduction's end by its bits": (XLA.reduction_epilogue, (SUM, "b = s32[64]{0} bitcast-convert(a)"), None),
    "a reduction's end and more": (
        XLA.reduction_epilogue, (SUM, "b = f16[64]{0} convert(a)", f"c = {ROW} abs(a)"),
        no("FUS404", producer="a", reduction="row", sizes="1x64x96", consumer="b"),
    ),
    "behind a row reduction": (
        XLA.reduction_epilogue, (SUM, f"b = {ROW} negate(a)"),
        no("FUS404", producer="a", reduction="row", sizes="1x64x96", consumer="b")
    ),
    "behind a column reduction": (
        XLA.reduction_epilogue,
        ("a = f32[96]{0} reduce(p, z), dimensions={0}, to_apply=sum", "b = f32[96]{0} negate(a)"),
        no("FUS404", producer="a", reduction="column", sizes="1x64x96", consumer="b"),
    ),
    "behind a row reduction of ours": (PLAIN.reduction_epilogue, (SUM, f"b = {ROW} negate(a)"), None),
    # loops for one result
    "what takes long for few": (
        choices.heavy_computation,
        ("a = f32[64]{0} reduce(few, z), dimensions={0}, to_apply=sum", f"b = {WIDE} broadcast(a), dimensions={{0}}"),
        no("FUS406", producer="a", opcode="reduce", elements=4, user="b", user_opcode="broadcast"),
    ),
    "what takes long for as many": (
        choices.heavy_computation, ("a = f32[64]{0} reduce(few, z), dimensions={0}, "
                                    "to_apply=sum", f"b = {ROW} negate(a)"), None
    ),
    "what threads share": (choices.heavy_computation, (SUM, f"b = {WIDE} broadcast(a), dimensions={{0}}"), None),
    "a large window": (
        choices.heavy_computation,
        ("a = f32[64]{0} reduce-window(v, z), window={size=11 pad=5_5}, "
         "to_apply=sum", f"b = {WIDE} broadcast(a), dimensions={{0}}"),
        no("FUS406", producer="a", opcode="reduce-window", elements=11, user="b", user_opcode="broadcast"),
    ),
    "a small window": (
        choices.heavy_computation,
        ("a = f32[64]{0} reduce-window(v, z), window={size=10 pad=4_5}, "
         "to_apply=sum", f"b = {WIDE} broadcast(a), dimensions={{0}}"),
        None,
    ),
    "a small window of two dimensions": (
        choices.heavy_computation,
        (
            "a = f32[4,64]{1,0} reduce-window(few, z), window={size=2x6 pad=0_1x2_3}, to_apply=sum",
            "b = f32[3,4,64]{2,1,0} broadcast(a), dimensions={1,2}",
        ),
        no("FUS406", producer="a", opcode="reduce-window", elements=12, user="b", user_opcode="broadcast"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", TABLE)
def test_a_rule(what: str) -> None:
    check, lines, against = TABLE[what]
    loose = ("l = f32[64,4]{1,0} parameter(6)",)
    assert check(edge(*loose, *lines)) == against


def test_how_often_code_is_emitted() -> None:
    """A slice reads it at an index of its own."""
    for count in (1, 2, 3):
        cut = [f"c{n} = f32[8,96]{{1,0}} slice(x5), slice={{[{n}:{n + 8}], [0:96]}}" for n in range(3)][:count]
        sums = [f"t{n} = f32[8,96]{{1,0}} add({'c0' if n == 1 else f't{n - 1}'}, c{n})" for n in range(1, count)]
        body = (
            f"x5 = {WIDE} parameter(0)",
            *cut,
            *sums,
            f"y5 = f32[8,96]{{1,0}} negate({f't{count - 1}' if sums else 'c0'})",
        )
        found = edge(f"a = {WIDE} tanh(p)", "b = f32[8,96]{1,0} fusion(a), kind=kLoop, calls=cut", cut=body)
        assert InstructionFusionChoices(max_emissions=count).emission_limit(found) is None
        limited = InstructionFusionChoices(max_emissions=count - 1).emission_limit(found)
        assert limited == no("FUS204", producer="a", count=count, limit=count - 1)
        spread = edge(
            f"a = {WIDE} broadcast(v), dimensions={{0}}",
            "b = f32[8,96]{1,0} fusion(a), kind=kLoop, calls=cut",
            cut=body,
        )
        assert InstructionFusionChoices(max_emissions=0).emission_limit(spread) is None


def test_what_must_not_be_copied() -> None:
    lines = (f"a = {ROW} add(v, v)", f"b = {ROW} negate(a)", f"c = {ROW} abs(a)")
    found, alone = edge(*lines), edge(*lines[:2])
    for this, against in ((found, no("FUS403", producer="a", users=2, read=256, size=256)), (alone, None)):
        assert InstructionFusionChoices(do_not_duplicate=frozenset({this.producer})).memory_traffic(this) == against
    assert PLAIN.memory_traffic(found) is None


@pytest.mark.parametrize(("again", "refused"), [(1.9, False), (2.0, True), (2.1, True)])
def test_what_is_in_memory_anyway_is_computed_again_only_where_that_is_quicker(
    again: float, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, alone = edge(*TWICE), edge(*TWICE[:2])
    monkeypatch.setattr(Prices, "joined", lambda self, producer, consumer: replace(FREE, us=again))
    launch = 1.0
    monkeypatch.setattr(Prices, "of", lambda self, instruction: replace(FREE, us=2.0, launch=launch))
    against = no("FUS410", producer="a", consumer="b", us_fused=again, us_unfused=2.0) if refused else None
    for this, wanted in ((found, against), (alone, None)):
        assert InstructionFusionChoices(staying=frozenset({this.producer})).recomputation(this) == wanted
    assert PLAIN.recomputation(found) is None
    stays, launch = InstructionFusionChoices(staying=frozenset({found.producer})), 1.5
    assert stays.recomputation(found) is None  # its kernel is little more than a launch
    launch = 1.0
    impossible = no("FUS306", values=2, limit=1)
    monkeypatch.setattr(Prices, "joined", lambda self, producer, consumer: impossible)
    assert stays.recomputation(found) is None


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_a_row_kernel_takes_what_keeps_its_rows(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = edge(f"a = {WIDE} reverse(p), dimensions={{1}}", f"b = {ROW} reduce(a, z), {ROWS}")
    found._merged = Sketch.known(Summary("loop", rows, Launch(1, 1)))
    for wanted, in_producer in ((1, 0), (2, 1)):  # rows that the producer folds count, too
        monkeypatch.setattr(found.state, "row_reductions", lambda i, n=in_producer: 1 if i is found.consumer else n)
        against = None if rows >= wanted else no("FUS407", consumer="b", producer="a", kind="loop")
        assert choices.keeps_row_reduction(found) == against
    monkeypatch.setattr(found.state, "row_reductions", lambda instruction: 0)
    assert choices.keeps_row_reduction(found) is None
    plain = edge(f"a = {WIDE} tanh(p)", f"b = {ROW} reduce(a, z), {ROWS}")
    assert choices.keeps_row_reduction(plain) is None
    assert plain._merged is None  # not planned to know that
    epilogue = edge(SUM, f"b = {ROW} negate(a)")
    epilogue._merged = Sketch.known(Summary("loop", rows, Launch(1, 1)))
    assert (PLAIN.reduction_epilogue(epilogue) is None) == (rows > 0)
    epilogue._merged = no("FUS303", elements=2, limit=1)
    assert PLAIN.reduction_epilogue(epilogue) is not None


def test_a_loop_is_not_asked_whether_it_keeps_its_rows() -> None:
    found = edge(f"a = {WIDE} tanh(p)", f"b = {WIDE} negate(a)")
    found._merged = Sketch.known(Summary("loop", -1, Launch(1, 1)))
    assert choices.keeps_row_reduction(found) is None


@pytest.mark.parametrize(("us_fused", "grid", "refused"), [(9.0, 1, True), (3.0, 1, False), (9.0, 132, False)])
def test_few_blocks_take_a_reduction_only_if_that_is_quicker(
    us_fused: float, grid: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = edge(SUM, f"b = {ROW} negate(a)")
    monkeypatch.setattr(Prices, "of", lambda self, instruction: replace(FREE, us=2.0))
    pricing = lambda: replace(FREE, us=us_fused)  # noqa: E731
    found._merged = Sketch.known(Summary("row-reduction", 1, Launch(grid, 256), pricing=pricing))
    slower = no("FUS408", producer="a", users=1, model="", us_fused=us_fused, us_unfused=4.0)
    assert choices.keeps_blocks(found) == (slower if refused else None)
    found._merged = no("FUS303", elements=2, limit=1)
    assert choices.keeps_blocks(found) is None


def test_the_rules_of_a_policy() -> None:
    assert choices.keeps_row_reduction in PLAIN.checks() and choices.keeps_row_reduction not in XLA.checks()
    assert len(PLAIN.checks()) == 16
    found, alone = edge(*TWICE), edge(*TWICE[:2])
    free = edge(f"a = {WIDE} broadcast(v), dimensions={{0}}", *TWICE[1:])
    assert [c.rules_out(e) for c in (ONCE, PLAIN) for e in (found, alone, free)] == [True, *[False] * 5]
    assert not ONCE.rules_out(found, frozenset({"FUS501"}))
    assert [r.code for r in ONCE.against(found)] == ["FUS501"] and not list(ONCE.against(found, frozenset({"FUS501"})))
    stays = InstructionFusionChoices(staying=frozenset({found.producer}))
    others = [PLAIN, ONCE, XLA, InstructionFusionChoices(max_emissions=14), stays]
    assert len({c.likeness(found) for c in others}) == len(others)
    assert InstructionFusionChoices(do_not_duplicate=frozenset({found.producer})).likeness(found) is None


def test_which_types_are_cheap_and_which_converts_are_free() -> None:
    assert always_duplicable(root("f32[64] convert(h)")) and not always_duplicable(root("bf16[64] convert(x)"))
    assert always_duplicable(root("f32[2] constant({1, 2})")) and always_duplicable(root("s32[64] bitcast(p)"))
    assert is_expensive(root("f64[64] exponential(q)")) and not is_expensive(root("f32[64] negate(p)"))


def test_only_a_row_kernel_reads_once_per_row() -> None:
    """What the sum of each row is made from is read for each element of the result: in a loop, again and again."""
    body = (
        f"x9 = {WIDE} parameter(0)",
        "z9 = f32[] constant(0)",
        f"y9 = {ROW} reduce(x9, z9), {ROWS}",
        f"b9 = {WIDE} broadcast(y9), dimensions={{0}}",
    )
    for rows, reused in ((1, False), (0, True)):
        found = edge(f"a = {WIDE} tanh(p)", f"b = {WIDE} fusion(a), kind=kInput, calls=rows9", rows9=body)
        found.state.caches.take(found.consumer, {states.ROWS: rows})
        expected = no("FUS402", producer="a", opcode="tanh", user="b9", user_opcode="broadcast") if reused else None
        assert PLAIN.expensive_reuse(found) == expected
        assert XLA.expensive_reuse(found) is not None


PRODUCT_OF_OURS = """
HloModule m

body {
  x = f32[33,16]{1,0} parameter(0)
  d = f32[33,33]{1,0} dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT n = f32[33,33]{1,0} negate(d)
}

ENTRY e {
  x = f32[33,16]{1,0} parameter(0)
  k = f32[33,33]{1,0} fusion(x), kind=kLoop, calls=body
  e = f32[33,33]{1,0} dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT t = f32[33,33]{1,0} add(k, e)
}
"""


@pytest.mark.parametrize(
    ("producer", "message"),
    [("k", "`k` is a kernel of ours for a `dot`"), ("e", "`dot` runs as a library call")],
)
def test_a_product_in_a_fusion_is_no_library_call(producer: str, message: str) -> None:
    module = parse(PRODUCT_OF_OURS)
    edge = Edge(named(module, producer), named(module, "t"), state_of(module))
    reason = choices.library_call(edge)
    assert reason is not None and reason.message == message
