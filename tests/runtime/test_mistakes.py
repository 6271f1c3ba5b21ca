"""Mistakes that inputs would not show are named, and draws are added that show them."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt import evaluate, fuse, parse
from hlo_opt.evaluate.reach import Draw, Reached, reaching_inputs
from hlo_opt.ir import Module
from hlo_opt.runtime.check import mistakes
from hlo_opt.runtime.check.compare import check, compare_outputs, reached
from hlo_opt.runtime.check.mistakes import Tried, orders_nans, tried

SUM = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }"
LARGEST = """larger {
  a = f32[] parameter(0)  i = s32[] parameter(1)  b = f32[] parameter(2)  j = s32[] parameter(3)
  greater = pred[] compare(a, b), direction=GT
  isnan = pred[] compare(a, a), direction=NE
  first = pred[] or(greater, isnan)
  value = f32[] select(first, a, b)
  place = s32[] select(first, i, j)
  ROOT t = (f32[], s32[]) tuple(value, place)
}"""


def module(body: str, before: str = "") -> Module:
    return parse(f"HloModule m\n{before}\nENTRY e {{\n{body}\n}}\n")


def unseen(found: Tried) -> dict[str, set[str]]:
    names: dict[str, set[str]] = {}
    for way in found.unseen:
        names.setdefault(way.instruction.name, set()).add(way.words.removeprefix("would not be noticed if it "))
    return names


def tries(of: Module, *inputs: object, seed: int = 0) -> Tried:
    """Trials on given inputs alone."""
    from hlo_opt import evaluate

    arrays = [np.asarray(a) for a in inputs]
    return tried(of, Reached((Draw([arrays], [evaluate(of, arrays)]),), (), 1), seed, most=1)


def test_a_term_and_a_constant_that_are_too_small_to_matter_are_named() -> None:
    text = """p = f32[4] parameter(0)
      tiny = f32[] constant(1.5e-7)
      tinies = f32[4] broadcast(tiny), dimensions={}
      two = f32[] constant(2)
      twos = f32[4] broadcast(two), dimensions={}
      sum = f32[4] add(p, tinies)
      ROOT product = f32[4] multiply(sum, twos)"""
    found = tries(module(text), np.array([1, 2, -3, 4], np.float32))
    assert unseen(found) == {"tiny": {"were 1 % larger"}, "sum": {"were its first operand alone"}}
    assert found.trials == 6  # one of each constant, two of an operation with two operands
    assert str(found.unseen[0]) == "tiny (line 5) would not be noticed if it were 1 % larger"


def test_what_never_goes_another_way_is_left_to_the_ways() -> None:
    """`choice` never takes its second choice, so nothing can be told of a mistake there; `negated` is never looked
    at."""
    text = """p = f32[4] parameter(0)
      negated = f32[4] negate(p)
      doubled = f32[4] add(p, p)
      zero = f32[] constant(0)
      zeros = f32[4] broadcast(zero), dimensions={}
      above = pred[4] compare(p, zeros), direction=GT
      ROOT choice = f32[4] select(above, doubled, negated)"""
    both = unseen(tries(module(text), np.float32([0.0, 1.0, -1.0, 0.5])))
    one = unseen(tries(module(text), np.float32([0.5, 2.0, 0.25, 8.0])))
    assert both == {"above": {"were wrong on equal values"}} and set(one) == {"negated"}


def test_a_comparison_whose_ties_decide_nothing_is_named() -> None:
    text = """p = f32[3] parameter(0)
      q = f32[3] parameter(1)
      less = pred[3] compare(p, q), direction=LT
      ROOT least = f32[3] select(less, p, q)"""
    found = unseen(tries(module(text), np.float32([1, 2, 3]), np.float32([1, 3, 2])))
    assert found == {"less": {"were wrong on equal values"}}


def test_a_draw_is_added_that_shows_what_the_chosen_ones_do_not() -> None:
    """The start is clamped: with few values of it, adding 50 to a negative one or taking 50 are the same."""
    text = """x = f32[50,60] parameter(0)
      start = s32[] parameter(1)
      zero = s32[] constant(0)
      below = pred[] compare(start, zero), direction=LT
      fifty = s32[] constant(50)
      wrapped = s32[] add(start, fifty)
      from = s32[] select(below, wrapped, start)
      ROOT cut = f32[10,60] dynamic-slice(x, from, zero), dynamic_slice_sizes={10,60}"""
    original = module(text)
    few = reaching_inputs(original)
    found = reached(original)
    assert len(found.draws) > len(few.draws) and "wrapped" not in unseen(found)


def test_reducers_are_looked_into_and_nan_is_drawn_for_them() -> None:
    text = """p = f32[5,40] parameter(0)
      places = s32[5,40] iota(), iota_dimension=1
      low = f32[] constant(-inf)
      zero = s32[] constant(0)
      both = (f32[5], s32[5]) reduce(p, places, low, zero), dimensions={1}, to_apply=larger
      value = f32[5] get-tuple-element(both), index=0
      place = s32[5] get-tuple-element(both), index=1
      ROOT t = (f32[5], s32[5]) tuple(value, place)"""
    original = module(text, LARGEST)
    numbers = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
    assert "were wrong on NaN" in unseen(tries(original, numbers))["isnan"]
    found = reached(original)
    assert any(np.isnan(d.inputs[0][0]).any() for d in found.draws) and "isnan" not in unseen(found)


def test_what_takes_too_long_is_tried_in_part_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    original = module(
        "p = f32[64] parameter(0)\nq = f32[64] sine(p)\nr = f32[64] cosine(q)\nROOT s = f32[64] add(q, r)"
    )
    draws = reaching_inputs(original)
    assert tried(original, draws).trials == 4
    monkeypatch.setattr(mistakes, "WORK", 3 * 3 * mistakes.EVENT)
    assert 0 < tried(original, draws).trials < 4
    monkeypatch.setattr(mistakes, "WORK", 1)
    assert tried(original, draws).trials <= 1


def test_long_runs_are_compared_without_an_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mistakes, "PRECISE", 0)
    text = """p = s32[4] parameter(0)
      one = s32[] constant(1)
      ones = s32[4] broadcast(one), dimensions={}
      more = s32[4] add(p, ones)
      real = f32[4] convert(p)
      half = f32[] constant(0.5)
      halves = f32[4] broadcast(half), dimensions={}
      part = f32[4] multiply(real, halves)
      ROOT t = (s32[4], f32[4]) tuple(more, part)"""
    assert unseen(tries(module(text), np.int32([3, -1, 4, 1]))) == {}


def test_mistakes_are_tried_on_all_devices() -> None:
    text = f"""HloModule m, replica_count=2
{SUM}
ENTRY e {{
  p = f32[4] parameter(0)
  tiny = f32[] constant(1e-12)
  tinies = f32[4] broadcast(tiny), dimensions={{}}
  both = f32[4] add(p, tinies)
  ROOT s = f32[4] all-reduce(both), replica_groups={{{{0,1}}}}, to_apply=add
}}
"""
    found = reached(parse(text))
    assert found.trials > 0
    assert unseen(found)["tiny"] == {"were 1 % larger"} and "s" not in unseen(found)


def test_a_loop_that_a_mistake_makes_endless_is_noticed() -> None:
    text = """one = s32[] constant(1)
      p = s32[] parameter(0)
      t = (s32[], s32[]) tuple(p, p)
      loop = (s32[], s32[]) while(t), condition=under, body=more
      ROOT r = s32[] get-tuple-element(loop), index=1"""
    before = """under { s = (s32[], s32[]) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      ten = s32[] constant(10)
      ROOT l = pred[] compare(i, ten), direction=LT }
