"""Products by cuBLASLt, beside the evaluator: what it gets is computed by its definition (`fake_cublaslt`)."""

import gc
import types
import weakref
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate import evaluate, module_inputs
from hlo_opt.ops.calls.collectives import device_call
from hlo_opt.ops.calls.strided import StridedProduct, product_of
from hlo_opt.runtime.cupy import products
from hlo_opt.runtime.cupy.addressed import AddressedMemory
from hlo_opt.runtime.cupy.cublaslt import LtError
from hlo_opt.runtime.cupy.products import Cublas, CublasError
from hlo_opt.runtime.executable import Executable


def check(text: str, rounds: int = 1) -> Executable:
    module = hlo_opt.parse(text)
    inputs = module_inputs(module, 0)
    executable = hlo_opt.compile(module, "cupy")
    wanted = evaluate(module, inputs)
    for _ in range(rounds):
        for got, want in zip(executable(*inputs), wanted, strict=True):
            few = 2e-2 if want.dtype.itemsize < 4 else 1e-5
            np.testing.assert_allclose(got.astype("f4"), want.astype("f4"), rtol=few, atol=few)
    return executable


def dot(left: str, right: str, result: str, how: str = "lhs_contracting_dims={1}, rhs_contracting_dims={0}") -> str:
    return f"HloModule m\nENTRY e {{\n  a = {left} parameter(0)\n  b = {right} parameter(1)\n" + (
        f"  ROOT c = {result} dot(a, b), {how}\n}}\n"
    )


CASES = {
    "rows": dot("f32[6,4]{1,0}", "f32[4,5]{1,0}", "f32[6,5]{1,0}"),
    "both turned": dot("f32[6,4]{0,1}", "f32[4,5]{0,1}", "f32[6,5]{1,0}"),
    "a result by columns": dot("f16[6,4]{1,0}", "f16[4,5]{0,1}", "f16[6,5]{0,1}"),
    "narrow to wide": dot("bf16[6,4]{1,0}", "bf16[4,5]{1,0}", "f32[6,5]{1,0}"),
    "a batch": dot(
        "f32[3,6,4]{2,1,0}", "f32[3,4,5]{2,1,0}", "f32[3,6,5]{2,1,0}",
        "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
    ),
    "a batch of one operand": dot("f32[2,3,40]{2,1,0}", "f32[3,33]{1,0}", "f32[2,40,33]{2,1,0}"),
}  # fmt: skip


def rows() -> StridedProduct:
    """The product of the case of rows."""
    call = device_call(hlo_opt.parse(CASES["rows"]).entry.root)
    product = None if call is None else product_of(call)
    assert product is not None
    return product


@pytest.mark.parametrize("name", CASES)
def test_the_fastest_algorithm_multiplies(name: str, lt: types.ModuleType) -> None:
    executable = check(CASES[name])
    assert lt.cublaslt.ran == [(1, 1), (2, 1), (2, 1)] and len(lt.gemms) == 1  # each once, then the fastest
    assert executable.report()["notes"] == {"dot": "cublasLtMatmul"}
    check(CASES[name])
    assert len(lt.cublaslt.ran) == 4  # the process knows which one


def test_a_product_is_a_node_of_a_graph(lt: types.ModuleType) -> None:
    text = CASES["rows"].replace("ROOT c", "c").replace("\n}\n", "\n  ROOT d = f32[6,5]{1,0} negate(c)\n}\n")
    executable = check(text, rounds=4)
    assert lt.captured and executable.report()["graphs"]["stretches"] == 1
    assert lt.cublaslt.ran[2:] == [(2, 1)] * 4


@pytest.mark.parametrize(
    "text",
    [
        CASES["rows"].replace("f32", "f64"),
        dot("f32[3,7,4,5]{3,2,1,0}", "f32[3,7,4,5]{3,2,1,0}", "f32[3,4,7,7]{3,2,1,0}",
            "lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_contracting_dims={3}"),
    ],
)  # fmt: skip
def test_what_it_does_not_have_is_for_cublas(text: str, lt: types.ModuleType) -> None:
    check(text)
    assert not lt.cublaslt.ran and lt.gemms


