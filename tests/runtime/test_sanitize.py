"""Kernels under the sanitizers: clean ones give their outputs, broken ones name the instruction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hlo_opt
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.diag import CheckError, UsageError
from hlo_opt.plans.plan import Plan
from hlo_opt.runtime.executable import compile
from hlo_opt.runtime.host import sanitize
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.schedule import lowering

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

TEXT = """HloModule m

add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }

ENTRY e {
  x = f32[8,100] parameter(0)
  zero = f32[] constant(0)
  sums = f32[8] reduce(x, zero), dimensions={1}, to_apply=add
  ROOT twice = f32[8] add(sums, sums)
}
"""


def broken(monkeypatch: pytest.MonkeyPatch, kind: str, old: str, new: str) -> None:
    """Kernels of a kind get another text under the same symbol."""
    emit = lowering.emit_kernel

    def emitted(plan: Plan) -> Kernel:
        made = emit(plan)
        if made.kind != kind:
            return made
        assert old in made.source
        return replace(made, source=made.source.replace(old, new))

    monkeypatch.setattr(lowering, "emit_kernel", emitted)


def test_clean_kernels() -> None:
    data = np.arange(800, dtype=np.float32).reshape(8, 100)
    executable = compile(hlo_opt.parse(TEXT), sanitize=True)
    np.testing.assert_array_equal(executable(data)[0], data.sum(1) * 2)
    assert executable.report()["launches"] == 2


def test_complex_numbers_in_memory_that_threads_share() -> None:
    text = (
        TEXT.replace("f32", "c64")
        .replace("x = c64[8,100]", "x = c64[100,8]")
        .replace("{1}", "{0}")
        .replace("constant(0)", "constant((0, 0))")
    )
    data = np.arange(800).reshape(100, 8).astype(np.complex64) * np.complex64(1 - 1j)
    executable = compile(hlo_opt.parse(text), sanitize=True)
    np.testing.assert_array_equal(executable(data)[0], data.sum(0) * 2)


def test_a_store_behind_the_end_names_its_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, "loop", "out0[linear] =", "out0[linear + 8] =")
    executable = compile(hlo_opt.parse(TEXT, filename="m.hlo"), sanitize=True)
    with pytest.raises(CheckError, match=r"the kernel of e/twice: heap-buffer-overflow, write of 4 bytes") as caught:
        executable(np.zeros((8, 100), np.float32))
    assert caught.value.code == "HLO721" and caught.value.line == 11


def test_undefined_behaviour_names_its_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, "row-reduction", "out0[row] =", "int zero = 0; int none = 1 / zero; out0[row] = none +")
    executable = compile(hlo_opt.parse(TEXT, filename="m.hlo"), sanitize=True)
    with pytest.raises(CheckError, match=r"the kernel of e/sums: division by zero") as caught:
        executable(np.zeros((8, 100), np.float32))
    assert caught.value.line == 10


LONG_ROWS = """HloModule m

add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }

ENTRY e {
  x = f32[3,4096] parameter(0)
  zero = f32[] constant(0)
  ROOT sums = f32[3] reduce(x, zero), dimensions={1}, to_apply=add
}
"""

ONE_SHORT_ROW = LONG_ROWS.replace("3,4096", "1,4").replace("f32[3]", "f32[1]")

SHARED_ROW = LONG_ROWS.replace("3,4096", "1,300000").replace("f32[3]", "f32[1]")

SORTED = """HloModule m

before { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT }

ENTRY e {
  x = s32[8,40] parameter(0)
  ROOT sorted = s32[8,40] sort(x), dimensions={1}, to_apply=before
}
"""

LAST_WINS = """HloModule m

last { a = s32[] parameter(0)
  ROOT b = s32[] parameter(1) }

ENTRY e {
  x = s32[5] parameter(0)
  i = s32[64,1] parameter(1)
  u = s32[64] parameter(2)
  ROOT set = s32[5] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=last
}
"""

PACKED = """HloModule m

ENTRY e {
  x = s4[3,11] parameter(0)
  t = s4[11,3] transpose(x), dimensions={1,0}
  ROOT twice = s4[11,3] add(t, t)
}
"""

SCATTERED = """HloModule m

add { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT s = s32[] add(a, b) }

ENTRY e {
  x = s32[5] parameter(0)
  i = s32[64,1] parameter(1)
  u = s32[64] parameter(2)
  ROOT sums = s32[5] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
}
"""


UPDATED = """HloModule m

