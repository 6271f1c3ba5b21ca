"""Kernels that leave their arrays, or leave some of them unwritten, in a check."""

import ctypes
import re

import ml_dtypes
import numpy as np
import pytest

import hlo_opt
from hlo_opt.diag import BackendError, CheckError
from hlo_opt.ir import ELEMENT_TYPES, array
from hlo_opt.runtime.check.compare import check
from hlo_opt.runtime.host import library
from hlo_opt.runtime.host.compiler import has_compiler, load
from hlo_opt.runtime.host.crashes import crashes_told
from hlo_opt.runtime.host.fences import FENCE, MOST, Fences
from hlo_opt.runtime.host.own_routines import runtime

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

HEAD = re.compile(r'(extern "C"[^{;]*int (launch_\w+)\([^)]*\) \{)')


def of(count, opcode="negate"):
    return hlo_opt.parse(
        f"HloModule m\nENTRY e {{\n  p = f32[{count}] parameter(0)\n  ROOT r = f32[{count}] {opcode}(p)\n}}\n"
    )


def planted(monkeypatch, change):
    """What stands before the first statement of launchers of the lanes form; `in` and `out` are its arrays."""
    unit = library.lanes_unit

    def text(kernels):
        code = "float *in = (float*)pointers[0], *out = (float*)pointers[1];"
        made, count = HEAD.subn(lambda found: f"{found[1]} {code} {change}", unit(kernels))
        assert count == len(kernels)
        return made

    monkeypatch.setattr(library, "lanes_unit", text)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ("out[9] = 1;", "4 bytes behind the end of output 0"),
        ("out[11] = 1;", "12 bytes behind the end of output 0"),
        ("out[-1] = 1;", "4 bytes before output 0"),
    ],
)
def test_a_write_next_to_an_array_is_found(change, place, monkeypatch):
    planted(monkeypatch, change)
    with pytest.raises(CheckError) as caught:
        check(of(9), of(9), backend="host")
    assert caught.value.code == "HLO721"
    assert caught.value.message == f"a kernel writes outside of its arrays in the lanes form: {place}"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ("out[100] = 1;", "364 bytes behind the end of output 0"),
        ("volatile float x = in[9 + 1000];", "4000 bytes behind the end of input 0"),
        ("volatile float x = in[-5000];", "20000 bytes before input 0"),
        ("in[2] = 1;", "in input 0, which is not its to write"),
    ],
)
def test_an_access_far_from_an_array_is_told_with_its_place(change, place, monkeypatch):
    planted(monkeypatch, change)
    with pytest.raises(BackendError) as caught:
        check(of(9), of(9), backend="host")
    assert caught.value.code == "HLO532" and f"crashed in the lanes form at {place}: " in caught.value.message


@pytest.mark.parametrize("count", [9, 70_000])
def test_a_result_that_nothing_writes_is_seen(count, monkeypatch):
    """New memory from the system holds zeros, and memory that is used again the results of the other form, which ran
    before."""
    planted(monkeypatch, "return 0;")
    module = of(count, "sign")
    for inputs in ([np.zeros(count, np.float32)], [np.arange(count, dtype=np.float32)]):
        report = check(module, module, inputs=inputs, backend="host")
        assert not report.ok and report.wrong == ("lanes",) and "got nan" in str(report)


def test_values_between_kernels_hold_nothing_at_first(monkeypatch):
    """The first of two kernels writes nothing; the second reads what it left."""
    module = hlo_opt.parse(
        "HloModule m\nadd { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"
        "ENTRY e { p = f32[64,64] parameter(0)\n z = f32[] constant(0)\n t = f32[64,64] sign(p)\n"
        " r = f32[64] reduce(t, z), dimensions={0}, to_apply=add\n ROOT n = f32[64] negate(r) }\n"
    )
    planted(monkeypatch, "if (in != out) return 0;")
    with crashes_told():
        (made,) = hlo_opt.compile(module, "host")(np.zeros((64, 64), np.float32))
    assert np.isnan(made).all()


