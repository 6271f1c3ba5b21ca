"""Passes that rewrite one kind of operation, and what instruction fusion takes up: step by step."""

from __future__ import annotations

import pytest
from small_modules import H100, engine_of, module_of, text_of

import hlo_opt
from hlo_opt.diag import Reason
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.engine import Engine
from hlo_opt.ir import Instruction, Module
from hlo_opt.passes import instruction_fusion, report_on, run
from hlo_opt.passes.decisions import edges_across, member_named
from hlo_opt.passes.inline import Inline
from hlo_opt.passes.instruction_fusion import InstructionFusion
from hlo_opt.passes.sort_iota_fusion import SortIotaFusion
from hlo_opt.passes.variadic_op_splitter import VariadicOpSplitter

ROW = "f32[64]{0}"


def joined(sizes: list[int], count: int = 1) -> Module:
    lines = [f"p{n} = f32[2,{size}]{{1,0}} parameter({n})" for n, size in enumerate(sizes)]
    total, names = sum(sizes), ", ".join(f"p{n}" for n in range(len(sizes)))
    lines += [f"c{k} = f32[2,{total}]{{1,0}} concatenate({names}), dimensions={{1}}" for k in range(count)]
    return module_of(
        *lines,
        f"r = ({', '.join([f'f32[2,{total}]{{1,0}}'] * count)}) tuple({', '.join(f'c{k}' for k in range(count))})",
    )


def parts(module: Module) -> list[list[int]]:
    """The sizes that each concatenate joins."""
    return [[o.shape.dimensions[1] for o in i.operands] for i in module.entry.instructions if i.opcode == "concatenate"]


@pytest.mark.parametrize(
    ("most", "sizes", "left"),
    [
        (1, [1, 2, 3], [[1, 2, 3]]),  # nothing can be joined one by one
        (2, [1, 2, 3], [[1, 2], [3, 3]]),
        (2, [1, 2, 3, 4, 5], [[1, 2], [3, 4], [3, 7], [10, 5]]),
        (3, [1, 2, 3, 4], [[1, 2, 3], [6, 4]]),
        (4, [1, 2, 3, 4], [[1, 2, 3, 4]]),
    ],
)
def test_long_concatenates_are_split(most: int, sizes: list[int], left: list[list[int]]):
    module = joined(sizes)
    assert VariadicOpSplitter(most_operands=most).run(module, PassContext(FuseOptions(H100))) == (left != [sizes])
    assert parts(module) == left
    hlo_opt.verify(hlo_opt.parse(str(module)))


@pytest.mark.parametrize(("steps", "split"), [(0, 0), (1, 1), (2, 2), (None, 2)])
def test_each_split_is_a_step(steps: int | None, split: int):
    module = joined([1, 2, 3], count=2)
    assert VariadicOpSplitter(most_operands=2).run(module, PassContext(FuseOptions(H100, stop_after_step=steps))) == (
        split > 0
    )
    assert len(parts(module)) == 2 + split and VariadicOpSplitter().most_operands == 128


LESS = (
    "a = f32[] parameter(0)",
    "b = f32[] parameter(1)",
    "m = s32[] parameter(2)",
    "n = s32[] parameter(3)",
    "c = pred[] compare(a, b), direction=LT",
)
SORTED = "(f32[4,16]{1,0}, s32[4,16]{1,0})"
IOTA = "i = s32[4,16]{1,0} iota(), iota_dimension=1"


def sort(*, attributes: str = "", along: int = 1, iota: str = IOTA, more: tuple[str, ...] = ()) -> Module:
    lines = [
        "p = f32[4,16]{1,0} parameter(0)",
        *more,
        iota,
        f"s = {SORTED} sort(p, i), dimensions={{{along}}}, is_stable=true, to_apply=less{attributes}",
    ]
    return module_of(*lines, "g = f32[4,16]{1,0} get-tuple-element(s), index=0", less=LESS)


