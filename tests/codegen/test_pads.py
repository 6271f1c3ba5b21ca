"""Pads in loop kernels: where only outer dimensions are padded, a thread's neighbours move together and no thread
branches."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def pad(
    given_: str, padding: str, result: str, kind: str = "f32", *, before: str = "", after: str = "", more: str = ""
) -> str:
    """An entry that pads its parameter; `before` and `after` are operations with one operand around the pad."""
    zero = {"f": "-3", "b": "-3", "s": "-3", "p": "true", "u": "3"}[kind[0]]
    lines = [f"  p = {kind}[{given_}] parameter(0)", f"  z = {kind}[] constant({zero})"]
    source = "p"
    if before:
        lines.append(f"  n = {kind}[{given_}] {before}(p)")
        source = "n"
    lines.append(f"  {'' if after or more else 'ROOT '}d = {kind}[{result}] pad({source}, z), padding={padding}")
    if after:
        lines += [f"  q = {kind}[{result}] parameter(1)", f"  ROOT r = {kind}[{result}] {after}(d, q)"]
    return "HloModule m\n\nENTRY e {\n" + "\n".join(lines) + f"\n{more}}}\n"


OUTER = ("1000,512", "5_19x0_0", "1024,512")


def accesses(source: str) -> tuple[set[str], int]:
    """The global loads and stores of the kernel that NVRTC makes of a text, and its branches."""
    nvrtc = pytest.importorskip("cupy.cuda").nvrtc
    program = nvrtc.createProgram(source, "k.cu", (), ())
    nvrtc.compileProgram(program, ("-arch=compute_90", "-fmad=false"))
    made = nvrtc.getPTX(program)
    text = made.decode() if isinstance(made, bytes) else made
    return set(re.findall(r"(?:ld|st)\.global[.\w]*", text)), len(re.findall(r"\bbra\b", text))


@pytest.mark.parametrize(
    "text",
    [
        pad(*OUTER),
        pad(*OUTER, "bf16"),
        pad("2000,512", "5_43x0_0", "2048,512", "s8"),
        pad(*OUTER, "bf16", before="negate", after="add"),
        pad(*OUTER, before="sqrt", after="maximum"),
        pad("512,512", "0_1_1x0_0", "1024,512"),
        pad("60,30,256", "2_2x1_1x0_0", "64,32,256", "f16"),
        pad("1100,512", "-5_-71x0_0", "1024,512", "bf16", before="negate"),
    ],
)
def test_outer_pads_move_vectors_without_branches(planner: Any, text: str) -> None:
    found, branches = accesses(planner.kernel(text).source)
    assert found and all(re.search(r"\.v4\.", access) for access in found), found
    assert branches == 0


ALIGNED = [
    pad("1024,500", "0_0x4_8", "1024,512"),
    pad("500,1000", "0_12x0_24", "512,1024"),
    pad("1050,500", "3_3x8_4", "1056,512"),
    pad("524288", "4_8", "524300"),
    pad("2100,496", "0_0x8_8", "2100,512", "bf16"),
    pad("2100,520", "0_0x-8_8", "2100,520", "f32", after="add"),
    pad("4200,480", "0_0x16_16", "4200,512", "s8", before="negate"),
]


@pytest.mark.parametrize("text", ALIGNED)
def test_rows_that_are_padded_by_whole_vectors_move_vectors_too(planner: Any, text: str) -> None:
    source = planner.kernel(text).source
    found, branches = accesses(source)
    assert found and all(re.search(r"\.v4\.", access) for access in found), found
    # one where a thread may have nothing to do
    assert "hlo_near_vector(" in source and branches == source.count(") return;")


def test_padded_rows_agree(tool: Any) -> None:
    tool.all_agree(ALIGNED)


def test_what_is_mostly_padding_is_read_where_it_is(planner: Any) -> None:
    assert "read0" not in planner.kernel(pad("500,512", "5_519x0_0", "1024,512")).source
    assert "read0" in planner.kernel(pad("512,512", "5_507x0_0", "1024,512")).source


@pytest.mark.parametrize(
    ("given_", "padding"), [("1024,500", "0_0x3_9"), ("1024,502", "0_0x0_10"), ("1024,502", "0_0x4_6")]
)
def test_rows_that_are_padded_by_parts_of_vectors_branch(planner: Any, given_: str, padding: str) -> None:
    source = planner.kernel(pad(given_, padding, "1024,512")).source
    assert "read0" not in source and "if (" in source


TABLE = (
    "  t = f32[6]{0} constant({1, 2, 3, 4, 5, 6})\n  y = f32[8] pad(t, z), padding=1_1\n  b = f32[8,65536] "
    "broadcast(y), dimensions={0}\n"
    "  ROOT r = f32[8,65536] add(d, b)\n"
)
JOINED = (
    "  a = f32[600,512] slice(p), slice={[0:600], [0:512]}\n  s = f32[400,512] slice(p), slice={[100:500], [0:512]}\n"
    + "".join(f"  o{n} = f32[20,512] slice(p), slice={{[{n}:{n + 20}], [0:512]}}\n" for n in range(20))
    + f"  c = f32[1400,512] concatenate(a, s, {', '.join(f'o{n}' for n in range(20))}), dimensions={{0}}\n"
    "  y = f32[1500,512] pad(c, z), padding=70_30x0_0\n  w = f32[1500,512] pad(d, z), padding=400_76x0_0\n  ROOT r = "
    "f32[1500,512] add(y, w)\n"
)
FOLDED = (
    "  k = f32[1000,512] reduce-window(p, z), window={size=3x1 pad=1_1x0_0}, to_apply=max\n  w = f32[1024,512] pad(k, "
    "z), padding=19_5x0_0\n"
    "  ROOT r = f32[1024,512] add(d, w)\n"
)
MAX = "max {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT m = f32[] maximum(x, y)\n}\n\n"


@pytest.mark.parametrize("case", ["table", "joined", "folded"])
def test_memory_under_other_conditions_is_only_read_where_they_hold(tool: Any, case: str) -> None:
    """What is read inside of a pad is not read beforehand where it is a constant's table, or under a condition or in a
    loop of its own: there it may not exist."""
    text = {
        "table": pad("6,65536", "1_1x0_0", "8,65536", more=TABLE),
        "joined": pad(*OUTER, more=JOINED),
        "folded": pad(*OUTER, more=FOLDED).replace("ENTRY", MAX + "ENTRY"),
    }[case]
    assert "if (" in tool.kernel(text).source
    tool.agrees(text, whole=True)


def test_a_row_reduction_reads_padded_rows_in_vectors(tool: Any) -> None:
    folded = (
        "  l = f32[] constant(-inf)\n  m = f32[10] reduce(d, l), dimensions={1}, to_apply=max\n  b = f32[10,4096] "
        "broadcast(m), dimensions={0}\n  ROOT r = f32[10,4096] subtract(d, b)\n"
    )
    text = pad("7,4096", "1_2x0_0", "10,4096", before="negate", more=folded).replace("ENTRY", MAX + "ENTRY")
    assert tool.plan(text).kind == "row-reduction"
    found, _ = accesses(tool.kernel(text).source)
    assert found == {"ld.global.v4.f32", "st.global.v4.f32"}
    tool.agrees(text)


def test_they_agree(tool: Any) -> None:
    kinds = ("f32", "bf16", "f16", "s8", "pred", "u16", "f64", "c64")
    texts = [pad(*OUTER, kind) for kind in kinds if kind != "c64"]
    shapes = [
        ("1000,512", "5_19x0_0", "1024,512"),
        ("512,512", "1_0_1x0_0", "1024,512"),
        ("60,30,256", "2_2x1_1x0_0", "64,32,256"),
        ("1100,512", "-5_-71x0_0", "1024,512"),
        ("1000,500", "5_19x4_8", "1024,512"),
        ("1000,511", "5_19x0_1", "1024,512"),
        ("999,513", "5_20x0_0", "1024,513"),
    ]
    for (a, b, c), kind in itertools.product(shapes, ("f32", "bf16")):
        texts.append(pad(a, b, c, kind, before="negate", after="add"))
    tool.all_agree(texts)


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_random_pads(tool: Any, data: st.DataObject) -> None:
    small = st.sampled_from((1, 2, 3, 7, 31, 64))
    minor = data.draw(st.sampled_from((4, 8, 12, 16, 256, 257)))
    kind = data.draw(st.sampled_from(("f32", "bf16", "s8")))
    results = [data.draw(small), data.draw(small)]
    results[0] = max(results[0], -(-300_000 // (results[1] * minor)))
    given_, parts = [], []
    for size in results:
        low, high = data.draw(st.integers(-2, 2)), data.draw(st.integers(-2, 2))
        while size - low - high < 1:
            low, high = low - 1, high - 1
        given_.append(size - low - high)
        parts.append(f"{low}_{high}")
    low, high = data.draw(st.sampled_from(((0, 0), (4, 8), (0, 4), (8, 0), (1, 3), (-4, 4), (0, -8))))
    if minor <= low + high:
        low, high = 0, 0
    shape = ",".join(map(str, (*given_, minor - low - high)))
    result = ",".join(map(str, (*results, minor)))
    before, after = data.draw(st.sampled_from(("", "negate"))), data.draw(st.sampled_from(("", "maximum")))
    tool.agrees(pad(shape, "x".join([*parts, f"{low}_{high}"]), result, kind, before=before, after=after), whole=True)
