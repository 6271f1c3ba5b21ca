from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compared_modules import output_report

import hlo_opt
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.diag import CheckError, EvaluationError, UsageError
from hlo_opt.evaluate import module_inputs as sample_inputs
from hlo_opt.evaluate.memory import peak_of
from hlo_opt.evaluate.program import compile_computation
from hlo_opt.report.runs import check_page
from hlo_opt.runtime.check.compare import CheckReport, check, compare_outputs
from hlo_opt.runtime.differences import OutputReport
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.numpy import Reference
from hlo_opt.runtime.schedule import lowering

DUMPS = Path(__file__).parents[2] / "testdata" / "dumps"


def dump(name: str) -> hlo_opt.ir.Module:  # type: ignore[name-defined]
    return hlo_opt.parse((DUMPS / f"{name}.hlo").read_text(), filename=name)


def break_kernels(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> list[str]:
    """Make every kernel that has the old text wrong; gives the symbols of those."""
    broken: list[str] = []
    emit = lowering.emit_kernel

    def wrong(plan: object) -> Kernel:
        kernel = emit(plan)  # type: ignore[arg-type]
        if old not in kernel.source:
            return kernel
        symbol = f"{kernel.symbol}_wrong"
        broken.append(symbol)
        return replace(kernel, symbol=symbol, source=kernel.source.replace(kernel.symbol, symbol).replace(old, new))

    monkeypatch.setattr(lowering, "emit_kernel", wrong)
    return broken


ADD = """HloModule m
ENTRY e {
  a = f32[3,5]{1,0} parameter(0)
  b = f32[3,5]{1,0} exponential(a)
  ROOT c = f32[3,5]{1,0} add(a, b)
}
"""


def test_equal_modules_agree_and_say_where() -> None:
    module = hlo_opt.parse(ADD.replace("exponential", "tanh"))
    result = check(module, module, backend="host")
    assert result.ok and result.first is None and result.backend == "host" and result.inputs == "seed 0"
    (report,) = result.outputs
    assert 0 < report.share < 1 and report.rounded and not result.weak and not result.rewritten
    assert str(result).startswith("agrees on host in both forms (asked for), 1 output, differences are ")
    assert f" % of the allowed rounding error: at most {report.max_error:.3g} in out0, " in str(result)


def test_equal_outputs_are_said_to_be_equal_and_what_rounds_otherwise_is_counted() -> None:
    module = hlo_opt.parse(ADD)
    result = check(module, module, backend="numpy")
    assert str(result) == "agrees on numpy (asked for), 1 output, equal"
    one = replace(result.outputs[0], rounded=1, max_error=2e-7, max_ulp=1.0, share=0.17)
    assert str(replace(result, outputs=(one,))) == (
        "agrees on numpy (asked for), 1 output, differences are 17 % of the allowed rounding error: at most 2e-07 in "
        "out0, "
        "1 element rounded the other way"
    )
    near = replace(one, rounded=9, max_ulp=9.0, share=0.001, weak="all elements are NaN")
    assert str(replace(result, outputs=(near,))).endswith(
        "differences are less than 1 % of the allowed rounding error: at most 2e-07 in out0, 9 elements differ, weak in "
        "1 of them"
    )


def test_outputs_of_both_modules_count_against_the_limit() -> None:
    module = hlo_opt.parse(ADD)
    array, given = 4 * 3 * 5, [np.zeros((3, 5), np.float32)]
    # the original's own run, and beside it what both modules gave
    least = array + peak_of(module.entry, compile_computation).bytes + 2 * array
    assert check(module, module, given, backend="numpy", memory_limit=least).ok
    with pytest.raises(EvaluationError) as caught:
        check(module, module, given, backend="numpy", memory_limit=least - 1)
    assert caught.value.code == "HLO402"


def test_the_analysis_counts_against_the_limit_where_it_is_needed() -> None:
    module, other = hlo_opt.parse(ADD), hlo_opt.parse(ADD.replace("exponential", "sine"))
    peak = peak_of(module.entry, compile_computation).bytes
    with pytest.raises(EvaluationError) as caught:
        check(module, other, backend="numpy", memory_limit=5 * peak)
    assert caught.value.code == "HLO402"
    assert not check(module, other, backend="numpy", memory_limit=20 * peak).ok


NARROW = """HloModule m
ENTRY e {
  a = bf16[64]{0} parameter(0)
  b = bf16[64]{0} multiply(a, a)
  c = bf16[64]{0} multiply(b, a)
  ROOT d = bf16[64]{0} add(c, a)
}
"""


def test_a_module_that_leaves_roundings_out_agrees_and_the_report_says_that_it_computes_otherwise() -> None:
    wide = """HloModule m
ENTRY e {
  a = bf16[64]{0} parameter(0)
  w = f32[64]{0} convert(a)
  b = f32[64]{0} multiply(w, w)
  c = f32[64]{0} multiply(b, w)
  d = f32[64]{0} add(c, w)
  ROOT n = bf16[64]{0} convert(d)
}
"""
    result = check(hlo_opt.parse(NARROW), hlo_opt.parse(wide), backend="numpy")
    assert result.ok and result.rewritten and result.outputs[0].rounded
    wrong = wide.replace("add(c, w)", "subtract(c, w)")
    assert not check(hlo_opt.parse(NARROW), hlo_opt.parse(wrong), backend="numpy").ok


def test_outputs_whose_agreement_says_little_are_weak_with_the_reason() -> None:
    text = """HloModule m
ENTRY e {
  a = f32[64]{0} parameter(0)
  b = f32[64]{0} exponential(a)
  big = f32[] constant(1e7)
  c = f32[64]{0} broadcast(big), dimensions={}
  d = f32[64]{0} multiply(b, c)
  s = f32[64]{0} sine(d)
  z = f32[64]{0} subtract(a, a)
  k = f32[3]{0} constant({1, 2, 3})
  l = f32[64]{0} sqrt(c)
  n = f32[64]{0} negate(l)
  q = f32[64]{0} sqrt(n)
  r = f32[64]{0} add(q, a)
  ROOT t = (f32[64]{0}, f32[64]{0}, f32[3]{0}, f32[64]{0}, f32[64]{0}) tuple(s, z, k, r, b)
}
"""
    module = hlo_opt.parse(text, filename="m.hlo")
    reports = check(module, module, backend="numpy").outputs
    assert [r.weak for r in reports] == [
        None,
        "all elements are 0.0",
        "it does not depend on the inputs",
        "all elements are NaN",
        None,
    ]
    inputs = sample_inputs(module, 0)
    expected = Reference(module).run(inputs)
    actual = [expected[0], *expected[1:4], np.nextafter(expected[4], np.float32(np.inf))]
    (reports,), _ = compare_outputs(module, module, [inputs], [expected], [actual], 0)
    assert all(r.ok for r in reports)
    assert reports[0].weak is not None and "sine s (line 8)" in reports[0].weak
    assert reports[0].loose > 0.5 and reports[4].weak is None


def test_a_wrong_kernel_is_caught_and_its_first_element_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = break_kernels(monkeypatch, "= x0 + x1;", "= x0 + x1 + (linear == 7 ? 1e-3f : 0.0f);")
    module = hlo_opt.parse(ADD)
    result = check(module, module, backend="host")
    assert broken and not result.ok and result.first is not None
    assert result.first.index == (1, 2) and result.first.ulp > result.first.bound
    assert str(result).startswith("differs on host in the plain form only (asked for): out0[1, 2]: expected ")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("softmax", "expf(", "1.0001f * (float)(threadIdx.x % 2 + 1) * expf("),
        ("layer_norm", "sqrtf(", "1.0001f * sqrtf("),
        ("adam_one", "sqrtf(", "1.01f * sqrtf("),
    ],
)
def test_wrong_kernels_of_real_dumps_are_caught(name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = break_kernels(monkeypatch, old, new)
    module = dump(name)
    result = check(module, module, backend="host")
    assert broken and not result.ok, str(result)


def test_another_program_differs() -> None:
    result = check(hlo_opt.parse(ADD), hlo_opt.parse(ADD.replace("exponential", "sine")), backend="numpy")
    assert not result.ok and result.first is not None and result.first.index == (0, 0)


def test_another_number_of_outputs_is_an_error() -> None:
    other = hlo_opt.parse(
        ADD.replace("ROOT c", "c").replace("\n}", "\n  ROOT t = (f32[3,5]{1,0}, f32[3,5]{1,0}) tuple(b, c)\n}")
    )
    with pytest.raises(hlo_opt.HloOptError, match="HLO701"):
        check(hlo_opt.parse(ADD), other, backend="numpy")


def test_given_inputs_are_used() -> None:
    module = hlo_opt.parse(ADD)
    result = check(module, module, inputs=[np.full((3, 5), 200.0, np.float32)], backend="host")
    assert result.ok and result.inputs == "given"
    with pytest.raises(hlo_opt.EvaluationError):
        check(module, module, inputs=[np.zeros(3, np.float32)], backend="host")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (["s32[4]{0}", "f32[4]{0}"], "input 0 is f32\\[4\\] for a in a.hlo, but s32\\[4\\] for b in b.hlo"),
        (["f32[4]{0}"], "a in a.hlo takes 2 arrays, b in b.hlo 1"),
    ],
)
def test_modules_that_take_other_arrays_are_not_run(parameters: list[str], message: str) -> None:
    def taking(name: str, shapes: list[str]) -> hlo_opt.ir.Module:  # type: ignore[name-defined]
        lines = [f"  p{n} = {shape} parameter({n})" for n, shape in enumerate(shapes)]
        text = "\n".join([f"HloModule {name}", "ENTRY e {", *lines, "  ROOT r = f32[] constant(1)", "}"])
        return hlo_opt.parse(text, filename=f"{name}.hlo")

    with pytest.raises(UsageError, match=f"HLO702 {message}"):
        check(taking("a", ["f32[4]{0}", "f32[4]{0}"]), taking("b", parameters), backend="numpy")