@pytest.mark.parametrize(
    ("module", "taken"),
    [
        ({}, True),
        ({"along": 0}, False),
        ({"along": 0, "iota": IOTA.replace("=1", "=0")}, True),
        ({"more": ("w = f32[4,16]{1,0} abs(p)",), "attributes": ", control-predecessors={w}"}, False),
        ({"more": ("w = f32[4,16]{1,0} abs(p)",), "iota": f"{IOTA}, control-predecessors={{w}}"}, False),
        ({"iota": "i = s32[4,16]{1,0} abs(k)", "more": ("k = s32[4,16]{1,0} parameter(1)",)}, False),
    ],
)
def test_which_iotas_a_sort_takes(module: dict[str, object], taken: bool):
    made = sort(**module)  # type: ignore[arg-type]
    assert SortIotaFusion().run(made, PassContext(FuseOptions(H100))) == taken
    fusions = [i for i in made.entry.instructions if i.opcode == "fusion"]
    assert len(fusions) == taken and all(
        f.word("kind") == "kCustom" and [o.name for o in f.operands] == ["p"] for f in fusions
    )


def test_an_iota_that_others_wait_for_stays():
    lines = (
        "p = f32[4,16]{1,0} parameter(0)",
        IOTA,
        f"s = {SORTED} sort(p, i), dimensions={{1}}, is_stable=true, to_apply=less",
        "w = f32[4,16]{1,0} abs(p), control-predecessors={i}",
        "g = f32[4,16]{1,0} get-tuple-element(s), index=0",
        "r = f32[4,16]{1,0} add(g, w)",
    )
    assert not SortIotaFusion().run(module_of(*lines, less=LESS), PassContext(FuseOptions(H100)))
    one = lines[:3] + lines[4:5]
    assert SortIotaFusion().run(module_of(*one, less=LESS), PassContext(FuseOptions(H100)))
    assert not SortIotaFusion().run(module_of(*one, less=LESS), PassContext(FuseOptions(H100, stop_after_step=0)))


def test_vectors_are_sorted_along_their_only_dimension():
    lines = (
        "p = f32[16]{0} parameter(0)",
        "i = s32[16]{0} iota(), iota_dimension=0",
        "s = (f32[16]{0}, s32[16]{0}) sort(p, i), dimensions={0}, to_apply=less",
        "g = f32[16]{0} get-tuple-element(s), index=0",
    )
    assert SortIotaFusion().run(module_of(*lines, less=LESS), PassContext(FuseOptions(H100)))


# ---- instruction fusion

FUSER = InstructionFusion()


def read(*lines: str, **options: object) -> tuple[Engine, dict[str, Instruction]]:
    module = module_of(f"p = {ROW} parameter(0)", *lines, held=(f"x0 = {ROW} parameter(0)", f"y0 = {ROW} negate(x0)"))
    return engine_of(module, **options)


def test_what_is_a_producer():
    engine, of = read(
        "k = f32[1]{0} constant({3})",
        "m = f32[64]{0} constant({...})",
        f"a = {ROW} negate(p)",
        f"t = {ROW} bitcast(p)",
        f"f = {ROW} fusion(p), kind=kLoop, calls=held",
        f"n = ({ROW}) tuple(a)",
        f"r = {ROW} abs(p)",
    )
    is_producer = instruction_fusion._is_producer
    assert [n for n in ("p", "k", "m", "a", "t", "f", "n") if is_producer(of[n], of["r"])] == ["a", "t", "f"]
    assert [n for n in ("p", "k", "m", "a", "t", "f", "n") if is_producer(of[n], of["f"])] == ["k", "a", "t", "f"]
    assert FUSER.looks_at(engine.edge(of["a"], of["r"])) and not FUSER.looks_at(engine.edge(of["a"], of["n"]))
    assert (FUSER.may_duplicate, FUSER.max_emissions, FUSER.row_kernels) == (True, 15, True)


