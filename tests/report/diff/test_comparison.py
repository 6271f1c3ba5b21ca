"""Two modules compared: figures, what belongs together, what comes first, and what is the same."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import hlo_opt
from hlo_opt.diag import UsageError
from hlo_opt.fusion.summary import module_summary
from hlo_opt.report.diff import comparison
from hlo_opt.report.diff.comparison import MOST_FUSED, _instead, _refused_otherwise, _touched, diff, has_kernels
from hlo_opt.report.diff.kernels import KernelGroup
from scripts.diff_programs import program, retold

TEXT = """HloModule m

ENTRY e {
  p = f32[512,256]{1,0} parameter(0)
  q = f32[512,256]{1,0} parameter(1)
  a = f32[512,256]{1,0} tanh(p)
  b = f32[512,256]{1,0} negate(a)
  k = f32[512,256]{1,0} sine(q)
  l = f32[512,256]{1,0} abs(k)
  ROOT r = (f32[512,256]{1,0}, f32[512,256]{1,0}) tuple(b, l)
}
"""


def test_it_is_part_of_the_interface():
    found = hlo_opt.diff(TEXT, TEXT.replace("tanh", "cosine"))
    assert not found.same and "opcode tanh -> cosine" in str(found)


def test_texts_without_fusions_are_fused_first():
    found = diff(TEXT, TEXT.replace("tanh", "cosine"))
    assert found.fused_by == "default" and found.new.summary.kernels < 4
    assert diff(TEXT, TEXT, fuse="never").new.summary.kernels == 4
    fused = str(hlo_opt.fuse(hlo_opt.parse(TEXT))[0])
    assert has_kernels(hlo_opt.parse(fused)) and not has_kernels(hlo_opt.parse(TEXT))
    assert diff(TEXT, fused).fused_by == "" and diff(fused, fused, fuse="always").fused_by == "default"


def test_large_texts_are_not():
    text = program(MOST_FUSED + 1, 0)
    found = diff(text, text)
    assert found.too_large and found.fused_by == "" and "--fuse always" in str(found)


def test_figures_are_those_of_stats():
    found = diff(TEXT, TEXT.replace("tanh", "cosine"), fuse="never", target="a100_sxm_80")
    alone = module_summary(hlo_opt.parse(TEXT), found.target)
    assert (alone.kernels, alone.bytes, alone.est_us) == (
        found.old.summary.kernels,
        found.old.summary.bytes,
        found.old.summary.est_us,
    )


def test_what_does_not_touch_is_apart_and_the_worst_comes_first():
    new = TEXT.replace("tanh(p)", "cosine(p)").replace(
        "l = f32[512,256]{1,0} abs(k)", "c = f32[512,256]{1,0} copy(k)\n  l = f32[512,256]{1,0} abs(c)"
    )
    first, second = diff(TEXT, new, fuse="never").differences
    assert first.changes[0].name == "c" and first.us > 0
    assert second.changes[0].name == "a" and second.us < first.us


def test_of_what_costs_nothing_the_largest_array_comes_first():
    text = TEXT.replace("  ROOT r", "  c = f32[8]{0} constant({1,2,3,4,5,6,7,8})\n  d = f32[8]{0} negate(c)\n  ROOT r")
    text = text.replace("tuple(b, l)", "tuple(b, l, d)").replace("{1,0}) tuple", "{1,0}, f32[8]{0}) tuple")
    changed = text.replace("{1,2,3", "{1,1,3").replace("sine", "cosine").replace("negate(a)", "abs(a)")
    found = diff(text, changed, fuse="never")
    assert [d.changes[0].name for d in found.differences] == ["b", "k", "c"]
    swapped = diff(text.replace("f32[512,256]", "f32[2,2]"), changed.replace("f32[512,256]", "f32[2,2]"), fuse="never")
    assert [d.changes[0].name for d in swapped.differences] == ["c", "b", "k"]


def test_a_part_that_is_written_in_another_way_is_one_difference():
    new = TEXT.replace(
        "a = f32[512,256]{1,0} tanh(p)",
        "x = f32[512,256]{1,0} exponential(p)\n  y = f32[512,256]{1,0} log(x)\n  a = f32[512,256]{1,0} floor(y)",
    )
    (difference,) = diff(TEXT, new, fuse="never").differences
    assert {c.name for c in difference.changes} >= {"x", "y"} and difference.us > 0


@pytest.mark.parametrize("seed", range(4))
def test_there_is_no_difference_in_what_is_told_again(seed):
    text = program(150, seed)
    found = diff(text, retold(hlo_opt.parse(text), seed), fuse="never")
    assert found.same and found.growth == 0


def test_fusions_alone_are_no_change_of_the_graph(dumps):
    module = hlo_opt.parse((dumps / "transformer_block.hlo").read_text())
    before, _ = hlo_opt.fuse(module, passes="dce", simplify="always")
    after, _ = hlo_opt.fuse(before, preset="xla-2026", simplify="never")
    found = diff(before, after, fuse="never")
    assert (found.counts.changed, found.counts.added, found.counts.lost, found.counts.moved) == (0, 0, 0, 0)
    assert all(not d.changes for d in found.differences)
    assert found.new.summary.kernels < found.old.summary.kernels and found.growth < 0


def test_a_wrong_way_to_fuse_is_named():
    with pytest.raises(UsageError, match="fuse must be auto, always or never"):
        diff(TEXT, TEXT, fuse="allways")


def edge(producer, consumer, *codes, saved=0.0):
    reasons = [SimpleNamespace(code=code) for code in codes]
    names = {"producer": producer, "consumer": consumer, "producer_kernel": producer, "consumer_kernel": consumer}
    return SimpleNamespace(**names, reasons=reasons, cost=SimpleNamespace(us_saved=saved))


def test_an_edge_that_is_refused_on_both_sides_is_told_where_the_cause_or_the_price_is_another_one():
    sites = {n: SimpleNamespace(partner=SimpleNamespace(instruction=SimpleNamespace(name=n.upper()))) for n in "abcdx"}
    group = KernelGroup([SimpleNamespace(name="x")], [SimpleNamespace(name="X")])
    old = [
        edge("a", "x", "FUS408"),
        edge("b", "x", "FUS408", saved=1.0),
        edge("c", "x", "FUS408", saved=1.0),
        edge("x", "d", "FUS302"),
        edge("d", "x", "FUS504"),
    ]
    new = [
        edge("A", "X", "FUS202"),
        edge("B", "X", "FUS408", saved=3.0),
        edge("C", "X", "FUS408", saved=1.01),
        edge("X", "D", "FUS105"),
        edge("D", "X", "FUS504", saved=9.0),
    ]
    found = list(_refused_otherwise([group], [old, new], sites, passed=False))
    assert [(g, s.producer, s.consumer) for g, s in found] == [(group, "a", "x"), (group, "b", "x"), (group, "x", "d")]
    assert all(s.old is not None and s.new is not None for _, s in found)


def test_what_only_one_has_belongs_to_what_the_other_has_right_before_its_reader():
    """As in the gradient of a tanh, which two versions of JAX write as g (1 - t) + g (1 - t) t and g ((1 + t) (1 - t)):
    the product that is read is there in both, so the sum that is lost belongs to what the product reads."""
    added, known = (SimpleNamespace(partner=partner, inputs=()) for partner in (None, object()))
    product = SimpleNamespace(partner=object(), inputs=((added, 0), (known, 0)))
    reader = SimpleNamespace(partner=SimpleNamespace(inputs=((product, 0),)), inputs=((known, 0),))
    lost = SimpleNamespace(scope=None, users=((reader, 0, 0),))
    assert list(_instead(lost, {})) == [added]


def test_a_kernel_that_computes_a_value_again_belongs_to_its_reader():
    groups = {name: KernelGroup([], []) for name in ("again", "reader")}
    again, reader = (SimpleNamespace(partner=None, users=(), instruction=SimpleNamespace(name=n)) for n in groups)
    reader.inputs = ((again, 0),)
    change = SimpleNamespace(sites=(reader,), details=())
    assert set(_touched(change, groups, is_one_graph=False)) == set(groups.values())


def test_an_edge_that_only_one_module_has_is_not_fused_in_the_other():
    """Two kernels that are lost and one that is added are told as one that they joined into."""
    old = "f = f32[512,256]{1,0} multiply(q, q)\n  k = f32[512,256]{1,0} add(f, p)"
    new = "k = f32[512,256]{1,0} reverse(p), dimensions={0}"
    first, second = (TEXT.replace("k = f32[512,256]{1,0} sine(q)", text) for text in (old, new))
    found = diff(first, second, fuse="never")
    groups = [g for d in found.differences for g in d.groups]
    assert [(g.kind, g.seams) for g in groups] == [("joined", [])]


def test_in_large_modules_few_edges_are_looked_at(monkeypatch: pytest.MonkeyPatch):
    fused = str(hlo_opt.fuse(hlo_opt.parse(TEXT), passes="instruction-fusion")[0])
    apart = str(hlo_opt.parse(TEXT))
    for most, seams in ((2, 1), (0, 0)):
        monkeypatch.setattr(comparison, "LARGE", 0)
        monkeypatch.setattr(comparison, "MOST_IN_LARGE", most)
        found = diff(fused, apart)
        assert sum(len(g.seams) for d in found.differences for g in d.groups) == seams


FUSED = """HloModule m

