"""A comparison for people."""

from __future__ import annotations

import hlo_opt
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.report import sentences
from hlo_opt.report.diff.changes import Detail
from hlo_opt.report.diff.comparison import diff
from hlo_opt.report.diff.kernels import Seam
from hlo_opt.report.diff.page import as_page, detail, percent, seam_words, short_shape, signed
from hlo_opt.report.page import Page

TEXT = """HloModule m

ENTRY e {
  p = f32[4096,256]{1,0} parameter(0)
  a = f32[4096,256]{1,0} tanh(p), metadata={op_name="a" source_file="m.py" source_line=4}
  ROOT b = f32[4096,256]{1,0} negate(a), metadata={op_name="b" source_file="m.py" source_line=5}
}
"""


def test_the_page_names_the_change_its_price_and_its_line():
    fused = str(hlo_opt.fuse(hlo_opt.parse(TEXT), preset="xla-2026")[0])
    page = str(diff(fused, TEXT))
    first = page.split("\n\n")[1].split("\n")
    assert first[0].startswith("+") and " split into " in first[0] and "m.py:" in first[0]
    assert "    a -> b: old fused; new FUS504 pass-was-done (no rule of ours refuses it" in page
    assert "2 operations alike" not in page and "3 operations alike" in page
    assert "kernels as they are in the texts" in page.split("\n")[0]


def test_an_edge_that_is_refused_alike_on_both_sides_is_told_once():
    twice = TEXT.replace("tanh(p)", "dot(p, p), lhs_contracting_dims={0}, rhs_contracting_dims={0}")
    twice = twice.replace("f32[4096,256]{1,0} dot", "f32[256,256]{1,0} dot").replace(
        "f32[4096,256]{1,0} negate", "f32[256,256]{1,0} negate"
    )
    (refused,) = (d for d in hlo_opt.fuse(hlo_opt.parse(twice))[1] if not d.fused)

    def told(old: FusionDecision | None) -> str:
        page = Page()
        page.add(*seam_words(Seam("a", "b", old, refused, passed=True)))
        return str(page).rstrip()

    assert told(refused) == f"refused on both sides: {sentences.sentence(refused)}"
    assert told(None) == f"old fused; new {sentences.sentence(refused)}"


def test_where_there_is_no_difference_it_says_so():
    assert "no difference, but for names, metadata and order" in str(
        diff(TEXT, TEXT.replace("a = ", "x = ").replace("(a)", "(x)"))
    )


def test_only_so_many_are_shown():
    lines = [f"  a{n} = f32[8]{{0}} tanh(p{n})\n  p{n} = f32[8]{{0}} parameter({n})" for n in range(14)]
    text = "HloModule m\n\nENTRY e {\n" + "\n".join("\n".join(reversed(line.split("\n"))) for line in lines)
    text += f"\n  ROOT r = ({', '.join(['f32[8]{0}'] * 14)}) tuple({', '.join(f'a{n}' for n in range(14))})\n}}\n"
    found = diff(text, text.replace("tanh", "sine"), fuse="never")
    assert len(found.differences) == 14
    assert "4 more differences: --all shows them" in str(as_page(found)) and "more difference" not in str(
        as_page(found, None)
    )


def test_control_characters_of_names_are_escaped():
    text = TEXT.replace('op_name="a" source_file="m.py"', 'op_name="a" source_file="m\\033[31m.py"')
    assert "\033" not in str(diff(text, text.replace("tanh", "sine")))


def test_words():
    assert percent(0.5) == "+50 %" and percent(-0.1) == "-10 %" and percent(float("inf")) == "+inf %"
    assert percent(9.99) == "+999 %" and percent(9.999) == "+1,000 %" and percent(2237.4) == "+224,000 %"
    assert signed("3 us", 3) == "+3 us" and signed("-3 us", -3) == "-3 us"
    assert detail(Detail("layout", "{1,0}", "{0,1}")) == "layout {1,0} -> {0,1}"
    assert detail(Detail("is_stable", "", "true")) == "is_stable +true"
    assert len(short_shape("x" * 500)) == 60


def test_an_added_operation_names_all_that_it_reads_and_a_small_reducer():
    folded = TEXT.replace(
        "ENTRY e",
        "add {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT s = f32[] add(x, y)\n}\n\nENTRY e",
    )
    folded = folded.replace("  ROOT b = f32[4096,256]{1,0} negate(a)", "  b = f32[4096,256]{1,0} negate(a)")
    folded = folded.replace(
        "\n}\n",
        "\n  c = f32[4096,256]{1,0} multiply(b, b)\n  z = f32[] constant(0)\n"
        "  ROOT d = f32[4096]{0} reduce(c, z), dimensions={1}, to_apply=add\n}\n",
    ).replace(
        "  c = f32[4096,256]{1,0} multiply(b, b)\n  z = f32[] constant(0)\n"
        "  ROOT d = f32[4096]{0} reduce(c, z), dimensions={1}, to_apply=add\n}\n\nENTRY",
        "}\n\nENTRY",
    )
    page = str(diff(TEXT, folded, fuse="never"))
    assert "c = f32[4096,256]{1,0} multiply(b, b)" in page
    assert "d = f32[4096]{0} reduce(c, 0), to_apply add(p0, p1)" in page
