"""What may move into a kernel that overwrites one of its operands: each rule, and what lies just beside it."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.fusion.in_place import in_place_conflict, scatter_conflict
from hlo_opt.fusion.legality import Edge
from hlo_opt.fusion.state import FusionState

H100 = target("h100_sxm")
V, W, S = "f32[64]{0}", "f32[8]{0}", "s32[]"


def edge(body: str, entry: str, producer: str, consumer: str) -> Edge:
    """An edge of a module: `body` are computations, `entry` instructions of the entry after p, q (64), m, n (8), i, j
    (indices)."""
    given = [("p", V), ("q", V), ("m", W), ("n", W), ("i", S), ("j", S)]
    parameters = "".join(f"  {name} = {shape} parameter({k})\n" for k, (name, shape) in enumerate(given))
    module = hlo_opt.parse(f"HloModule m\n\n{body}\nENTRY e {{\n{parameters}{entry}\n}}\n")
    hlo_opt.verify(module)
    by_name = {i.name: i for i in module.entry.instructions}
    return Edge(by_name[producer], by_name[consumer], FusionState(module, H100))


def conflict(body: str, entry: str, producer: str = "x", consumer: str = "u") -> str | None:
    """The code of the rule that is broken."""
    reason = in_place_conflict(edge(body, entry, producer, consumer))
    return None if reason is None else reason.code


def fused(*lines: str, result: str = V) -> str:
    """A fusion `u` of p, x (8) and i, with p named a, and its computation."""
    members = "".join(f"  {line}\n" for line in lines)
    return f"body {{\n  a = {V} parameter(0)\n  b = {W} parameter(1)\n  k = {S} parameter(2)\n{members}}}\n"


TAIL = f"  ROOT u = {V} fusion(p, x, i), kind=kLoop, calls=body"
PAIR = f"  ROOT u = ({V}, {V}) fusion(p, x, i), kind=kLoop, calls=body"
ELSEWHERE = f"  x = {W} dynamic-slice(p, j), dynamic_slice_sizes={{8}}\n"
THERE = f"  x = {W} dynamic-slice(p, i), dynamic_slice_sizes={{8}}\n"
UPDATE = f"  ROOT u = {V} dynamic-update-slice(p, x, i)"


@pytest.mark.parametrize(
    ("start", "read", "expected"),
    [
        ("i", "dynamic-slice(p, i), dynamic_slice_sizes={8}", None),
        ("i", "dynamic-slice(p, j), dynamic_slice_sizes={8}", "FUS606"),
        ("i", "dynamic-slice(p, c), dynamic_slice_sizes={8}", "FUS606"),
        ("c", "dynamic-slice(p, i), dynamic_slice_sizes={8}", "FUS606"),
        ("c", "dynamic-slice(p, d), dynamic_slice_sizes={8}", None),
        ("c", "dynamic-slice(p, z), dynamic_slice_sizes={8}", "FUS606"),
        ("z", "dynamic-slice(p, z), dynamic_slice_sizes={8}", None),
        ("c", "slice(p), slice={[8:16]}", None),
        ("c", "slice(p), slice={[7:15]}", "FUS606"),
        ("z", "slice(p), slice={[0:8]}", None),
        ("i", "slice(p), slice={[8:16]}", "FUS606"),
        ("c", "slice(p), slice={[8:24:2]}", "FUS605"),
        ("c", "slice(q), slice={[7:15]}", None),
        ("i", "negate(m)", None),
    ],
)
def test_a_slice_must_be_what_is_overwritten(start: str, read: str, expected: str | None):
    entry = f"  c = {S} constant(8)\n  d = {S} constant(8)\n  z = {S} constant(0)\n  x = {W} {read}\n"
    assert conflict("", entry + f"  ROOT u = {V} dynamic-update-slice(p, x, {start})") == expected


def test_a_start_that_was_left_out_of_the_text_is_no_start_that_is_known():
    entry = f"  c = {S} constant({{...}})\n  x = {W} slice(p), slice={{[8:16]}}\n"
    assert conflict("", entry + f"  ROOT u = {V} dynamic-update-slice(p, x, c)") == "FUS606"


@pytest.mark.parametrize(
    ("starts", "read", "expected"),
    [
        ("i, i", "dynamic-slice(s, i, i), dynamic_slice_sizes={2,8}", None),
        ("i, i", "dynamic-slice(s, j, i), dynamic_slice_sizes={2,8}", "FUS606"),
        ("i, i", "dynamic-slice(s, i, j), dynamic_slice_sizes={2,8}", "FUS606"),
        ("z, z", "slice(s), slice={[0:2], [0:8]}", None),
        ("z, z", "slice(s), slice={[0:2], [8:16]}", "FUS606"),
        ("z, z", "slice(s), slice={[2:4], [0:8]}", "FUS606"),
        ("z, z", "slice(s), slice={[0:4:2], [0:8]}", "FUS605"),
        ("z, z", "slice(s), slice={[0:2], [0:16:2]}", "FUS605"),
    ],
)
def test_every_dimension_counts(starts: str, read: str, expected: str | None):
    entry = f"  s = f32[4,16]{{1,0}} reshape(p)\n  z = {S} constant(0)\n  x = f32[2,8]{{1,0}} {read}\n"
    assert conflict("", entry + f"  ROOT u = f32[4,16]{{1,0}} dynamic-update-slice(s, x, {starts})") == expected


def test_sizes_must_be_those_of_the_update():
    part = (
        "part {\n  a = f32[64]{0} parameter(0)\n  s = f32[16]{0} slice(a), slice={[0:16]}\n  ROOT r = f32[8,2]{1,0} "
        "bitcast(s)\n}\n"
    )
    entry = (
        f"  x = f32[8,2]{{1,0}} fusion(p), kind=kLoop, calls=part\n  s = f32[32,2]{{1,0}} bitcast(p)\n  z = {S} "
        f"constant(0)\n"
    )
    update = f"  ROOT u = {V} fusion(p, x), kind=kLoop, calls=body"
    body = f"body {{\n  a = {V} parameter(0)\n  b = f32[8,2]{{1,0}} parameter(1)\n  z = {S} constant(0)\n  c = f32[16]{{0}} bitcast(b)\n  h = {W} slice(c), slice={{[0:8]}}\n  ROOT r = {V} dynamic-update-slice(a, h, z)\n}}\n"
    assert conflict(part + body, entry + update) == "FUS605"


def test_the_buffer_may_not_be_what_is_written():
    assert conflict("", f"  x = {V} negate(p)\n  ROOT u = {V} dynamic-update-slice(x, x, i)") == "FUS601"
    assert conflict("", f"  x = {V} negate(p)\n  ROOT u = {V} dynamic-update-slice(q, x, i)") is None


def test_only_what_reads_or_makes_the_buffer_counts():
    moved = f"  x = {V} reverse(q), dimensions={{0}}\n"
    assert conflict("", moved + f"  ROOT u = {V} dynamic-update-slice(x, m, i)") == "FUS608"
    assert conflict("", moved + f"  ROOT u = {V} dynamic-update-slice(q, x, i)") == "FUS608"
    assert conflict("", moved + f"  ROOT u = {V} dynamic-update-slice(p, x, i)") is None
    assert conflict("", f"  x = {V} negate(q)\n  ROOT u = {V} dynamic-update-slice(x, m, i)") is None
    assert conflict("", f"  x = {V} bitcast(q)\n  ROOT u = {V} dynamic-update-slice(x, m, i)") is None
    assert conflict("", f"  x = {V} add(p, q)\n  ROOT u = {V} add(p, x)") is None


def test_more_than_one_operation_that_moves_data():
    moving = f"moving {{\n  a = {V} parameter(0)\n  r = {V} reverse(a), dimensions={{0}}\n  ROOT s = {W} slice(r), slice={{[0:8]}}\n}}\n"
    entry = f"  x = {W} fusion(p), kind=kLoop, calls=moving\n"
    assert conflict(moving, entry + UPDATE) == "FUS602"
    single = moving.replace("reverse(a), dimensions={0}", "negate(a)")
    assert conflict(single, entry + UPDATE) == "FUS606"
    assert conflict(single, entry.replace("(p)", "(q)") + UPDATE) is None


def test_a_constant_moves_no_data():
    shifted = f"shifted {{\n  a = {V} parameter(0)\n  k = {S} parameter(1)\n  c = {S} constant(1)\n  d = {S} add(k, c)\n  ROOT s = {W} dynamic-slice(a, d), dynamic_slice_sizes={{8}}\n}}\n"
    assert conflict(shifted, f"  x = {W} fusion(p, i), kind=kLoop, calls=shifted\n" + UPDATE) == "FUS606"


def test_an_update_behind_bitcasts_is_of_the_same_buffer():
    body = fused(f"d = {V} bitcast(a)", f"c = {V} bitcast(d)", f"ROOT r = {V} dynamic-update-slice(c, b, k)")
    assert conflict(body, ELSEWHERE + TAIL) == "FUS606"
    assert conflict(body, THERE + TAIL) is None


def test_a_value_that_the_kernel_computes_is_not_overwritten_for_others():
    body = fused(f"c = {V} negate(a)", f"ROOT r = {V} dynamic-update-slice(c, b, k)")
    assert conflict(body, ELSEWHERE + TAIL) is None
    twice = fused(
        f"c = {V} negate(a)", f"d = {V} dynamic-update-slice(c, b, k)", f"ROOT r = {V} dynamic-update-slice(c, c, k)"
    )
    assert conflict(twice, ELSEWHERE + TAIL) is None


def test_a_buffer_that_is_a_bitcast_outside():
    entry = (
        f"  t = {V} bitcast(p)\n  x = {W} dynamic-slice(t, j), dynamic_slice_sizes={{8}}\n  ROOT u = {V} "
        f"dynamic-update-slice(t, x, i)"
    )
    assert conflict("", entry) == "FUS606"


def test_of_several_roots_those_that_update_count():
    body = fused(f"s = {V} add(a, a)", f"d = {V} dynamic-update-slice(a, b, k)", f"ROOT t = ({V}, {V}) tuple(s, d)")
    assert conflict(body, ELSEWHERE + PAIR) == "FUS606"
    assert conflict(body, THERE + PAIR) is None
    turned = body.replace("tuple(s, d)", "tuple(d, s)")
    assert conflict(turned, ELSEWHERE + PAIR) == "FUS606"
    one = fused(f"s = {V} add(a, a)", f"n = {V} negate(a)", f"ROOT t = ({V}, {V}) tuple(s, n)")
    assert conflict(one, ELSEWHERE + PAIR) is None


def test_a_second_root_is_looked_at():
    """The first updates another buffer than the producer reads."""
    body = (
        f"body {{\n  a = {V} parameter(0)\n  b = {W} parameter(1)\n  k = {S} parameter(2)\n  g = {V} parameter(3)\n"
        f"  c = {V} negate(g)\n  d = {V} dynamic-update-slice(c, b, k)\n  e = {V} dynamic-update-slice(a, b, k)\n  "
        f"ROOT t = ({V}, {V}) tuple(d, e)\n}}\n"
    )
    tail = f"  ROOT u = ({V}, {V}) fusion(p, x, i, q), kind=kLoop, calls=body"
    assert conflict(body, ELSEWHERE + tail) == "FUS604"


def test_an_input_that_is_handed_on_is_no_update():
    entry = (
        f"  h = {V} dynamic-update-slice(q, m, j)\n@  ROOT u = ({V}, {V}) fusion(p, x, i, h), kind=kLoop, calls=body"
    )
    body = (
        f"body {{\n  a = {V} parameter(0)\n  b = {W} parameter(1)\n  k = {S} parameter(2)\n  g = {V} parameter(3)\n"
        f"  d = {V} dynamic-update-slice(a, b, k)\n  ROOT t = ({V}, {V}) tuple(g, d)\n}}\n"
    )
    assert conflict(body, entry.replace("@", THERE)) is None
    assert conflict(body, entry.replace("@", ELSEWHERE)) == "FUS606"


def test_what_else_reads_the_buffer_inside():
    reads = fused(
        f"s = {W} slice(a), slice={{[8:16]}}", f"c = {W} add(s, b)", f"ROOT r = {V} dynamic-update-slice(a, c, k)"
    )
    assert conflict(reads, THERE + TAIL) == "FUS607"
    assert conflict(reads, f"  x = {W} negate(m)\n" + TAIL) is None
    made = reads.replace("slice={[8:16]}", "slice={[8:16]}")
    entry = f"  x = {V} negate(q)\n  ROOT u = {V} fusion(x, m, i), kind=kLoop, calls=body"
    found = in_place_conflict(edge(made, entry, "x", "u"))
    assert found is not None and found.code == "FUS603" and " slice " in str(found)
    behind = fused(
        f"t = {V} bitcast(a)",
        f"s = {W} slice(t), slice={{[8:16]}}",
        f"c = {W} add(s, b)",
        f"ROOT r = {V} dynamic-update-slice(a, c, k)",
    )
    assert conflict(behind, THERE + TAIL) == "FUS607"
    alike = fused(f"s = {V} negate(a)", f"c = {V} dynamic-update-slice(a, b, k)", f"ROOT r = ({V}, {V}) tuple(s, c)")
    assert conflict(alike, THERE + PAIR) is None


def test_the_last_of_several_reads_is_named():
    reads = fused(
        f"s = {W} slice(a), slice={{[8:16]}}", f"v = {V} reverse(a), dimensions={{0}}",
        f"g = {W} slice(v), slice={{[8:16]}}",
        f"c = {W} add(s, g)", f"h = {W} add(c, b)", f"ROOT r = {V} dynamic-update-slice(a, h, k)",
    )  # fmt: skip
    found = in_place_conflict(edge(reads, THERE + TAIL, "x", "u"))
    assert found is not None and found.code == "FUS607" and " reverse," in str(found)
    made = in_place_conflict(
        edge(reads, f"  x = {V} negate(q)\n  ROOT u = {V} fusion(x, m, i), kind=kLoop, calls=body", "x", "u")
    )
    assert made is not None and made.code == "FUS603" and " reverse " in str(made)


ADDS = "adds { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }\n"
PAIRS = (
    "pairs { a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] parameter(2) d = f32[] parameter(3) e = f32[] "
    "add(a, c) f = f32[] add(b, d) ROOT r = (f32[], f32[]) tuple(e, f) }\n"
)
HOW = "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"


def scattered(line: str, scatter: str = f"{V} scatter(p, y, m)", to: str = "adds") -> str | None:
    """The code for `line` (the producer x) and a scatter u; y are indices."""
    entry = (
        f"  w = s32[8]{{0}} convert(n)\n  y = s32[8,1]{{1,0}} reshape(w)\n{line}  ROOT u = {scatter}, {HOW}, "
        f"to_apply={to}"
    )
    reason = scatter_conflict(edge(ADDS + PAIRS, entry, "x", "u"))
    return None if reason is None else reason.code


def test_a_scatter_takes_indices_and_updates_only():
    assert scattered(f"  x = {V} negate(p)\n", f"{V} scatter(x, y, m)") == "FUS610"
    assert scattered(f"  x = {W} negate(m)\n", f"{V} scatter(p, y, x)") is None
    assert scattered("  x = s32[8,1]{1,0} negate(y)\n", f"{V} scatter(p, x, m)") is None
    assert scattered(f"  x = {W} slice(p), slice={{[0:8]}}\n", f"{V} scatter(p, y, x)") == "FUS610"
    assert scattered(f"  x = {W} slice(q), slice={{[0:8]}}\n", f"{V} scatter(p, y, x)") is None
    both = f"({V}, {V}) scatter(p, x, y, m, n)"
    assert scattered(f"  x = {V} negate(q)\n", both, "pairs") == "FUS610"
    assert scattered(f"  x = {W} negate(m)\n", f"({V}, {V}) scatter(p, q, y, x, n)", "pairs") is None


def test_nothing_takes_a_scatter():
    entry = (
        f"  w = s32[8]{{0}} convert(n)\n  y = s32[8,1]{{1,0}} reshape(w)\n  x = {V} scatter(p, y, m), {HOW}, "
        f"to_apply=adds\n"
    )
    reason = scatter_conflict(edge(ADDS, entry + f"  ROOT u = {V} negate(x)", "x", "u"))
    assert reason is not None and reason.code == "FUS609"
    assert scatter_conflict(edge(ADDS, f"  x = {V} negate(p)\n  ROOT u = {V} add(x, q)", "x", "u")) is None


def test_a_scatter_in_a_fusion_reads_what_the_fusion_computes():
    def code(read: str, producer: str, taken: str) -> str | None:
        body = (
            f"body {{\n  a = {V} parameter(0)\n  b = {W} parameter(1)\n  c = s32[8,1]{{1,0}} parameter(2)\n  h = {V} negate(a)\n"
            f"  g = {W} add(b, b)\n  ROOT r = {V} scatter({read}, c, g), {HOW}, to_apply=adds\n}}\n"
        )
        entry = f"  w = s32[8]{{0}} convert(n)\n  y = s32[8,1]{{1,0}} reshape(w)\n  x = {producer}\n"
        found = scatter_conflict(
            edge(ADDS + body, entry + f"  ROOT u = {V} fusion({taken}), kind=kInput, calls=body", "x", "u")
        )
        return None if found is None else found.code

    assert code("h", f"{V} negate(p)", "x, m, y") is None
    assert code("a", f"{V} negate(p)", "x, m, y") == "FUS610"
    assert code("a", f"{W} negate(m)", "p, x, y") is None


def test_a_scatter_is_an_update_in_place():
    moving = f"moving {{\n  a = {V} parameter(0)\n  r = {V} reverse(a), dimensions={{0}}\n  ROOT s = {W} slice(r), slice={{[0:8]}}\n}}\n"
    indices = f"  w = s32[8]{{0}} convert(n)\n  y = s32[8,1]{{1,0}} reshape(w)\n  x = {W} "
    scatter = f"\n  ROOT u = {V} scatter(p, y, x), {HOW}, to_apply=adds"
    assert conflict(ADDS + moving, f"{indices}fusion(p), kind=kLoop, calls=moving{scatter}") == "FUS602"
    assert conflict(ADDS, f"{indices}slice(p), slice={{[0:8]}}{scatter}") is None