both {
  p0 = f32[512,256]{1,0} parameter(0)
  a = f32[512,256]{1,0} tanh(p0)
  ROOT b = f32[512,256]{1,0} negate(a)
}

ENTRY e {
  p = f32[512,256]{1,0} parameter(0)
  f = f32[512,256]{1,0} fusion(p), kind=kLoop, calls=both
  ROOT s = f32[512,256]{1,0} sine(f)
}
"""
SPLIT = """HloModule m

ENTRY e {
  p = f32[512,256]{1,0} parameter(0)
  a = f32[512,256]{1,0} tanh(p)
  b = f32[512,256]{1,0} negate(a)
  ROOT s = f32[512,256]{1,0} power(b, p)
}
"""


def test_kernels_that_nothing_explains_go_with_the_change_next_to_them() -> None:
    """The kernel is another one because of what reads it now: the reader is told first."""
    (only,) = diff(FUSED, SPLIT).differences
    assert [c.name for c in only.changes] == ["s"] and sorted(g.kind for g in only.groups) == ["changed", "split"]
    (alone,) = diff(FUSED, SPLIT.replace("power(b, p)", "sine(b)")).differences
    assert alone.changes == [] and [g.kind for g in alone.groups] == ["split"]


RATES = """HloModule m

one {
  x = f32[64]{0} parameter(0)
  rate = f32[] constant(0.5), metadata={source_file="a.py" source_line=LINE}
  rates = f32[64]{0} broadcast(rate), dimensions={}
  ROOT r = f32[64]{0} multiply(x, rates)
}