more { s = (s32[], s32[]) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      n = s32[] get-tuple-element(s), index=1
      one = s32[] constant(1)
      j = s32[] add(i, one)
      m = s32[] add(n, i)
      ROOT u = (s32[], s32[]) tuple(j, m) }"""
    found = unseen(tries(module(text, before), np.int32(3)))
    assert "j" not in found and "m" not in found and "ten" not in found


def test_check_tells_what_it_would_not_notice() -> None:
    from hlo_opt.report.runs import check_page

    original = module(
        "p = f32[64] parameter(0)\ntiny = f32[] constant(1e-12)\nt = f32[64] broadcast(tiny), dimensions={}\n"
        "ROOT s = f32[64] multiply(p, p)"
    )
    result = check(original, original, backend="numpy")
    assert result.trials == 1 and "of 1 mistake tried in the original, 0 would not be noticed" in str(
        check_page(result)
    )


def test_a_limit_on_memory_takes_draws_away_only_where_it_is_small() -> None:
    text = "p = f32[1000] parameter(0)\nq = f32[1000] negate(p)\nROOT m = f32[1000] maximum(p, q)"
    original = module(text)
    assert len(reached(original, 0, 1 << 30).draws) == len(reached(original).draws)
    assert reached(original, 0, 1 << 30).trials > 0
    small = reached(original, 0, 20_000)
    assert small.trials == 0 and len(small.draws) == 1


def test_what_hangs_on_the_order_of_a_fold_is_set_aside() -> None:
    """Of two NaN in a row, the reducer picks the place of the one that it is given first, and HLO leaves the order
    open."""
    from hlo_opt.runtime.check.compare import compare_outputs

    text = """p = f32[3,8] parameter(0)
      places = s32[3,8] iota(), iota_dimension=1
      low = f32[] constant(-inf)
      zero = s32[] constant(0)
      both = (f32[3], s32[3]) reduce(p, places, low, zero), dimensions={1}, to_apply=larger
      ROOT place = s32[3] get-tuple-element(both), index=1"""
    original = module(text, LARGEST)
    numbers = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    numbers[0, 2] = numbers[0, 5] = numbers[1, 3] = np.nan
    (wanted,) = original_outputs = tries(original, numbers).draws[0].outputs[0]
    for other, ok in [([5, 3, wanted[2]], True), ([2, 4, wanted[2]], False), ([2, 3, wanted[2] ^ 1], False)]:
        (reports,), _ = compare_outputs(original, original, [[numbers]], [original_outputs], [[np.int32(other)]], 0)
        assert reports[0].ok == ok


@pytest.mark.parametrize("opcode, direction", [("maximum", "GT"), ("minimum", "LT")])
def test_a_choice_that_loses_nans_is_seen(opcode: str, direction: str) -> None:
    text = "p = f32[40] parameter(0)\nq = f32[40] reverse(p), dimensions={{0}}\n{}"
    chosen = f"c = pred[40] compare(p, q), direction={direction}\nROOT m = f32[40] select(c, p, q)"
    original, other = module(text.format(f"ROOT m = f32[40] {opcode}(p, q)")), module(text.format(chosen))
    assert not check(original, other, backend="numpy").ok
    assert check(original, original, backend="numpy").ok


def test_a_maximum_around_which_nans_go_is_not_named() -> None:
    text = """p = f32[40] parameter(0)
      low = f32[] constant(-3)
      lows = f32[40] broadcast(low), dimensions={}
      m = f32[40] maximum(p, lows)
      ROOT s = f32[40] subtract(p, m)"""
    assert not any("NaN" in words for own in unseen(reached(module(text))).values() for words in own)


AFTER = "x = f32[64] parameter(0)\n u = f32[4] parameter(1)\n i = s32[] parameter(2)\n j = s32[] parameter(3)"
UPDATE = "d = f32[64] dynamic-update-slice(x, u, i)"
KEYS = "k { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = pred[] compare(a, b), direction=LT TYPE }"
TWO = "x = f32[64] parameter(0)\n y = f32[64] parameter(1)"
WITHIN = "x = f32[64] parameter(0)\n l = f32[] constant(-1)\n h = f32[] constant(1)"
BRANCHES = "".join(f"{n} {{ q = f32[4] parameter(0)\n ROOT r = f32[4] {n}(q) }}\n" for n in ("sine", "cosine", "abs"))
SWITCH = "conditional(p, x, x, x), branch_computations={sine, cosine, abs}"


@pytest.mark.parametrize(
    ("right", "wrong", "before"),
    [
        (
            f"{AFTER}\n {UPDATE}\n ROOT s = f32[4] dynamic-slice(d, j), dynamic_slice_sizes={{4}}",
            f"{AFTER}\n {UPDATE}\n ROOT s = f32[4] dynamic-slice(x, j), dynamic_slice_sizes={{4}}",
            ("", ""),
        ),
        (
            f"{TWO}\n less = pred[64] compare(x, y), direction=LT\n ROOT r = pred[64] not(less)",
            f"{TWO}\n ROOT r = pred[64] compare(x, y), direction=GE",
            ("", ""),
        ),
        (
            f"{TWO}\n ROOT r = f32[64] maximum(x, y)",
            f"{TWO}\n more = pred[64] compare(x, y), direction=GT\n ROOT r = f32[64] select(more, x, y)",
            ("", ""),
        ),
        (
            "x = f32[64] parameter(0)\n ROOT r = f32[64] sort(x), dimensions={0}, to_apply=k",
            "x = f32[64] parameter(0)\n ROOT r = f32[64] sort(x), dimensions={0}, to_apply=k",
            (KEYS.replace(" TYPE", ", type=TOTALORDER"), KEYS.replace(" TYPE", "")),
        ),
        (
            f"p = s32[] parameter(0)\n x = f32[4] parameter(1)\n ROOT r = f32[4] {SWITCH}",
            f"""p.0 = s32[] parameter(0)\n x = f32[4] parameter(1)
            last = s32[] constant(2)\n above = pred[] compare(p.0, last), direction=GT\n zero = s32[] constant(0)
            p = s32[] select(above, zero, p.0)\n ROOT r = f32[4] {SWITCH}""",
            (BRANCHES, BRANCHES),
        ),
        (
            f"{WITHIN}\n ROOT r = f32[64] clamp(l, x, h)",
            f"""{WITHIN}\n ls = f32[64] broadcast(l), dimensions={{}}\n more = pred[64] compare(x, ls), direction=GT
            m = f32[64] select(more, x, ls)\n ROOT r = f32[64] clamp(l, m, h)""",
            ("", ""),
        ),
        (
            f"{AFTER}\n ROOT s = f32[4] dynamic-slice(x, i), dynamic_slice_sizes={{4}}",
            f"{AFTER}\n k = s32[] abs(i)\n ROOT s = f32[4] dynamic-slice(x, k), dynamic_slice_sizes={{4}}",
            ("", ""),
        ),
        (
            "x = u64[64] parameter(0)\n l = u64[] constant(6364136223846793005)\n"
            " k = u64[64] broadcast(l), dimensions={}\n ROOT r = u64[64] multiply(x, k)",
            "x = u64[64] parameter(0)\n l = u64[] constant(6364136223846793005)\n"
            " k = u64[64] broadcast(l), dimensions={}\n y = s32[64] convert(x)\n z = u64[64] convert(y)\n"
            " ROOT r = u64[64] multiply(z, k)",
            ("", ""),
        ),
        (
            "x = u32[64] parameter(0)\n ROOT r = f32[64] convert(x)",
            "x = u32[64] parameter(0)\n y = s32[64] bitcast-convert(x)\n ROOT r = f32[64] convert(y)",
            ("", ""),
        ),
        (
            "x = s32[64] parameter(0)\n ROOT r = s32[64] abs(x)",
            "x = s32[64] parameter(0)\n l = s32[] constant(-2147483647)\n ls = s32[64] broadcast(l), dimensions={}\n"
            " m = s32[64] maximum(x, ls)\n ROOT r = s32[64] abs(m)",
            ("", ""),
        ),
        (
            f"{TWO}\n ROOT r = f32[64] power(x, y)",
            f"{TWO}\n a = f32[64] abs(x)\n ROOT r = f32[64] power(a, y)",
            ("", ""),
        ),
        (
            "x = f32[64] parameter(0)\n ROOT r = s32[64] convert(x)",
            "x = f32[64] parameter(0)\n k = f32[] constant(2147483648)\n ks = f32[64] broadcast(k), dimensions={}\n"
            " p = pred[64] compare(x, ks), direction=EQ\n l = s32[] constant(-2147483648)\n"
            " ls = s32[64] broadcast(l), dimensions={}\n c = s32[64] convert(x)\n ROOT r = s32[64] select(p, ls, c)",
            ("", ""),
        ),
    ],
    ids=[
        *("a read before an update", "not less on NaN", "a maximum of NaN", "a sort of NaN", "an index of no branch"),
        *("NaN within bounds", "a start before the array", "bits of a product", "an unsigned number"),
        *("the least of all numbers", "a power of a negative number", "a number at the limit of a type"),
    ],
)
def test_drawn_inputs_show_what_plain_ones_would_not(right: str, wrong: str, before: tuple[str, str]) -> None:
    original, other = module(right, before[0]), module(wrong, before[1])
    assert check(original, original, backend="numpy").ok
    assert not check(original, other, backend="numpy").ok


@pytest.mark.parametrize(
    ("compared", "ordered"),
    [("compare(a, b), direction=LT", False), ("compare(a, b), direction=GT, type=TOTALORDER", True)],
)
def test_nan_is_sorted_only_where_the_comparator_has_a_place_for_it(compared: str, ordered: bool) -> None:
    text = f"""HloModule m

