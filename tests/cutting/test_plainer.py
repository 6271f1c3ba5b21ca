"""Smaller sizes, plainer types, constants and attributes."""

import contextlib

import numpy as np
import pytest
from cutting_modules import TEXT

import hlo_opt
from hlo_opt.cutting import plainer
from hlo_opt.cutting.parts import size
from hlo_opt.diag import HloOptError
from hlo_opt.ir import edit


def sound(module):
    found = hlo_opt.parse(str(module))
    hlo_opt.verify(found)
    return found


def test_sizes_change_everywhere_and_results_follow():
    module = sound(plainer.resized(hlo_opt.parse(TEXT), {16: 3, 8: 4}))
    shapes = {i.name: i.shape.dimensions for i in module.entry.instructions}
    assert shapes["a"] == (4, 3) and shapes["r"] == (4,) and shapes["c"] == (4,) and shapes["k"] == (8,)


def test_arrays_of_two_types_become_one():
    text = """HloModule m
ENTRY e {
  p = f32[4]{0} parameter(0)
  q = s32[4]{0} parameter(1)
  ROOT t = (f32[4]{0}, s32[4]{0}) tuple(p, q)
}
"""
    module = hlo_opt.parse(text)
    types = [
        [leaf.type.name for leaf in sound(smaller).entry.root.shape.leaves()]
        for cut in plainer.plainer(module)
        if size(smaller := cut(edit.clone_module(module))) < size(module)
    ]
    assert types == [["f32", "f32"], ["s32", "s32"]]


def test_windows_slices_and_constants_follow():
    text = """HloModule m
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY e {
  p = f32[64,6]{1,0} parameter(0)
  i = s32[] parameter(1)
  z = s32[] constant(0)
  w = f32[6]{0} constant({1, 2, 3, 4, 5, 6})
  none = f32[] constant(0)
  b = f32[64,6]{1,0} broadcast(w), dimensions={1}
  a = f32[64,6]{1,0} add(p, b)
  c = f32[64,6]{1,0} reduce-window(a, none), window={size=64x1 pad=63_0x0_0}, to_apply=sum
  d = f32[1,6]{1,0} dynamic-slice(c, i, z), dynamic_slice_sizes={1,6}
  ROOT s = f32[32,6]{1,0} slice(c), slice={[32:64], [0:6]}
}
"""
    module = sound(plainer.resized(hlo_opt.parse(text), {64: 8, 32: 4, 6: 2}))
    assert module.entry.root.attributes["slice"].text.replace(" ", "") == "{[4:8],[0:2]}"
    constant = next(i for i in module.entry.instructions if i.name == "w")
    np.testing.assert_array_equal(constant.literal.value, [1, 2])
    assert any(
        "pad=7_0" in str(i.attributes.get("window", "")) or "7_0" in getattr(i.attributes.get("window"), "text", "")
        for i in module.entry.instructions
    )


@pytest.mark.parametrize(
    ("cut", "size", "sizes", "text"),
    [
        ((4, 12, 1), 12, {12: 6, 8: 4}, "[2:6]"),
        ((1, 3, 1), 12, {12: 2}, "[0:2]"),
        ((0, 12, 2), 12, {12: 4, 6: 2}, "[1:4:2]"),
    ],
)
def test_a_range_stays_inside(cut, size, sizes, text):
    from hlo_opt.ir.attribute import SliceDimension

    found = plainer._range(SliceDimension(*cut), size, sizes)
    assert str(found) == text and found.limit <= sizes[size]


def test_types_change_everywhere():
    text = """HloModule m
ENTRY e {
  p = bf16[4]{0} parameter(0)
  c = bf16[] constant(1.5)
  b = bf16[4]{0} broadcast(c), dimensions={}
  ROOT a = bf16[4]{0} add(p, b)
}
"""
    module = sound(plainer.retyped(hlo_opt.parse(text), "bf16", "f32"))
    np.testing.assert_array_equal(hlo_opt.evaluate(module, [np.ones(4, np.float32)])[0], 2.5)


def test_what_nobody_needs_goes():
    text = TEXT.replace("HloModule m", "HloModule m, is_scheduled=true")
    module = hlo_opt.parse(text)
    names = [cut.keywords for cut in plainer.barer(module)]
    assert {"name": "is_scheduled"} in names and {"name": "metadata", "numbers": None} in names
    bare = str(sound(plainer.bare(module)))
    assert "metadata" not in bare and "is_scheduled" not in bare and "dimensions={1}" in bare


def test_most_plainer_modules_are_sound():
    module = hlo_opt.parse(TEXT)
    listed = [*plainer.plainer(module), *plainer.smaller(module)]
    made = []
    for cut in listed:
        with contextlib.suppress(HloOptError):
            made.append(sound(cut(edit.clone_module(module))))
    assert len(made) * 2 > len(listed) > 20
    assert {str(m) for m in made} - {str(module)}


