from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hlo_opt
from hlo_opt.diag import BackendError
from hlo_opt.evaluate import module_inputs
from hlo_opt.runtime.check.compare import check

DUMPS = Path(__file__).parents[2] / "testdata" / "dumps"
REPRESENTATIVE = [
    "adam_one",  # elementwise
    "attention_bf16",  # dot, softmax, bf16
    "cartpole_scan",  # a loop with slices and updates in place
    "choose",  # four branches with tuples
    "embed_gradient",  # scatter
    "layer_norm",  # row reductions
    "mlp_train_step",  # dots and column reductions
    "cartpole_generator_philox",  # random bits: a launch for the bits, one for the new state
    "nested",  # loops, calls and branches inside each other
    "rotate_phase",  # complex numbers
    "shuffle",  # a transpose whose layout changes at a call
]


@pytest.mark.parametrize("name", REPRESENTATIVE)
@pytest.mark.sweep
def test_real_dumps_agree_on_host(name: str) -> None:
    module = hlo_opt.parse((DUMPS / f"{name}.hlo").read_text(), filename=name)
    result = check(module, module, backend="host")
    assert result.ok, str(result)
    assert result.report["fallbacks"] == {} and result.report["launches"] > 0


def test_numpy_is_the_interpreter() -> None:
    module = hlo_opt.parse((DUMPS / "softmax.hlo").read_text())
    inputs = module_inputs(module, 3)
    executable = hlo_opt.compile(module, backend="numpy")
    assert executable.backend == "numpy"
    for got, want in zip(executable(*inputs), hlo_opt.evaluate(module, inputs), strict=True):
        assert np.array_equal(got, want)
    assert executable.report()["launches"] == 0 and executable.report()["kernels"] == []


BF16 = """HloModule m
ENTRY e {
  a = bf16[4]{0} parameter(0)
  b = (s32[2]{0}, bf16[4]{0}) parameter(1)
  c = bf16[4]{0} get-tuple-element(b), index=1
  i = s32[2]{0} get-tuple-element(b), index=0
  d = bf16[4]{0} multiply(a, c)
  ROOT r = (bf16[4]{0}, (s32[2]{0})) tuple(d, t)
}
""".replace("  ROOT", "  t = (s32[2]{0}) tuple(i)\n  ROOT")


@pytest.mark.parametrize("backend", ["host", "numpy"])
def test_tuples_are_flat_and_narrow_floats_may_be_raw_bits(backend: str) -> None:
    executable = hlo_opt.compile(hlo_opt.parse(BF16), backend=backend)
    a = np.array([1.5, 2, -3, 0], ml_dtypes.bfloat16)
    i = np.array([7, 8], np.int32)
    for given in (a, a.view(np.uint16)):
        d, j = executable(given, i, given)
        assert d.dtype == ml_dtypes.bfloat16 and np.array_equal(d, a * a)
        assert np.array_equal(j, i)
    with pytest.raises(hlo_opt.EvaluationError, match="takes 3 inputs, but 1 are given"):
        executable(a)


def test_results_do_not_share_memory_with_inputs() -> None:
    module = hlo_opt.parse("HloModule m\n\nENTRY e {\n  ROOT p = f32[3]{0} parameter(0)\n}\n")
    x = np.arange(3, dtype=np.float32)
    (y,) = hlo_opt.compile(module, "host")(x)
    y[0] = 100
    assert x[0] == 0


def test_launches_are_counted_per_call_and_constants_survive() -> None:
    module = hlo_opt.parse((DUMPS / "newton_sqrt.hlo").read_text())
    executable = hlo_opt.compile(module, "host")
    assert executable.report()["launches"] == 0
    inputs = module_inputs(module, 1)
    first = executable(*inputs)
    launches = executable.report()["launches"]
    second = executable(*inputs)
    assert executable.report()["launches"] == launches > len(executable.report()["kernels"])
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))


EIGHT_BITS = """HloModule m
ENTRY e {
  a = f8e5m2[4]{0} parameter(0)
  ROOT r = f8e5m2[4]{0} multiply(a, a)
}
"""