@pytest.mark.parametrize(("steps", "kernels"), [(0, 4), (1, 3), (2, 2), (3, 1), (None, 1)])
def test_kernels_grow_from_their_end_the_latest_operand_first(steps: int | None, kernels: int):
    engine, _ = read(f"a = {ROW} negate(p)", f"b = {ROW} abs(p)", f"c = {ROW} cosine(b)", f"r = {ROW} add(a, c)")
    context = PassContext(FuseOptions(H100, stop_after_step=steps))
    assert FUSER.run(engine.module, context) == (steps != 0)
    launched = [i for i in engine.module.entry.instructions if i.opcode != "parameter"]
    assert len(launched) == kernels
    inside = (
        {i.name for i in engine.module.entry.root.called_by("calls").instructions if i.opcode != "parameter"}
        if steps != 0
        else set()
    )
    assert inside == [set(), {"r", "c"}, {"r", "c", "b"}, {"r", "c", "b", "a"}][min(3 if steps is None else steps, 3)]


def test_what_would_read_more_is_not_copied_where_a_reader_refuses():
    lines = (
        "w = f32[64]{0} parameter(1)",
        f"a = {ROW} add(p, w)",
        f"b = {ROW} abs(a)",
        f'd = {ROW} custom-call(a), custom_call_target="x"',
        f"r = ({ROW}, {ROW}) tuple(b, d)",
    )
    engine, of = read(*lines)
    entry = engine.module.entry
    policy = FUSER.policy(engine, entry)
    assert policy.do_not_duplicate == policy.staying == {of["a"]}
    edge = engine.edge(of["a"], of["b"])
    reason = Reason.of("FUS403", producer="a", users=2, read=512, size=256)
    assert [r for r in FUSER.refusals(engine, edge) if r.code != "FUS410"] == [reason]
    once = InstructionFusion(may_duplicate=False).policy(engine, entry)
    assert not (once.do_not_duplicate or once.staying)
    assert not InstructionFusion(row_kernels=False).policy(engine, entry).staying
    engine.notes.clear()
    engine.disabled = frozenset({"FUS403", "FUS410"})
    policy = FUSER.policy(engine, entry)
    assert not (policy.do_not_duplicate or policy.staying)


@pytest.mark.parametrize(("given", "again"), [("f32", False), ("s8", True)])
def test_what_is_written_anyway_is_computed_again_where_that_reads_less(given: str, again: bool):
    big, wide, narrow = "[1048576]{0}", f"{given}[1048576]{{0}}", "bf16[1048576]{0}"
    engine, of = read(
        f"w = {wide} parameter(1)",
        f"v = {wide} negate(w)",
        f"a = {narrow} convert(v)",
        f"c = {narrow} negate(a)",
        f"b = {narrow} abs(c)",
        f'd = {narrow} custom-call(a), custom_call_target="x"',
        f"r = (bf16{big}, bf16{big}) tuple(b, d)",
    )
    FUSER.run(engine.module, PassContext(FuseOptions(H100)))
    body = of["b"].parent or engine.module.entry.root.operands[0].called_by("calls")
    assert ("convert" in {i.opcode for i in body.instructions}) == again


# ---- calls, explanations, boundaries


@pytest.mark.parametrize(("fusions", "calls", "changed"), [(False, ["fusion"], False), (True, [], True)])
def test_fusions_are_inlined_where_asked_for(fusions: bool, calls: list[str], changed: bool):
    engine, _ = read(f"f = {ROW} fusion(p), kind=kLoop, calls=held")
    assert Inline(fusions=fusions).run(engine.module, PassContext(FuseOptions(H100))) == changed
    assert [i.opcode for i in engine.module.entry.instructions if i.opcode == "fusion"] == calls
    assert not Inline(fusions=True).run(
        read(f"f = {ROW} fusion(p), kind=kLoop, calls=held")[0].module,
        PassContext(FuseOptions(H100, stop_after_step=0)),
    )


