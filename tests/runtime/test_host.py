from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hlo_opt.codegen import Kernel
from hlo_opt.codegen.host_plain import plain_unit
from hlo_opt.codegen.lanes import lanes_unit
from hlo_opt.codegen.statements import BLOCK, THREAD
from hlo_opt.codegen.tree import Assign, Let
from hlo_opt.diag import BackendError
from hlo_opt.ir import ELEMENT_TYPES, array
from hlo_opt.ops.code import Name, cell, code
from hlo_opt.plans.plan import Launch
from hlo_opt.runtime.host import compiler as building
from hlo_opt.runtime.host import library as host
from hlo_opt.runtime.host.library import HostLibrary, cache_directory, find_compiler, has_compiler
from tests.written_kernels import of_text, of_tree

F32 = ELEMENT_TYPES["f32"]
needs_compiler = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("HLO_OPT_CACHE", str(folder))
    return folder


def kernel(symbol: str, body: str, size: int = 256, block: int = 64, comment: str = "") -> Kernel:
    shape = array(F32, size)
    source = (
        f'{comment}extern "C" __global__ void {symbol}(const float* __restrict__ in0, float* __restrict__ out0) '
        f"{{\n{body}\n}}\n"
    )
    return of_text(symbol, source, Launch(size // block, block), [shape], [shape])


def of_value(symbol: str, template: str) -> Kernel:
    """A kernel of statements, so that it has both forms: `out0[i]` is the template of `in0[i]`."""
    i, shape = Name("i"), array(F32, 256)
    here = Let("int", i, code("{} * 64 + {}", BLOCK, THREAD))
    body = [here, Assign(cell(Name("out0"), i), code(template, cell(Name("in0"), i)))]
    return of_tree(symbol, body, Launch(4, 64), [shape], [shape])


HERE = "const int i = blockIdx.x * blockDim.x + threadIdx.x;"
DOUBLE = of_value("double_it", "{} * 2")


def run(made: Kernel, data: np.ndarray[Any, Any], form: host.KernelForm = "plain") -> np.ndarray[Any, Any]:
    out = np.full_like(data, -1)
    HostLibrary([made], form=form).launch(made, [data], [out])
    return out


@needs_compiler
def test_plain_loop(cache: Path) -> None:
    data = np.arange(256, dtype=np.float32)
    np.testing.assert_array_equal(run(DOUBLE, data, "lanes"), data * 2)
    assert len(list(cache.glob("*.so"))) == 1


@needs_compiler
def test_barriers(cache: Path) -> None:
    body = f"""{HERE}
__shared__ float box[64];
for (int round = 0; round < 3; ++round) {{
  box[threadIdx.x] = in0[i] + round;
  __syncthreads();
  out0[i] = box[63 - threadIdx.x];
  __syncthreads();
}}"""
    data = np.arange(256, dtype=np.float32)
    made = kernel("mirror", body)
    np.testing.assert_array_equal(run(made, data), data.reshape(4, 64)[:, ::-1].reshape(-1) + 2)


@needs_compiler
@pytest.mark.parametrize(
    ("call", "source"),
    [
        ("__shfl_down_sync(0xffffffffu, x, 3)", lambda lane: np.where(lane + 3 < 32, lane + 3, lane)),
        ("__shfl_up_sync(0xffffffffu, x, 5)", lambda lane: np.where(lane >= 5, lane - 5, lane)),
        ("__shfl_xor_sync(0xffffffffu, x, 9)", lambda lane: lane ^ 9),
        ("__shfl_sync(0xffffffffu, x, 7)", lambda lane: np.full_like(lane, 7)),
        ("__shfl_down_sync(0xffffffffu, x, 2, 8)", lambda lane: np.where(lane % 8 + 2 < 8, lane + 2, lane)),
    ],
)
def test_shuffles(cache: Path, call: str, source: Any) -> None:
    body = f"{HERE}\nfloat x = in0[i];\nfor (int k = 0; k < 5; ++k) {{ const float y = {call}; x = y; }}\nout0[i] = x;"
    data = np.random.default_rng(0).standard_normal(256).astype(np.float32)
    lane, want = np.arange(32), data.reshape(-1, 32)
    for _ in range(5):
        want = want[:, source(lane)]
    np.testing.assert_array_equal(run(kernel("shuffle", body), data), want.reshape(-1))


@needs_compiler
def test_votes_and_threads_that_leave_early(cache: Path) -> None:
    body = f"""{HERE}
const unsigned int voters = __ballot_sync(0xffffffffu, in0[i] > 0);
if (threadIdx.x >= 40) return;
__syncthreads();
out0[i] = (float)(voters & 0xffffu);"""
    data = np.where(np.arange(256) % 3 == 0, 1, -1).astype(np.float32)
    got = run(kernel("vote", body), data).reshape(4, 2, 32)
    bits = (data.reshape(4, 2, 32)[:, :, :16] > 0) @ (1 << np.arange(16))
    np.testing.assert_array_equal(got[:, 0, :], np.repeat(bits[:, :1], 32, 1))
    assert np.isnan(got[:, 1, 8:]).all()  # the plain form marks what nobody writes


@needs_compiler
def test_integers_wrap_and_products_are_rounded(cache: Path) -> None:
    body = f"{HERE}\nint big = 2147483647 - (int)in0[0]; out0[i] = big + 1 < big ? 0.0f : in0[1] * in0[1] - in0[2];"
    data = np.zeros(256, np.float32)
    data[1] = np.float32(1) + np.float32(2**-12)
    data[2] = data[1] * data[1]
    np.testing.assert_array_equal(run(kernel("wrap", body), data), np.zeros(256, np.float32))


@needs_compiler
def test_built_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    HostLibrary([DOUBLE, DOUBLE])
    monkeypatch.setattr(building, "_build", lambda *arguments: pytest.fail("built again"))
    HostLibrary([DOUBLE])


@needs_compiler
def test_damaged_library_is_built_again(cache: Path) -> None:
    data = np.arange(256, dtype=np.float32)
    cache.mkdir(mode=0o700)
    made = of_value("half_it", "{} * 0.5f")
    HostLibrary([of_value("third_it", "{} / 3")])
    path = building.built(host.units_of([made], "lanes"))
    path.unlink()
    path.write_bytes(b"not a library")
    np.testing.assert_array_equal(run(made, data, "lanes"), data * np.float32(0.5))


@needs_compiler
def test_a_unit_without_barriers_does_not_take_those_of_another(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(host, "_PER_UNIT", 1)
    place = "  const int i = blockIdx.x * 64 + threadIdx.x;\n"
    alone = kernel("alone", f"{place}  out0[i] = in0[i] + 1;\n", comment="// of the first unit: the longest\n" * 20)
    meeting = kernel("meeting", f"{place}  __syncthreads();\n  out0[i] = in0[i] + 2;\n")
    assert "HLO_FIBRES 1" not in host.units([alone, meeting], plain_unit)[0]
    library = HostLibrary([alone, meeting], form="plain")
    data = np.arange(256, dtype=np.float32)
    for made, more in ((alone, 1), (meeting, 2)):
        out = np.empty_like(data)
        library.launch(made, [data], [out])
        np.testing.assert_array_equal(out, data + np.float32(more))


@needs_compiler
def test_many_kernels_in_several_units(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    kernels = [of_value(f"plus_{n}", f"{{}} + {n}") for n in range(host._PER_UNIT + 1)]
    assert len(host.units(kernels, lanes_unit)) == 2
    library = HostLibrary(kernels)
    data = np.arange(256, dtype=np.float32)
    for n, made in enumerate(kernels):
        out = np.empty_like(data)
        library.launch(made, [data], [out])
        np.testing.assert_array_equal(out, data + np.float32(n))


def test_units_have_so_many_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few long kernels keep all processors busy, as many short ones do; a kernel is in one unit."""
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    first, second = of_value("first", "{} + 1"), of_value("second", "{} + 1")
    assert len(host.units([first, second], lanes_unit)) == 1
    monkeypatch.setattr(host, "_OF_UNIT", len(first.source))
    assert len(host.units([first, second], lanes_unit)) == 2
    monkeypatch.setattr(host, "_OF_UNIT", 1)
    assert len(host.units([first, second], lanes_unit)) == 2


@needs_compiler
def test_long_units_have_flags_that_the_compiler_knows() -> None:
    compiler = find_compiler()
    command = (*compiler, *building.processor(compiler).flags)
    assert not building.takes("--param=no-such-number=50")
    assert not building._for_text(command, "x" * building.LONG)
    flags = building._for_text(command, "x" * (building.LONG + 1))
    assert all(map(building.takes, flags))


@needs_compiler
def test_compile_failure_names_the_line(cache: Path) -> None:
    with pytest.raises(BackendError, match=r"unit0.cpp:\d+.*nonsense") as caught:
        HostLibrary([of_value("broken", "nonsense")])
    assert caught.value.code == "HLO511" and "nonsense" in (caught.value.hint or "")
    assert str(cache) not in str(caught.value)
    assert list(cache.iterdir()) == []


@needs_compiler
def test_a_helper_that_is_missing_is_named(cache: Path) -> None:
    with pytest.raises(BackendError, match="HLO511") as caught:
        HostLibrary([of_value("broken", "hlo_nothing({})")])
    assert caught.value.hint == "helpers of kernels are in hlo_opt/codegen/device; none is called hlo_nothing"


def test_missing_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -x")
    assert not has_compiler()
    with pytest.raises(BackendError, match="no-such-compiler") as caught:
        find_compiler()
    assert caught.value.code == "HLO510" and caught.value.hint is not None
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BackendError, match=r"g\+\+ or clang"):
        find_compiler()


def test_compiler_with_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", f"{sys.executable} -I")
    assert find_compiler() == (sys.executable, "-I")


@needs_compiler
def test_arrays_must_fit(cache: Path) -> None:
    library = HostLibrary([DOUBLE])
    data = np.zeros(256, np.float32)
    for inputs, outputs in (([data[:-1]], [data.copy()]), ([data], [np.zeros(512, np.float32)[::2]])):
        with pytest.raises(BackendError, match="1024 bytes"):
            library.launch(DOUBLE, inputs, outputs)
    frozen = data.copy()
    frozen.flags.writeable = False
    with pytest.raises(BackendError):
        library.launch(DOUBLE, [data], [frozen])


def test_cache_directory_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLO_OPT_CACHE", str(tmp_path / "a"))
    assert cache_directory() == tmp_path / "a"
    assert (tmp_path / "a").stat().st_mode & 0o077 == 0
    (tmp_path / "a").chmod(0o777)
    assert cache_directory() != tmp_path / "a"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HLO_OPT_CACHE", str(tmp_path / "file"))
    assert cache_directory().is_dir()
    monkeypatch.delenv("HLO_OPT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "hlo-opt"


def test_no_kernels() -> None:
    HostLibrary([])


def test_fibres_are_there_where_threads_meet() -> None:
    mirror = kernel("mirror", "__syncthreads();")
    assert "#define HLO_FIBRES" in plain_unit([DOUBLE, mirror]) and "#define HLO_FIBRES" not in plain_unit([DOUBLE])
    assert "#define HLO_FIBRES" not in plain_unit([kernel("quiet", "", comment="// __syncthreads() __shfl_sync(\n")])


@needs_compiler
def test_other_context_switch(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The portable switch gives what the one in assembly gives."""
    monkeypatch.setattr(building, "FLAGS", (*building.FLAGS, "-DHLO_UCONTEXT"))
    test_barriers(cache)