most { a = s4[] parameter(0)
  b = s4[] parameter(1)
  ROOT m = s4[] maximum(a, b) }

ENTRY e {
  x = s4[7] parameter(0)
  i = s32[64,1] parameter(1)
  u = s4[64] parameter(2)
  n = s4[7] negate(x)
  ROOT r = s4[7] scatter(n, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=most
}
"""


UNIQUE = """HloModule m

most { a = u2[] parameter(0)
  b = u2[] parameter(1)
  ROOT m = u2[] add(a, b) }

ENTRY e {
  x = u2[33] parameter(0)
  i = s32[33,1] iota(), iota_dimension=0
  u = u2[33] parameter(1)
  ROOT r = u2[33] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, unique_indices=true, to_apply=most
}
"""


def _given(text: str) -> list[np.ndarray]:  # type: ignore[type-arg]
    module = hlo_opt.parse(text)
    random = np.random.default_rng(0)
    shapes = [p.shape for p in module.entry.parameters]
    return [random.integers(0, 5, s.dimensions).astype(s.type.dtype) for s in shapes]


@pytest.mark.parametrize(
    ("text", "kind", "old", "new", "found"),
    [
        (LONG_ROWS, "row-reduction", "__syncthreads();", "", r"shared memory\[\d+\] is read before it is written"),
        (LONG_ROWS, "row-reduction", "__syncthreads();", "__syncthreads(); if (threadIdx.x < 16) "
                                                         "__syncthreads();", "wait at different places"),
        (SORTED, "sort", "__syncwarp();", "", r"(?:read and write|write and read|two writes) of shared memory\[\d+\] "
                                              r"by threads \d+ and \d+ of a block, with no barrier"),
        (SCATTERED, "scatter", "&out0[", "&out0[(out0[0] == -7) + ",
            r"atomic update and read of out0\[0\]|read and atomic update of out0\[0\]"),
        (SHARED_ROW, "row-reduction", "hlo_fence();", ";",
            r"a part of a result is not fenced when its block is counted"),
        (SHARED_ROW, "row-reduction", "__syncthreads();\n  if (threadIdx.x == 0) {\n    seen0",
            "if (threadIdx.x == 32) {\n    seen0",
            r"a part of a result (?:has no barrier|is read by another block|is read before)"),
        (TEXT, "loop", "out0[linear] =", "out0[linear / 2] =", r"two writes of out0\[\d\]"),
        (UPDATED, "loop", "hlo_put<4>(out0, linear,", "hlo_put<4>(out0, linear / 2,", r"two writes of out0\[\d\]"),
    ],
)  # fmt: skip
@pytest.mark.sweep
def test_a_race_names_its_instruction(
    text: str, kind: str, old: str, new: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, kind, old, new)
    monkeypatch.setattr(sanitize, "FLAGS", ("-O0",))  # only the watch over races counts here
    with pytest.raises(CheckError, match=rf"the kernel of e/\w+: .*(?:{found})") as caught:
        compile(hlo_opt.parse(text), sanitize=True)(*_given(text))
    assert caught.value.code == "HLO721"


@pytest.mark.parametrize(
    "text",
    [
        ONE_SHORT_ROW,
        SHARED_ROW,
        SORTED,
        PACKED,
        UPDATED,
        UNIQUE,
        LAST_WINS,
        LAST_WINS.replace("index_vector_dim=1,", "index_vector_dim=1, unique_indices=true,"),
    ],
)
@pytest.mark.sweep
def test_no_race_is_told_of_where_threads_meet(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitize, "FLAGS", ("-O0",))
    assert len(compile(hlo_opt.parse(text), sanitize=True)(*_given(text))) == 1


def test_a_result_that_depends_on_the_order_of_threads_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, "loop", "out0[linear] =", "static int order = 0; out0[linear] = (float)++order +")
    with pytest.raises(CheckError, match="out0 depends on the order of threads"):
        compile(hlo_opt.parse(TEXT), sanitize=True)(np.zeros((8, 100), np.float32))


def test_only_the_host_has_sanitizers() -> None:
    with pytest.raises(UsageError, match="not numpy") as caught:
        compile(hlo_opt.parse(TEXT), "numpy", sanitize=True)
    assert caught.value.code == "HLO322"


def test_command(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from hlo_opt.cli.running import check_command

    (tmp_path / "m.hlo").write_text(TEXT)
    result = CliRunner().invoke(check_command, [str(tmp_path / "m.hlo"), "--sanitize"], standalone_mode=False)
    assert result.exception is None and result.return_value == 0
    assert "host" in result.output