def test_the_dearest_ten(monkeypatch: pytest.MonkeyPatch):
    lines = [f"p = {ROW} parameter(0)"]
    for n in range(12):
        lines += [f"a{n} = {ROW} tanh(p)", f"b{n} = {ROW} abs(a{n})"]
    lines.append(f"r = ({', '.join([ROW] * 12)}) tuple({', '.join(f'b{n}' for n in range(12))})")
    report = report_on(run(hlo_opt.parse(text_of(*lines)), passes="dce", simplify="never"))
    assert [d.producer for d in report.dearest] == [f"a{n}" for n in range(10)]
    assert report.refusals_by_code == {"FUS503": 12} and not report.fused


def test_an_edge_across_a_loop_counts_with_its_rounds():
    rounds = {"e": 1, "body": 5}
    text = """HloModule m

body {
  s = (s32[], f32[64]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[64]{0} get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  c = f32[64]{0} abs(v)
  h = f32[64]{0} tanh(c)
  ROOT t = (s32[], f32[64]{0}) tuple(j, h)
}

condition {
  s = (s32[], f32[64]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(5)
  ROOT c = pred[] compare(i, limit), direction=LT
}

ENTRY e {
  p = f32[64]{0} parameter(0)
  zero = s32[] constant(0)
  d = f32[64]{0} tanh(p)
  n = f32[64]{0} abs(d)
  t = (s32[], f32[64]{0}) tuple(zero, n)
  w = (s32[], f32[64]{0}) while(t), condition=condition, body=body
  ROOT r = f32[64]{0} get-tuple-element(w), index=1
}
"""
    report = report_on(run(hlo_opt.parse(text), passes="dce", simplify="never"))
    assert {name: report.rounds[name] for name in rounds} == rounds
    assert [d.computation for d in report.dearest[:2]] == ["body", "e"]  # the same edge, five times


BRANCH = """HloModule m

left {
  x = f32[64]{0} parameter(0)
  ROOT y = f32[64]{0} negate(x), metadata={op_name="y" source_file="m.py" source_line=2}
}

right {
  x2 = f32[64]{0} parameter(0)
  ROOT y2 = f32[64]{0} abs(x2)
}

ENTRY e {
  i = pred[] parameter(0)
  p = f32[64]{0} parameter(1)
  a = f32[64]{0} tanh(p), metadata={op_name="a" source_file="m.py" source_line=1}
  c = f32[64]{0} conditional(i, a, a), true_computation=left, false_computation=right
  ROOT r = f32[64]{0} negate(c)
}
"""


def test_edges_across_a_branch():
    report = report_on(run(hlo_opt.parse(BRANCH), simplify="never", passes="instruction-fusion"))
    found = {(d.producer, d.consumer): d for d in report.refused}
    assert set(found) == {("a", "y"), ("a", "y2"), ("y", "r"), ("y2", "r")}
    one = found["a", "y"]
    assert one.reasons == (
        Reason.of("FUS112", producer="a", consumer="y", control="c", opcode="conditional", bytes=256),
    )
    assert (one.producer_opcode, one.consumer_opcode, one.rule, one.relation) == (
        "tanh",
        "negate",
        "legality",
        "across",
    )
    assert (one.producer_source, one.consumer_source, one.producer_kernel, one.consumer_kernel) == (
        "m.py:1",
        "m.py:2",
        "a",
        "y",
    )
    assert one.computation == "left" and found["y", "r"].computation == "e"


def test_a_member_by_its_name_in_the_input():
    engine, of = read(f"f = {ROW} fusion(p), kind=kLoop, calls=held", f"r = {ROW} abs(f)")
    inner = of["f"].called_by("calls").root
    assert member_named(of["f"], "y0", {}) is inner and member_named(of["f"], "was", {inner: "was"}) is inner
    assert member_named(of["f"], "y0", {inner: "was"}) is of["f"] and member_named(of["r"], "y0", {}) is of["r"]
    assert list(edges_across(of["r"], Nothing(), engine)) == []  # type: ignore[arg-type]


class Nothing:
    """No value comes from another side."""

    def of(self, operand: Instruction) -> list[object]:
        return []