def test_without_an_algorithm_cublas_multiplies(lt: types.ModuleType) -> None:
    lt.cublaslt.refuses.add(1)
    assert check(CASES["rows"]).report()["notes"] == {"dot": "cublasGemmStridedBatchedEx"}
    assert not lt.cublaslt.ran


EPILOGUE = """HloModule m

body {{
  x = f32[6,8]{{1,0}} parameter(0)
  b = f32[8]{{0}} parameter(1)
  spread = f32[6,8]{{1,0}} broadcast(b), dimensions={{1}}
  v = f32[6,8]{{1,0}} add(x, spread)
  zero = f32[] constant(0)
  zeros = f32[6,8]{{1,0}} broadcast(zero), dimensions={{}}
  ROOT r = f32[6,8]{{1,0}} maximum(v, zeros)
}}

ENTRY e {{
  a = f32[6,4]{{1,0}} parameter(0)
  b = f32[4,8]{{1,0}} parameter(1)
  c = f32[8]{{0}} parameter(2)
  d = f32[6,8]{{1,0}} dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  k = f32[6,8]{{1,0}} fusion(d, c), kind=kLoop, calls=body
  ROOT r = f32[6,8]{{1,0}} {last}
}}
"""


def test_what_follows_a_product_is_part_of_its_call(lt: types.ModuleType) -> None:
    executable = check(EPILOGUE.format(last="negate(k)"), rounds=4)
    assert executable.report()["library"] == {"__cublas$lt$matmul": 1} and executable.report()["launches"] == 1
    assert lt.cublaslt.ran == [(1, 6), (2, 6), (1, 1), (2, 1)] + [(2, 6)] * 4 and len(lt.gemms) == 1 and lt.captured


def test_where_the_library_refuses_an_epilogue_there_is_a_kernel(lt: types.ModuleType) -> None:
    lt.cublaslt.refuses.add(6)
    executable = check(EPILOGUE.format(last="negate(k)"), rounds=2)
    assert executable.report()["library"] == {"dot": 1} and executable.report()["launches"] == 2
    assert {epilogue for _, epilogue in lt.cublaslt.ran} == {1}


