from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import hlo_opt
from hlo_opt.diag import UsageError
from hlo_opt.ir import ELEMENT_TYPES, Attribute, Called, Computation, Literal, Metadata, Module, array, edit
from hlo_opt.text import print_module

DUMPS = Path(__file__).resolve().parents[2] / "testdata" / "dumps"
TEXT = """HloModule jit_f, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

%body (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %y = f32[8]{0} negate(%x), metadata={op_name="neg"}
}, execution_thread="host"

ENTRY %main.3 (x.1: f32[8]) -> f32[8] {
  %x.1 = f32[8]{0} parameter(0)
  %c = f32[8]{0} constant({1, 2, 3, 4, 5, 6, 7, 8})
  %w = f32[8]{0} fusion(%x.1), kind=kLoop, calls=%body, control-predecessors={%c}
  ROOT %z = f32[8]{0} add(%w, %c), backend_config={"a":"}"}
}
"""


def canonical(text):
    hlo = pytest.importorskip("jaxlib._hlo")
    return hlo.hlo_module_from_text(text).to_string(hlo.HloPrintOptions())


def test_canonical_text_is_a_fixed_point():
    assert str(hlo_opt.parse(TEXT)) == TEXT


def test_short_text_leaves_out_what_people_skip():
    assert (
        print_module(hlo_opt.parse(TEXT), "short")
        == """HloModule jit_f, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

body {
  x = f32[8]{0} parameter(0)
  ROOT y = f32[8]{0} negate(x)
}, execution_thread="host"

ENTRY main.3 {
  x.1 = f32[8]{0} parameter(0)
  c = f32[8]{0} constant({1, 2, 3, 4, 5, 6, 7, 8})
  w = f32[8]{0} fusion(x.1), kind=kLoop, calls=body
  ROOT z = f32[8]{0} add(w, c)
}
"""
    )


@pytest.mark.parametrize("name", ["softmax.hlo", "softmax.frames.hlo", "softmax.classic.hlo"])
def test_as_read_text_keeps_the_conventions_of_the_dump(name):
    text = (DUMPS / name).read_text()
    printed = print_module(hlo_opt.parse(text), "as-read")
    assert [line for line in printed.splitlines() if line] == [line for line in text.splitlines() if line]


def test_an_unknown_style_is_a_usage_error():
    with pytest.raises(UsageError, match="canonicle") as caught:
        print_module(hlo_opt.parse(TEXT), "canonicle")
    assert caught.value.hint == "did you mean canonical?"


def test_a_module_made_in_memory():
    module = Module("made")
    body = edit.add_computation(module, Computation("body"))
    shape = array(ELEMENT_TYPES["f32"], 2, 2)
    p = edit.create(body, "p", "parameter", shape, parameter_number=0)
    edit.create(body, "n", "negate", shape, [p], root=True)
    main = edit.add_computation(module, Computation("main"), entry=True)
    value = np.array([[1.5, np.nan], [-0.0, np.inf]], np.float32)
    c = edit.create(main, "c", "constant", shape, literal=Literal(shape, value=value))
    f = edit.create(
        main,
        "f",
        "fusion",
        shape,
        [c],
        {
            "kind": Attribute.of("kLoop"),
            "calls": Called(body),
            "metadata": Attribute.of(Metadata(op_name='a"b', source_line=3)),
        },
        root=True,
    )
    f.control_predecessors = [c]
    text = str(module)
    assert "%c = f32[2,2]{1,0} constant({{1.5, nan}, {-0.0, inf}})" in text
    assert (
        "ROOT %f = f32[2,2]{1,0} fusion(%c), kind=kLoop, calls=%body, control-predecessors={%c}, "
        'metadata={op_name="a\\"b" source_line=3}' in text
    )
    again = hlo_opt.parse(text)
    hlo_opt.verify(again)
    assert str(again) == text
    assert canonical(text)


def test_stack_frame_tables_are_kept():
    text = (DUMPS / "softmax.frames.hlo").read_text()
    module = hlo_opt.parse(text)
    assert module.tables.startswith("FileNames\n1 ") and module.tables in text
    assert module.tables in str(module)


@pytest.mark.parametrize("path", sorted(DUMPS.glob("*.hlo")), ids=lambda p: p.stem)
def test_xla_reads_our_print_of_a_dump_as_the_same_module(path):
    text = path.read_text()
    module = hlo_opt.parse(text, path.name)
    expected = canonical(text)
    printed = str(module)
    assert canonical(printed) == expected
    assert canonical(print_module(module, "as-read")) == expected
    assert str(hlo_opt.parse(printed)) == printed


@pytest.mark.parametrize("name", ["softmax.frames.hlo", "layer_norm.frames.hlo"])
def test_our_print_is_xlas_own_up_to_blank_lines_and_index_comments(name):
    text = (DUMPS / name).read_text()
    theirs = re.sub(r"/\*index=\d+\*/", "", canonical(text))
    ours = re.sub(r"/\*index=\d+\*/", "", str(hlo_opt.parse(text)))
    assert [line for line in ours.splitlines() if line] == [line for line in theirs.splitlines() if line]