before {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] {compared}
}}

ENTRY e {{
  p = f32[64] parameter(0)
  q = f32[64] negate(p)
  ROOT s = f32[64] sort(q), dimensions={{0}}, to_apply=before
}}
"""
    sorting = parse(text)
    assert orders_nans(sorting.entry.root) == ordered
    assert check(sorting, fuse(sorting)[0], backend="host").ok


@pytest.mark.parametrize("name", ["bf16", "f16", "f8e5m2"])
@pytest.mark.parametrize("source", ["f32", "f64"])
@pytest.mark.parametrize("toward", [0.0, 2.0])
def test_drawn_inputs_show_ties_that_a_kernel_rounds_down_or_away(name: str, source: str, toward: float) -> None:
    """Numbers slightly nearer to, or farther from, 0 round the same way but for ties."""
    original = module(f"x = {source}[64] parameter(0)\n ROOT r = {name}[64] convert(x)")
    (first, *_) = reached(original, 0).draws
    x = first.inputs[0][0].astype(np.float32)
    wrong = np.nextafter(x, x * np.float32(toward)).astype(original.entry.root.shape.type.dtype)
    reports, _ = compare_outputs(original, original, first.inputs, first.outputs, [[wrong]], 0)
    assert not all(r.ok for own in reports for r in own)


@pytest.mark.parametrize(("source", "target", "tries"), [("f32", "bf16", 1), ("f64", "f32", 1), ("bf16", "f32", 0)])
def test_a_conversion_to_a_narrower_float_is_tried_with_nan(source: str, target: str, tries: int) -> None:
    module = parse(
        f"HloModule m\nENTRY e {{\n  p = {source}[40]{{0}} parameter(0)\n  q = {source}[40]{{0}} negate(p)\n"
        f"  ROOT c = {target}[40]{{0}} convert(q)\n}}\n"
    )
    found = tried(module, reaching_inputs(module))
    assert found.trials == 1 + tries and not found.unseen
    assert any(np.isnan(a.astype(np.float64)).any() for draw in found.draws for a in draw.inputs[0]) == bool(tries)


@pytest.mark.parametrize("caller", ["fusion(x), kind=kInput, calls=f", "call(x), to_apply=f"])
def test_a_call_with_a_narrower_result_of_another_shape_is_no_conversion(caller: str) -> None:
    module = parse(
        "HloModule m\nadd {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
        "f {\n  p = f32[8,4]{1,0} parameter(0)\n  z = f32[] constant(0)\n"
        "  s = f32[8]{0} reduce(p, z), dimensions={1}, to_apply=add\n  ROOT t = bf16[8]{0} convert(s)\n}\n"
        f"ENTRY e {{\n  x = f32[8,4]{{1,0}} parameter(0)\n  ROOT r = bf16[8]{{0}} {caller}\n}}\n"
    )
    found = tried(module, reaching_inputs(module))
    assert found.trials and not found.unseen


def test_a_constant_that_shows_in_few_elements_is_tried_on_other_inputs_or_named() -> None:
    """Where a product in bf16 is small beside a sum, one step of rounding hides what a hundredth more does to it."""
    text = """p = f32[400] parameter(0)
      scale = f32[] constant(1.5)
      scales = f32[400] broadcast(scale), dimensions={}
      one = f32[] constant(1)
      ones = f32[400] broadcast(one), dimensions={}
      s = f32[400] multiply(p, scales)
      t = f32[400] add(s, ones)
      ROOT r = bf16[400] convert(t)"""
    numbers = np.linspace(0.2, 0.4, 400, dtype=np.float32)
    numbers[:2] = -0.66
    few = tries(module(text), numbers)
    assert [str(w) for w in few.unseen if w.instruction.name == "scale"] == [
        "scale (line 5) would be noticed in less than 5 % of the elements that change if it were 1 % larger"
    ]
    original = module(text)
    draw = Draw([[numbers]], [[np.asarray(a) for a in evaluate(original, [numbers])]])
    many = tried(original, Reached((draw,), (), 1))
    assert len(many.draws) > 1 and "scale" not in unseen(many)


def test_copies_and_constants_of_tuples_are_tried_as_wholes() -> None:
    original = module(
        "  x = (f32[4], s32[3]) parameter(0)\n  k = (f32[2], s32[]) constant(({1, 2}, 3))\n"
        "  c = (f32[4], s32[3]) copy(x)\n  ROOT r = ((f32[4], s32[3]), (f32[2], s32[])) tuple(c, k)"
    )
    found = tried(original, reaching_inputs(original))
    assert found.trials and not found.unseen
    assert check(original, fuse(original)[0]).ok