other {
  x = f32[32]{0} parameter(0)
  rate = f32[] constant(0.5), metadata={source_file="a.py" source_line=7}
  rates = f32[32]{0} broadcast(rate), dimensions={}
  ROOT r = f32[32]{0} multiply(x, rates)
}

ENTRY e {
  p = f32[64]{0} parameter(0)
  q = f32[32]{0} parameter(1)
  a = f32[64]{0} fusion(p), kind=kLoop, calls=one
  b = f32[32]{0} fusion(q), kind=kLoop, calls=other
  ROOT t = (f32[64]{0}, f32[32]{0}) tuple(a, b)
}
"""


@pytest.mark.parametrize(("line", "places"), [("7", [2]), ("8", [1, 1])])
def test_a_constant_of_one_line_with_copies_in_several_kernels_is_told_once(line: str, places: list[int]):
    old = RATES.replace("LINE", line)
    found = diff(old, old.replace("0.5", "0.25"))
    assert [d.changes[0].places for d in found.differences] == places
    assert all(d.changes[0].details[0].new == "0.25" for d in found.differences)


@pytest.mark.parametrize(("other", "places"), [(30, [2]), (40, [1, 1])])
def test_long_constants_that_look_alike_are_not_one(other: int, places: list[int]):
    """What is shown of a long value is the surroundings of the first difference."""

    def text(*added: int) -> str:
        tables = [["0"] * 80 for _ in range(2)]
        for table, ones in zip(tables, [(0, *added[:1]), (0, *added[1:])], strict=True):
            for place in ones:
                table[place] = "1"
        one, two = (",".join(table) for table in tables)
        return (
            f"HloModule m\nENTRY e {{\n  x = f32[80]{{0}} parameter(0)\n  a = f32[80]{{0}} constant({{{one}}})\n"
            f"  s = f32[80]{{0}} add(x, a)\n  t = f32[80]{{0}} exponential(s)\n"
            f"  b = f32[80]{{0}} constant({{{two}}})\n  ROOT r = f32[80]{{0}} multiply(t, b)\n}}\n"
        )

    found = diff(text(), text(30, other), fuse="never")
    assert [d.changes[0].places for d in found.differences] == places
