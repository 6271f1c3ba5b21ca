"""Elements of less than a byte lie packed in memory: every kind of kernel reads and writes them there, byte for byte as
the op table's results are packed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.numpy import from_memory, held_dtype, to_memory

TYPES = ("s4", "u4", "s2", "u2", "f4e2m1fn")
REDUCERS = """most {
  a = TYPE[] parameter(0)
  b = TYPE[] parameter(1)
  ROOT r = TYPE[] maximum(a, b)
}
second {
  a = TYPE[] parameter(0)
  ROOT b = TYPE[] parameter(1)
}
least {
  a = TYPE[] parameter(0)
  b = TYPE[] parameter(1)
  c = TYPE[] minimum(a, b)
  one = TYPE[] constant(1)
  ROOT r = TYPE[] add(c, one)
}
order {
  a = TYPE[] parameter(0)
  b = TYPE[] parameter(1)
  c = TYPE[] parameter(2)
  d = TYPE[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}
"""


def module(body: str, name: str) -> str:
    """The module with what it calls of `REDUCERS`."""
    called = [
        part for part in REDUCERS.split("\n}\n") if part and f"={part.split()[0]}" in body.replace("to_apply=", "=")
    ]
    parts = [f"{part}\n}}\n" for part in called]
    return f"HloModule m\n{''.join(parts)}ENTRY e {{\n{body}}}\n".replace("TYPE", name)


def loop(size: int) -> str:
    return f"  p = TYPE[{size}] parameter(0)\n  q = TYPE[{size}] parameter(1)\n  ROOT r = TYPE[{size}] maximum(p, q)\n"


def widened(size: int) -> str:
    return f"  p = TYPE[{size}] parameter(0)\n  ROOT r = f32[{size}] convert(p)\n"


SEVERAL = """  p = f32[6,8]{1,0} parameter(0)
  a = TYPE[6,8]{1,0} convert(p)
  b = s2[6,8]{1,0} convert(p)
  c = f32[6,8]{1,0} negate(p)
  f = f32[48]{0} reshape(c)
  d = u4[48]{0} convert(f)
  ROOT t = (TYPE[6,8]{1,0}, s2[6,8]{1,0}, f32[6,8]{1,0}, u4[48]{0}) tuple(a, b, c, d)
"""
OTHER_LAYOUT = """  p = TYPE[6,10]{1,0} parameter(0)
  q = TYPE[6,10]{0,1} parameter(1)
  a = TYPE[6,10]{1,0} maximum(p, q)
  b = TYPE[6,10]{0,1} minimum(p, q)
  ROOT t = (TYPE[6,10]{1,0}, TYPE[6,10]{0,1}) tuple(a, b)
"""


def rows(count: int, length: int) -> str:
    """A row's most, and each element where it is that."""
    return f"""  p = TYPE[{count},{length}]{{1,0}} parameter(0)
  z = TYPE[] constant(0)
  m = TYPE[{count}]{{0}} reduce(p, z), dimensions={{1}}, to_apply=most
  b = TYPE[{count},{length}]{{1,0}} broadcast(m), dimensions={{0}}
  d = TYPE[{count},{length}]{{1,0}} minimum(p, b)
  s = TYPE[{count},{length}]{{1,0}} subtract(d, b)
  ROOT t = (TYPE[{count}]{{0}}, TYPE[{count},{length}]{{1,0}}) tuple(m, s)
"""


def columns(length: int, count: int) -> str:
    return f"""  p = TYPE[{length},{count}]{{1,0}} parameter(0)
  z = TYPE[] constant(0)
  ROOT m = TYPE[{count}]{{0}} reduce(p, z), dimensions={{0}}, to_apply=most
"""


def transposed(first: int, second: int) -> str:
    return f"""  p = TYPE[{first},{second}]{{1,0}} parameter(0)
  q = TYPE[{first},{second}]{{1,0}} parameter(1)
  m = TYPE[{first},{second}]{{1,0}} maximum(p, q)
  ROOT r = TYPE[{second},{first}]{{1,0}} transpose(m), dimensions={{1,0}}
"""


def joined(first: int, second: int, along: int) -> str:
    sizes = [[4, 6], [4, 6], [4, 6]]
    sizes[0][along], sizes[1][along], sizes[2][along] = first, second, first + second
    a, b, c = (f"TYPE[{x},{y}]{{1,0}}" for x, y in sizes)
    return f"""  p = {a} parameter(0)
  q = {b} parameter(1)
  c = {c} concatenate(p, q), dimensions={{{along}}}
  ROOT r = {c} negate(c)
"""


PADDED = """  p = TYPE[3,5]{1,0} parameter(0)
  z = TYPE[] parameter(1)
  ROOT r = TYPE[6,11]{1,0} pad(p, z), padding=1_2x1_1_1
"""
MOVED = """  p = TYPE[5,7]{1,0} parameter(0)
  s = TYPE[3,3]{1,0} slice(p), slice={[1:4],[1:7:2]}
  r = TYPE[3,3]{1,0} reverse(s), dimensions={1}
  ROOT b = TYPE[3,3,3]{2,1,0} broadcast(r), dimensions={0,2}
"""
UPDATED = """  p = TYPE[5,7]{1,0} parameter(0)
  u = TYPE[2,3]{1,0} parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT r = TYPE[5,7]{1,0} dynamic-update-slice(p, u, i, j)
"""
EVEN_UPDATE = """  p = TYPE[6,8]{1,0} parameter(0)
  u = TYPE[2,8]{1,0} parameter(1)
  i = s32[] parameter(2)
  z = s32[] constant(0)
  ROOT r = TYPE[6,8]{1,0} dynamic-update-slice(p, u, i, z)
"""
SLICED = """  p = TYPE[5,7]{1,0} parameter(0)
  i = s32[] parameter(1)
  j = s32[] parameter(2)
  ROOT r = TYPE[2,3]{1,0} dynamic-slice(p, i, j), dynamic_slice_sizes={2,3}
"""
GATHERED = """  p = TYPE[5,7]{1,0} parameter(0)
  i = s32[4,1]{1,0} parameter(1)
  ROOT r = TYPE[4,7]{1,0} gather(p, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,7}
"""
SORTED = """  p = TYPE[5,9]{1,0} parameter(0)
  q = TYPE[5,9]{1,0} parameter(1)
  ROOT r = (TYPE[5,9]{1,0}, TYPE[5,9]{1,0}) sort(p, q), dimensions={1}, is_stable=true, to_apply=order
"""
SORTED_LINES = SORTED.replace("5,9", "3,700")
WINDOWS = """  p = TYPE[9,10]{1,0} parameter(0)
  z = TYPE[] constant(0)
  ROOT r = TYPE[5,9]{1,0} reduce-window(p, z), window={size=1x2 stride=2x1}, to_apply=most
"""
TABLE = """  p = TYPE[7] parameter(0)
  k = TYPE[7] constant({1, 0, 1, 1, 0, 1, 0})
  ROOT r = TYPE[7] add(p, k)
"""
COUNTED = "  i = TYPE[7] iota(), iota_dimension=0\n  p = TYPE[7] parameter(0)\n  ROOT r = TYPE[7] maximum(i, p)\n"

SIZES = (1, 2, 3, 7, 8, 33, 64)
BODIES = (
    *(loop(size) for size in SIZES),
    widened(9),
    SEVERAL,
    OTHER_LAYOUT,
    *(rows(*sizes) for sizes in ((5, 7), (3, 64), (4, 70), (2, 1024), (2, 1027), (9, 16))),
    *(columns(*sizes) for sizes in ((40, 36), (70, 33))),
    *(transposed(*sizes) for sizes in ((40, 36), (33, 35), (128, 64))),
    *(joined(*sizes) for sizes in ((3, 4, 0), (3, 4, 1), (2, 4, 1), (5, 5, 1))),
    PADDED,
    MOVED,
    SLICED,
    GATHERED,
    SORTED,
    SORTED_LINES,
    WINDOWS,
    TABLE,
    COUNTED,
)
SPREAD = """  p = TYPE[777,1024]{1,0} parameter(0)
  v = TYPE[1024]{0} parameter(1)
  u = f32[777]{0} parameter(2)
  a = TYPE[777,1024]{1,0} broadcast(v), dimensions={1}
  m = TYPE[777,1024]{1,0} maximum(p, a)
  f = f32[777,1024]{1,0} convert(m)
  b = f32[777,1024]{1,0} broadcast(u), dimensions={0}
  x = f32[777,1024]{1,0} multiply(f, b)
  y = u2[777,1024]{1,0} convert(x)
  ROOT t = (TYPE[777,1024]{1,0}, f32[777,1024]{1,0}, u2[777,1024]{1,0}) tuple(m, x, y)
"""
LARGE = (
    SPREAD,
    *(loop(size) for size in (1 << 19, (1 << 19) + 2, (1 << 19) + 1)),
    widened(1 << 19),
    *(joined(first, second, 0).replace("6]", "131072]") for first, second in ((2, 2), (1, 3))),
)
FEW = (loop(7), loop(64), OTHER_LAYOUT, rows(4, 70), rows(2, 1024), transposed(33, 35), joined(3, 4, 1), SORTED, TABLE)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.sweep
def test_kernels_agree_with_evaluation(tool: Any, name: str) -> None:
    tool.all_agree([module(b, name) for b in (BODIES if name in ("s4", "u2") else FEW)])


def test_large_arrays_agree_with_evaluation(tool: Any) -> None:
    tool.all_agree([module(b, "s4") for b in LARGE])
    tool.all_agree([module(b, "u2") for b in (loop(1 << 19), transposed(4096, 2048))])


@pytest.mark.parametrize("name", ["s4", "u2", "f4e2m1fn"])
def test_a_thread_writes_whole_bytes_where_it_can(planner: Any, name: str) -> None:
    bits = {"s4": 4, "u2": 2, "f4e2m1fn": 4}[name]
    for body in (loop(8), loop(1 << 19), SEVERAL, rows(2, 1024)):
        assert f"hlo_fill<{bits}>(" in planner.kernel(module(body, name)).source
    for body in (loop(8), loop(1 << 19)):
        assert "atomicCAS" not in planner.kernel(module(body, name)).source
    for body in (loop(7), transposed(33, 35)):
        assert f"hlo_put<{bits}>(" in planner.kernel(module(body, name)).source


STARTS = (np.int32(2), np.int32(3)), (np.int32(9), np.int32(-4))
SCATTERED = """  p = TYPE[9]{0} parameter(0)
  i = s32[6,1]{1,0} parameter(1)
  u = TYPE[6]{0} parameter(2)
  ROOT r = TYPE[9]{0} scatter(p, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=REDUCER, unique_indices=UNIQUE
"""


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize("name", ["s4", "u2"])
def test_updates_change_what_they_name_and_nothing_else(name: str) -> None:
    for body in (UPDATED, EVEN_UPDATE):
        found = hlo_opt.parse(module(body, name))
        executable = hlo_opt.compile(found, "host")
        for starts in STARTS:
            arrays = [a for a in module_inputs(found, seed=5) if a.ndim]
            given = [*arrays, *starts[: 2 if body == UPDATED else 1]]
            np.testing.assert_array_equal(executable(*given)[0], hlo_opt.evaluate(found, given)[0])
    for reducer in ("most", "second", "least"):
        for places in ([3, 8, 2, 0, 11, 4], [3, 8, 3, 0, 11, 3]):
            unique = len(set(places)) == 6
            if reducer == "second" and not unique:
                continue  # which of them comes last is open
            body = SCATTERED.replace("REDUCER", reducer).replace("UNIQUE", str(unique).lower())
            found = hlo_opt.parse(module(body, name))
            executable = hlo_opt.compile(found, "host")
            operand, _, updates = module_inputs(found, seed=3)
            given = [operand, np.array(places, np.int32).reshape(6, 1), updates]
            np.testing.assert_array_equal(executable(*given)[0], hlo_opt.evaluate(found, given)[0])
            assert not executable.report()["fallbacks"]


def test_nvrtc_compiles_them(planner: Any) -> None:
    pytest.importorskip("cupy")
    from cupy.cuda import nvrtc

    scattered = [SCATTERED.replace("REDUCER", r).replace("UNIQUE", "false") for r in ("most", "second", "least")]
    texts = [module(b, "s4") for b in (*BODIES, *LARGE, UPDATED, EVEN_UPDATE, *scattered)]
    texts += [module(b, "u2") for b in (loop(1 << 19), transposed(4096, 2048), UPDATED, *scattered)]
    for source in dict.fromkeys(planner.kernel(text).source for text in texts):
        program = nvrtc.createProgram(source, "kernel.cu", (), ())
        try:
            nvrtc.compileProgram(program, ("-arch=compute_90", "--std=c++17"))
        except nvrtc.NVRTCError:
            pytest.fail(nvrtc.getProgramLog(program)[:2000])


def test_memory_holds_the_first_element_in_the_lowest_bits() -> None:
    shape = hlo_opt.parse("HloModule m\nENTRY e { ROOT p = s4[5]{0} parameter(0) }").entry.root.shape
    array = np.array([1, -1, 2, -8, 5]).astype(shape.type.dtype)
    memory = to_memory(array, shape)
    assert memory.tolist() == [0xF1, 0x82, 0x05] and shape.stored_bytes == 3 and held_dtype(shape) == np.uint8
    np.testing.assert_array_equal(from_memory(memory, shape), array)
