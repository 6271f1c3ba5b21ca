from __future__ import annotations

import re
from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.ir import ELEMENT_TYPES, Shape
from hlo_opt.text import print_module
from hlo_opt.text.printer import ShapeTexts, listed, ordered, ordered_header

DUMPS = Path(__file__).resolve().parents[2] / "testdata" / "dumps"
MIXED = """HloModule m, num_partitions=2, is_scheduled=true

ENTRY e {
  p = f32[8] parameter(0), metadata={op_name="x"}, origin={{"a"}}, sharding={replicated}, parameter_replication={true}
  t = (f32[8], f32[8], f32[8], f32[8], f32[8], f32[8], (f32[8])) custom-call(p,p,p,p,p,p,p), backend_config="x", custom_call_target="x"
  g = f32[16] all-gather(p), dimensions={0}, replica_groups={{0,1}}, use_global_device_ids=true, channel_id=1
  i = s32[2] iota(), iota_dimension=0
  ROOT a = f32[8] exponential(p), backend_config="x", metadata={op_name="y"}, result_accuracy={mode=highest}, statistics={visualizing_index=0,x=1}, control-predecessors={t}, sharding={replicated}
}
"""


def names(line):
    return [part.split("=")[0] for part in line.split(", ")[1:] if "=" in part and part[0].isalpha()]


def test_the_order_is_xlas():
    hlo = pytest.importorskip("jaxlib._hlo")
    ours = str(hlo_opt.parse(MIXED)).splitlines()
    theirs = hlo.hlo_module_from_text(MIXED).to_string().splitlines()
    rows = {line.split(" = ")[0]: line for line in theirs}
    for line in ours:
        if " = " in line:
            assert names(line) == names(rows[line.split(" = ")[0]]), line


def test_unlisted_attributes_stand_before_the_shared_ones():
    assert ordered("reverse", ["metadata", "widget", "sharding", "dimensions"]) == [
        "dimensions",
        "widget",
        "sharding",
        "metadata",
    ]
    assert ordered_header(["widget", "num_partitions", "is_scheduled"]) == ["is_scheduled", "num_partitions", "widget"]


def test_every_fifth_item_is_noted():
    assert listed(list("abcde"), True) == "a, b, c, d, e"
    assert listed(list("abcdef"), True) == "a, b, c, d, e, /*index=5*/f"
    assert listed(list("abcdef"), False) == "a, b, c, d, e, f"
    one = Shape(ELEMENT_TYPES["f32"])
    six = Shape.tuple_of(*[one] * 6)
    assert ShapeTexts()[Shape.tuple_of(six)] == "((f32[], f32[], f32[], f32[], f32[], /*index=5*/f32[]))"


@pytest.mark.parametrize("path", sorted(DUMPS.glob("*.hlo"))[::4], ids=lambda p: p.stem)
def test_a_dump_as_read_is_the_dump(path):
    text = path.read_text()
    assert print_module(hlo_opt.parse(text), "as-read") == text
    assert print_module(hlo_opt.parse(text + "\n"), "as-read") == text + "\n"


@pytest.mark.parametrize(
    "path", [p for p in sorted(DUMPS.glob("*.hlo"))[::4] if ".frames" not in p.name], ids=lambda p: p.stem
)
def test_canonical_text_is_what_xla_prints(path):
    hlo = pytest.importorskip("jaxlib._hlo")
    text = path.read_text()
    options = hlo.HloPrintOptions()
    options.print_large_constants = True
    theirs = hlo.hlo_module_from_text(text).to_string(options)
    assert sorted(lines(str(hlo_opt.parse(text)))) == sorted(
        lines(theirs)
    )  # XLA may print computations in another order


def lines(text):
    rows = [line for line in text.splitlines() if line]
    return [(re.sub(r"[{}]", " ", row) if "constant({" in row else row).split() for row in rows]