def test_drawn_inputs_show_an_epsilon_ten_times_too_large() -> None:
    text = (DUMPS / "layer_norm.hlo").read_text()
    other = hlo_opt.parse(text.replace("constant(1e-05)", "constant(1e-04)"))
    assert str(other) != str(hlo_opt.parse(text))
    result = check(hlo_opt.parse(text), other, backend="numpy")
    assert not result.ok


def test_drawn_inputs_show_a_sum_of_bytes_that_does_not_wrap_around() -> None:
    parameters = "  x = s8[37] parameter(0)\n  y = s8[37] parameter(1)\n"
    right = f"{parameters}  s = s8[37] add(x, y)\n  ROOT r = s32[37] convert(s)"
    wrong = f"{parameters}  a = s32[37] convert(x)\n  b = s32[37] convert(y)\n  ROOT r = s32[37] add(a, b)"
    modules = [hlo_opt.parse(f"HloModule m\nENTRY e {{\n{body}\n}}\n") for body in (right, wrong)]
    assert not check(*modules, backend="numpy").ok


def test_all_branches_are_checked_and_what_is_not_reached_is_told() -> None:
    text = (DUMPS / "choose.hlo").read_text()
    assert check(hlo_opt.parse(text), hlo_opt.parse(text), backend="numpy").draws >= 4
    wrong = hlo_opt.parse(text.replace("negate(square.1)", "abs(square.1)"))  # in the third of four branches
    assert not check(hlo_opt.parse(text), wrong, backend="numpy").ok
    text = (DUMPS / "quantize.hlo").read_text()
    result = check(hlo_opt.parse(text), hlo_opt.parse(text), backend="numpy")
    assert result.ok and "max.3 (line 22) never takes its first choice" in map(str, result.unreached)
    assert "not reached, never takes its first choice: max.3 (line 22), min.3 (line 23)\n" in str(check_page(result))


