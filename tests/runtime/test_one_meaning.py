"""One module through the Python API, the command line, the emitted driver and every backend, all with their defaults:
the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlo_opt
from hlo_opt.cli.group import run
from hlo_opt.runtime.host.library import has_compiler

TEXT = """HloModule m

add {
  a = TYPE[] parameter(0)
  b = TYPE[] parameter(1)
  ROOT r = TYPE[] add(a, b)
}

total {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = s32[] add(a, b)
}

first {
  a = s8[] parameter(0)
  b = s8[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}

ENTRY e {
  p = TYPE[3,3000]{1,0} parameter(0)
  k = s8[50]{0} parameter(1)
  n = s32[3,200]{1,0} parameter(2)
  z = TYPE[] constant(0)
  sums = TYPE[3]{0} reduce(p, z), dimensions={1}, to_apply=add
  running = TYPE[3,3000]{1,0} reduce-window(p, z), window={size=1x3000 pad=0_0x2999_0}, to_apply=add
  product = TYPE[3,3]{1,0} dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  three = s32[] constant(3)
  counts = s32[3]{0} reduce(n, three), dimensions={1}, to_apply=total
  i = s32[50]{0} iota(), iota_dimension=0
  sorted = (s8[50]{0}, s32[50]{0}) sort(k, i), dimensions={0}, to_apply=first
  order = s32[50]{0} get-tuple-element(sorted), index=1
  same = s32[3]{0} broadcast(three), dimensions={}
  shared = s32[3]{0} all-reduce(same), replica_groups={}, to_apply=total
  half = TYPE[3]{0} negate(sums)
  wide = f32[3]{0} convert(half)
  ROOT t = (TYPE[3]{0}, TYPE[3,3000]{1,0}, TYPE[3,3]{1,0}, s32[3]{0}, s32[50]{0}, s32[3]{0}, f32[3]{0}) tuple(sums, running, product, counts, order, shared, wide)
}
"""


def inputs(element_type: str) -> list[np.ndarray[Any, Any]]:
    generator = np.random.default_rng(1)
    return [
        np.ones((3, 3000), {"bf16": ml_dtypes.bfloat16, "f16": np.float16}[element_type]),
        generator.integers(0, 4, 50).astype(np.int8),
        generator.integers(0, 9, (3, 200)).astype(np.int32),
    ]


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("element_type", ["bf16", "f16"])
def test_all_ways_give_the_same_bits(element_type: str, fused: bool, tmp_path: Path, fake: Any) -> None:
    module = hlo_opt.parse(TEXT.replace("TYPE", element_type))
    given = inputs(element_type)
    wanted = hlo_opt.evaluate(module, given)
    narrow = given[0].dtype
    assert wanted[0].tolist() == [float(np.float32(3000).astype(narrow))] * 3
    assert wanted[3].tolist() == (given[2].sum(axis=1) + 3).tolist() and wanted[5].tolist() == [3, 3, 3]
    np.testing.assert_array_equal(wanted[4], np.argsort(given[1], kind="stable"))
    np.testing.assert_array_equal(wanted[6], -wanted[0].astype(np.float32))
    if fused:
        module = hlo_opt.fuse(module)[0]
    found = {"numpy": hlo_opt.compile(module, "numpy")(*given), "host": hlo_opt.compile(module, "host")(*given)}
    found["devices"] = hlo_opt.evaluate_devices(module, [given])[0]
    found["cupy"] = hlo_opt.compile(module, "cupy")(*given)
    hlo_opt.emit(module, tmp_path / "out")
    space: dict[str, Any] = {"__name__": "driver", "__file__": str(tmp_path / "out" / "driver.py")}
    exec((tmp_path / "out" / "driver.py").read_text(), space)
    raw = [a.view(np.uint16) if a.dtype == ml_dtypes.bfloat16 else a for a in given]
    found["driver"] = space["run"](*raw)
    (tmp_path / "m.hlo").write_text(str(module))
    np.savez(tmp_path / "in.npz", **{f"in{n}": a for n, a in enumerate(raw)})  # type: ignore[arg-type]
    for backend in ("numpy", "host"):
        out = tmp_path / f"{backend}.npz"
        words = ["run", str(tmp_path / "m.hlo"), "--backend", backend, "--inputs", str(tmp_path / "in.npz")]
        assert run([*words, "--outputs", str(out)]) == 0
        with np.load(out) as stored:
            found[f"command line, {backend}"] = [stored[f"out{n}"] for n in range(len(wanted))]
    for way, outputs in found.items():
        for number, (got, want) in enumerate(zip(outputs, wanted, strict=True)):
            assert np.asarray(got).tobytes() == want.tobytes(), (way, number)