def test_an_epilogue_that_takes_longer_than_its_kernel_is_a_kernel(
    lt: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def time_of(_: types.ModuleType, start: Callable[[], None]) -> float:
        start()
        return 0.1 if lt.cublaslt.ran and lt.cublaslt.ran[-1][1] == 6 else 0.01

    monkeypatch.setattr(products, "milliseconds", time_of)
    executable = check(EPILOGUE.format(last="negate(k)"))
    assert executable.report()["library"] == {"dot": 1} and executable.report()["launches"] == 2


def test_where_products_cannot_be_timed_there_is_a_kernel(
    lt: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def time_of(*_: object) -> float:
        raise RuntimeError("cublasSetStream returns status 13")

    monkeypatch.setattr(products, "milliseconds", time_of)
    executable = check(EPILOGUE.format(last="negate(k)"))
    assert executable.report()["library"] == {"dot": 1} and executable.report()["launches"] == 2


def test_precise_activations_are_kernels(lt: types.ModuleType) -> None:
    module = hlo_opt.parse(EPILOGUE.format(last="negate(k)"))
    executable = hlo_opt.compile(module, "cupy", precise=True)
    executable(*module_inputs(module, 0))
    assert executable.report()["library"] == {"dot": 1} and executable.report()["launches"] == 2


LT_DUMP = """HloModule m

ENTRY e {
  a = bf16[6,4]{1,0} parameter(0)
  b = bf16[4,8]{1,0} parameter(1)
  c = bf16[8]{0} parameter(2)
  d = (bf16[6,8]{1,0}, s8[4096]{0}) custom-call(a, b, c), custom_call_target="__cublas$lt$matmul", backend_config={
    "gemm_backend_config":{"alpha_real":1,"alpha_imag":0,"beta":0,"dot_dimension_numbers":{
    "lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],
    "rhs_batch_dimensions":[]},"precision_config":{"operand_precision":["DEFAULT","DEFAULT"]},"epilogue":"BIAS"}}
  ROOT r = bf16[6,8]{1,0} get-tuple-element(d), index=0
}
"""


@pytest.mark.parametrize("text", [LT_DUMP, LT_DUMP.replace("bf16", "f16").replace("BIAS", "BIAS_GELU")])
def test_a_product_as_xla_wrote_it_runs_without_cublaslt_too(text: str, fake: types.ModuleType) -> None:
    executable = check(text)
    assert executable.report()["library"] == {"__cublas$lt$matmul": 1} and len(fake.gemms) == 1


def test_a_product_that_fails_is_named(lt: types.ModuleType) -> None:
    lt.cublaslt.cublasLtMatmul = lambda *_: 13
    with pytest.raises(hlo_opt.HloOptError, match=r"HLO526 .*custom-call d: LtError: cublasLtMatmul returns status 13"):
        check(LT_DUMP)


def test_a_function_that_fails_is_named(lt: types.ModuleType) -> None:
    cublas = Cublas(lt)
    assert cublas.lt is not None
    cublas.library.cublasGemmStridedBatchedEx = lambda *_: 13
    with pytest.raises(CublasError, match=r"^cublasGemmStridedBatchedEx returns status 13$"):
        cublas.start_by_cublas(rows(), [256, 512, 1024])()
    lt.cublaslt.cublasLtMatmulDescSetAttribute = lambda *_: 13
    with pytest.raises(LtError, match=r"^cublasLtMatmulDescSetAttribute of attribute 3 returns status 13$"):
        cublas.lt.algorithms(rows())


@pytest.mark.parametrize(
    ("said", "compute"),
    [
        ("DEFAULT", 77),
        ("HIGHEST", 68),
        ('DEFAULT","DEFAULT"],"algorithm":"ALG_UNSET","x":["', 77),
        ('DEFAULT","DEFAULT"],"algorithm":"ALG_DOT_F32_F32_F32","x":["', 68),
        ('DEFAULT","DEFAULT"],"algorithm":"ALG_DOT_TF32_TF32_F32","x":["', 77),
    ],
)
def test_the_precision_of_a_product_as_xla_wrote_it(said: str, compute: int, fake: types.ModuleType) -> None:
    check(LT_DUMP.replace("bf16", "f32").replace('"DEFAULT","DEFAULT"', f'"{said}","DEFAULT"'))
    assert fake.gemms[-1][-1] == compute


def test_scaled_products_have_no_call(fake: types.ModuleType) -> None:
    with pytest.raises(hlo_opt.HloOptError, match="HLO523"):
        hlo_opt.compile(hlo_opt.parse(LT_DUMP.replace('"alpha_real":1', '"alpha_real":2')), "cupy")


@pytest.mark.parametrize(("epilogue", "algorithm"), [("", None), ("RELU", 1)])
def test_arrays_that_are_not_aligned(epilogue: str, algorithm: int | None, lt: types.ModuleType) -> None:
    """cuBLAS multiplies them; with what follows, an algorithm that suits any address."""
    product, cublas = replace(rows(), epilogue=epilogue), Cublas(lt)
    cublas.choose(product)
    memory = lt.zeros(1024, "uint8")
    lt.cublaslt.ran.clear()
    left, right, target = (AddressedMemory(int(memory.data.ptr) + 4 + at, 120) for at in (0, 256, 512))
    cublas.binding(product)([left, right], [target])()
    assert [ran for ran, _ in lt.cublaslt.ran] == ([] if algorithm is None else [algorithm])


def test_handles_end_with_their_last_user(lt: types.ModuleType) -> None:
    """Not with the next run of the collector of cycles."""
    product, cublas = rows(), Cublas(lt)
    assert cublas.lt is not None
    cublas.choose(product)
    alive = weakref.ref(cublas), weakref.ref(cublas.lt)
    gc.disable()
    try:
        del cublas
        assert [of() for of in alive] == [None, None]
    finally:
        gc.enable()