REVERSED = """HloModule m
ENTRY e {
  a = s32[<=4]{0} parameter(0)
  ROOT r = s32[<=4]{0} reverse(a), dimensions={0}
}
"""


def test_what_has_no_kernel_is_reported() -> None:
    report = hlo_opt.compile(hlo_opt.parse(REVERSED), "host").report()
    assert report["fallbacks"] == {"reverse": 1}


def test_types_that_numpy_lacks_may_come_as_raw_bits() -> None:
    module = hlo_opt.parse(EIGHT_BITS)
    executable = hlo_opt.compile(module, "host")
    a = np.array([1, 3, -2, 0.5], ml_dtypes.float8_e5m2)
    assert np.array_equal(executable(a)[0], a * a) and np.array_equal(executable(a.view(np.uint8))[0], a * a)
    assert not executable.report()["fallbacks"]


def test_an_unknown_backend_names_those_there_are() -> None:
    module = hlo_opt.parse((DUMPS / "softmax.hlo").read_text())
    with pytest.raises(hlo_opt.UsageError, match="auto, cupy, host, numpy") as caught:
        hlo_opt.compile(module, backend="hots")
    assert caught.value.hint == "did you mean host?"


def test_auto_says_what_it_took_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    from hlo_opt.runtime.executable import choose_backend

    monkeypatch.setattr("hlo_opt.runtime.cupy.device.has_gpu", lambda: False)
    assert choose_backend("auto") == ("host", "there is no GPU, but a C++ compiler")
    monkeypatch.setenv("CXX", "/no/such/compiler")
    assert choose_backend("auto") == ("numpy", "there is neither a GPU nor a C++ compiler")
    monkeypatch.setattr("hlo_opt.runtime.cupy.device.has_gpu", lambda: True)
    assert choose_backend("auto")[0] == "cupy"


def test_no_compiler_is_one_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "/no/such/compiler")
    monkeypatch.setenv("HLO_OPT_CACHE", str(tmp_path))
    module = hlo_opt.parse((DUMPS / "softmax.hlo").read_text())
    with pytest.raises(BackendError, match="HLO510"):
        hlo_opt.compile(module, backend="host")


def test_deep_control_flow_does_not_recurse() -> None:
    depth = 600
    parts = ["HloModule deep", "c0 {\n  x = f32[2]{0} parameter(0)\n  ROOT y = f32[2]{0} add(x, x)\n}"]
    for n in range(1, depth):
        parts.append(
            f"c{n} {{\n  x{n} = f32[2]{{0}} parameter(0)\n  ROOT y{n} = f32[2]{{0}} call(x{n}), to_apply=c{n - 1}\n}}"
        )
    parts.append(
        f"ENTRY e {{\n  x = f32[2]{{0}} parameter(0)\n  ROOT y = f32[2]{{0}} call(x), to_apply=c{depth - 1}\n}}"
    )
    module = hlo_opt.parse("\n\n".join(parts))
    assert hlo_opt.compile(module, "host")(np.ones(2, np.float32))[0].tolist() == [2, 2]
    with pytest.raises(BackendError, match="HLO531"):
        hlo_opt.emit(module, "unused-because-it-fails")
    assert not Path("unused-because-it-fails").exists()


OPEN = "HloModule m\n\nENTRY e {\n  p = f32[?,2] parameter(0)\n  ROOT n = f32[?,2] negate(p)\n}\n"


def test_open_sizes_run_in_numpy_only() -> None:
    module = hlo_opt.parse(OPEN)
    given = np.ones((3, 2), np.float32)
    with pytest.raises(BackendError, match=r"f32\[\?,2\]") as caught:
        hlo_opt.compile(module, "host")
    assert caught.value.code == "HLO514" and caught.value.line == 4
    executable = hlo_opt.compile(module, "auto")
    assert executable.backend == "numpy" and "open" in executable.why
    assert executable(given)[0].tolist() == (-given).tolist()