def test_memory_that_a_module_gives_away_may_be_written():
    module = hlo_opt.parse(
        "HloModule m, input_output_alias={ {}: (0, {}, may-alias) }\n"
        "ENTRY e { p = f32[5] parameter(0)\n q = f32[5] parameter(1)\n ROOT r = f32[5] add(p, q) }\n"
    )
    assert check(module, module, backend="host").ok
    given = [np.arange(5, dtype=np.float32), np.ones(5, np.float32)]
    with crashes_told():
        (made,) = hlo_opt.compile(module, "host")(*given)
    assert made.tolist() == [1, 2, 3, 4, 5] and given[0].tolist() == [0, 1, 2, 3, 4]


def test_memory_after_a_check_is_that_from_before():
    executable = hlo_opt.compile(of(9), "host")
    x = np.arange(9, dtype=np.float32)
    with crashes_told():
        first = executable(x)
    assert np.array_equal(executable(x)[0], first[0]) and executable._executor._kept[-1].fences is None


def test_no_load_under_a_mask_reads_behind_the_end_of_an_array():
    """GCC 12 makes a blend with memory of one whose mask is a constant, which reads eight elements of four."""
    text = """
    extern "C" __attribute__((visibility("default"))) int launch(void** p, long long, long long) {
      const float* __restrict__ a = (const float*)p[0];
      const float* __restrict__ b = (const float*)p[1];
      float* __restrict__ to = (float*)p[2];
      #pragma omp simd
      for (int l = 0; l < 12; ++l) {
        float v = 0;
        if (l <= 3) v = a[l];
        else v = b[l - 4];
        to[l] = -v;
      }
      return 0;
    }
    """
    short, long = (np.arange(n, dtype=np.float32) for n in (4, 8))
    fences, made = Fences(), np.zeros(12, np.float32)
    arrays = [*(fences.copy(x, "x", is_read_only=True) for x in (short, long)), made]
    pointers = (ctypes.c_void_p * 3)(*(a.ctypes.data for a in arrays))
    with crashes_told():
        assert runtime().hlo_launch(ctypes.cast(load([text]).launch, ctypes.c_void_p), pointers, 0, 1) == 0
    np.testing.assert_array_equal(made, -np.concatenate([short, long]))


# ---- the memory itself


def test_arrays_end_at_the_fence_and_start_where_kernels_want_them():
    fences = Fences()
    for size in (1, 3, 4, 16, 4095, 4096, 4097):
        made = fences.empty(array(ELEMENT_TYPES["u8"], size), "x")
        assert made.size == size and made.ctypes.data % 16 == 0 and (made == 0xA5).all()
        end = made.ctypes.data + size
        assert -(-end // 4096) * 4096 - end < 16
    assert fences.block(100, "y").ctypes.data % 64 == 0 and fences.damage() == ""
    half = fences.empty(array(ELEMENT_TYPES["bf16"], 2, 3), "z")
    assert half.dtype == ml_dtypes.bfloat16 and np.isnan(half.astype(np.float32)).all()


def test_places_are_told():
    fences = Fences()
    x = fences.copy(np.arange(6, dtype=np.int32).reshape(2, 3), "x", is_read_only=True)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]] and x.shape == (2, 3)
    at = x.ctypes.data
    assert fences.place(at + 4) == "in x, which is not its to write"
    assert fences.place(at + 24) == "0 bytes behind the end of x" and fences.place(at - 8) == "8 bytes before x"
    assert fences.place(at + FENCE // 2) == f"{FENCE // 2 - 24} bytes behind the end of x"
    assert fences.place(at + 4 * FENCE) == "" and fences.place(0) == ""


def test_large_arrays_stay_where_they_are():
    large = np.zeros(MOST + 1, np.int8)
    assert Fences().copy(large, "x", is_read_only=True) is large