def test_scalars_stand_for_arrays_of_one_element():
    text = """HloModule m
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY e {
  p = f32[1,1]{1,0} parameter(0)
  q = f32[1]{0} parameter(1)
  c = f32[1]{0} constant({3})
  d = f32[1,1]{1,0} broadcast(c), dimensions={0}
  a = f32[1,1]{1,0} add(p, d)
  none = f32[] constant(0)
  r = f32[1]{0} reduce(a, none), dimensions={1}, to_apply=sum
  ROOT m = f32[1]{0} multiply(r, q)
}
"""
    module = hlo_opt.parse(text)
    (cut,) = plainer.all_smaller(module)
    assert cut is plainer.squeezed
    after = sound(cut(edit.clone_module(module)))
    assert all(not i.shape.rank for i in after.entry.instructions) and size(after) < size(module)
    inputs = [np.full((1, 1), 2, np.float32), np.full((1,), 5, np.float32)]
    want = hlo_opt.evaluate(module, inputs)[0]
    assert hlo_opt.evaluate(after, [a.reshape(()) for a in inputs])[0] == want == 25


def test_dimensions_of_size_one_go_and_the_others_stay():
    text = """HloModule m
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY e {
  p = f32[1,3,1,2]{3,1,2,0} parameter(0)
  q = f32[3,1]{1,0} parameter(1)
  w = f32[3]{0} reshape(q)
  b = f32[1,3,1,2]{3,1,2,0} broadcast(w), dimensions={1}
  a = f32[1,3,1,2]{3,1,2,0} add(p, b)
  none = f32[] constant(0)
  ROOT r = f32[1,3]{1,0} reduce(a, none), dimensions={2,3}, to_apply=sum
}
"""
    module = hlo_opt.parse(text)
    after = sound(plainer.squeezed(edit.clone_module(module)))
    shapes = {i.name: str(i.shape) for i in after.entry.instructions}
    assert shapes == {"p": "f32[3,2]{1,0}", "q": "f32[3]{0}", "b": "f32[3,2]{1,0}", "a": "f32[3,2]{1,0}",
                      "none": "f32[]", "r": "f32[3]{0}"}  # fmt: skip
    inputs = [np.arange(6, dtype=np.float32).reshape(1, 3, 1, 2), np.arange(3, dtype=np.float32).reshape(3, 1)]
    want = hlo_opt.evaluate(module, inputs)[0].reshape(3)
    np.testing.assert_array_equal(hlo_opt.evaluate(after, [inputs[0].reshape(3, 2), inputs[1].reshape(3)])[0], want)


BATCHES = """HloModule m
ENTRY e {
  q = f32[2,1,10,20]{3,2,1,0} parameter(0)
  k = f32[2,30,1,20]{3,2,1,0} parameter(1)
  ROOT d = f32[2,1,10,30]{3,2,1,0} dot(q, k), lhs_batch_dims={0,1}, lhs_contracting_dims={3}, @
}
""".replace("@", "rhs_batch_dims={0,2}, rhs_contracting_dims={3}")


def test_dimensions_of_size_one_of_a_product_go():
    module = hlo_opt.parse(BATCHES)
    after = sound(plainer.squeezed(edit.clone_module(module)))
    assert [str(i.shape) for i in after.entry.instructions] == [
        "f32[2,10,20]{2,1,0}",
        "f32[2,30,20]{2,1,0}",
        "f32[2,10,30]{2,1,0}",
    ]
    q, k = (np.arange(n, dtype=np.float32).reshape(s) for n, s in ((400, (2, 1, 10, 20)), (1200, (2, 30, 1, 20))))
    want = hlo_opt.evaluate(module, [q, k])[0].reshape(2, 10, 30)
    np.testing.assert_array_equal(hlo_opt.evaluate(after, [q.reshape(2, 10, 20), k.reshape(2, 30, 20)])[0], want)


def test_dimensions_grow_to_one_size_and_those_of_batches_go():
    changes = plainer.larger(hlo_opt.parse(BATCHES))
    found = []
    for change in changes:
        after = sound(change(hlo_opt.parse(BATCHES)))
        found.append({i.shape.dimensions for i in after.entry.instructions})
    assert found == [
        {(30, 1, 30, 30), (30, 30, 1, 30)},
        {(64, 1, 64, 64), (64, 64, 1, 64)},
        {(30, 30)},
        {(256, 256)},
        {(128, 128)},
        {(64, 64)},
    ]


def test_constants_grow_with_their_dimensions():
    lines = ["c = f32[3]{0} constant({1, 2, 3})", "z = f32[] constant(4)", "b = f32[3]{0} broadcast(z), dimensions={}"]
    text = "\n".join(["HloModule m", "ENTRY e {", *lines, "ROOT a = f32[3]{0} add(c, b)", "}", ""])
    after = sound(plainer.resized(hlo_opt.parse(text), {3: 5}))
    np.testing.assert_array_equal(hlo_opt.evaluate(after, [])[0], [5, 6, 7, 7, 7])


def test_floats_become_integers_only_without_a_loop():
    text = "HloModule m\nENTRY e {\n  p = f32[3]{0} parameter(0)\n  ROOT c = s32[3]{0} convert(p)\n}\n"
    loop = """HloModule m
body {
  ROOT u = f32[3]{0} parameter(0)
}
condition {
  u = f32[3]{0} parameter(0)
  ROOT c = pred[] constant(false)
}
ENTRY e {
  p = f32[3]{0} parameter(0)
  w = f32[3]{0} while(p), condition=condition, body=body
  ROOT c = s32[3]{0} convert(w)
}
"""
    for given, expected in ((text, True), (loop, False)):
        cuts = [c for c in plainer.plainer(hlo_opt.parse(given)) if getattr(c, "keywords", {}).get("new") == "s32"]
        assert bool(cuts) == expected