def test_several_sets_of_inputs_are_drawn_where_memory_allows() -> None:
    module = dump("choose")
    assert check(module, module, backend="numpy", memory_limit=1 << 30).draws >= 4
    tight = 8 * peak_of(module.entry, compile_computation).bytes + 4096
    assert check(module, module, backend="numpy", memory_limit=tight).draws == 1


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize("name", ["complex_ends", "complex_pairs"])
def test_functions_of_complex_numbers_of_all_sizes_agree(name: str) -> None:
    module = hlo_opt.parse((DUMPS.parent / "kernels" / f"{name}.hlo").read_text())
    for seed in range(2):
        result = check(module, module, backend="host", seed=seed)
        assert result.ok, result
        assert all(o.set_aside < o.elements for o in result.outputs)


def report(*outputs: OutputReport, **changes: object) -> CheckReport:
    made: dict[str, object] = {
        "ok": True,
        "backend": "host",
        "why": "no GPU",
        "inputs": "seed 0",
        "outputs": outputs,
        "first": None,
        "report": {},
    }
    return CheckReport(**made | changes)  # type: ignore[arg-type]


def test_what_a_report_says() -> None:
    assert str(report(output_report())) == "agrees on host (no GPU), 1 output, equal"
    assert (
        str(report(output_report(), output_report(1), devices=(2, 2)))
        == "agrees on host (no GPU), 2 outputs on 4 devices, equal"
    )
    near = output_report(1, rounded=1, share=0.004, max_error=0.5, max_ulp=1.0)
    far = output_report(2, rounded=2, share=0.25, max_error=0.125, max_ulp=3.0, weak="wide")
    assert (
        str(report(near))
        == "agrees on host (no GPU), 1 output, differences are less than 1 % of the allowed rounding error: at most 0.5 "
        "in out1, 1 element rounded the other way"
    )
    both = report(output_report(), near, far)
    assert str(both) == (
        "agrees on host (no GPU), 3 outputs, differences are 25 % of the allowed rounding error: at most 0.5 in out1, 3 "
        "elements differ, weak in 1 of them"
    )
    assert (both.max_ulp, both.weak) == (3.0, (far,))
    assert (report().max_ulp, report().weak) == (0.0, ())
    assert str(report(output_report(differing=1), ok=False)) == "differs on host (no GPU)"
    assert str(report(output_report(share=0.01, rounded=1, max_ulp=2.0))).endswith(
        "differences are 1 % of the allowed rounding error: at most 0 in out0, 1 element differs"
    )


@pytest.mark.parametrize("backend", ["numpy", "host"])
def test_a_loop_that_does_not_end_differs(backend: str) -> None:
    text = """HloModule m
c { p = s32[] parameter(0)  k = s32[] constant(5)  ROOT l = pred[] compare(p, k), direction=LT }
b { p = s32[] parameter(0)  k = s32[] constant(1)  ROOT n = s32[] add(p, k) }
ENTRY e { z = s32[] parameter(0)  ROOT w = s32[] while(z), condition=c, body=b }
"""
    original, other = (hlo_opt.parse(t) for t in (text, text.replace("add(p, k)", "minimum(p, k)")))
    with pytest.raises(CheckError, match=r"loops of m go on after \d+ iterations; those of m end after \d+"):
        check(original, other, backend=backend)
