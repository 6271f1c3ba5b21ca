"""Factorizations over the stand-in for CuPy, against the NumPy interpreter: as the backend calls them, and in an
emitted driver's text."""

import types

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate import evaluate
from hlo_opt.ir import Module
from hlo_opt.ops.calls.call import call_of
from hlo_opt.runtime.numpy import physical
from tests.runtime.calls import gives_what_the_interpreter_gives

CASES = {
    "qr": ("f32[2,5,3]{2,1,0}", "(f32[2,5,3]{1,2,0}, f32[2,3]{1,0})", "Qr", ""),
    "qr_wide": ("f64[3,5]{1,0}", "(f64[3,5]{0,1}, f64[3]{0})", "lapack_dgeqrf_ffi", ""),
    "qr_complex": ("c64[4,4]{0,1}", "(c64[4,4]{0,1}, c64[4]{0})", "cusolver_geqrf_ffi", ""),
    "qr_of_one": ("f32[1,1]{1,0}", "(f32[1,1]{1,0}, f32[1]{0})", "Qr", ""),
    "product": ("f32[2,5,3]{2,1,0} f32[2,3]{1,0}", "f32[2,5,3]{2,1,0}", "ProductOfElementaryHouseholderReflectors", ""),
    "product_complex": ("c128[4,3]{0,1} c128[2]{0}", "c128[4,3]{0,1}", "lapack_zungqr_ffi", ""),
    "multiplied": ("f64[4,3]{1,0} f64[3]{0} f64[4,6]{1,0}", "f64[4,6]{1,0}", "cusolver_ormqr_ffi", ""),
    "multiplied_turned": ("c128[4,3]{1,0} c128[3]{0} "
                          "c128[4,2]{1,0}", "c128[4,2]{1,0}", "lapack_zunmqr_ffi", "transpose = true"),
    "multiplied_right": ("c128[4,3]{1,0} c128[3]{0} "
                         "c128[6,4]{1,0}", "c128[6,4]{0,1}", "lapack_zunmqr_ffi", "left = false"),
    "both": ("f64[4,3]{1,0} f64[3]{0} "
             "f64[6,4]{1,0}", "f64[6,4]{0,1}", "lapack_dormqr_ffi", "left = false, transpose = true"),
    "lu": ("f32[2,4,4]{1,2,0}", "(f32[2,4,4]{1,2,0}, s32[2,4]{1,0}, s32[2]{0})", "cusolver_getrf_ffi", ""),
    "lu_wide": ("c64[3,5]{1,0}", "(c64[3,5]{1,0}, s32[3]{0}, s32[])", "lapack_cgetrf_ffi", ""),
    "cholesky": ("f32[9,2,2]{2,1,0}", "(f32[9,2,2]{2,1,0}, s32[9]{0})", "cusolver_potrf_ffi", "lower = true"),
    "cholesky_upper": ("c128[9,2,2]{2,1,0}", "(c128[9,2,2]{2,1,0}, s32[9]{0})", "lapack_zpotrf_ffi", "uplo = 85 : ui8"),
    "cholesky_gpu": (
        "f64[9,2,2]{2,1,0}", "(f64[9,2,2]{2,1,0}, f64[5]{0}, s32[9]{0})", "__cusolver$cholesky", '\\"lower\\":true'
    ),
    "solve": (
        "f64[3,3]{1,0} f64[5,3]{1,0}", "f64[5,3]{1,0}", "lapack_dtrsm_ffi",
        "side = 82 : ui8, uplo = 85 : ui8, trans_x = 84 : ui8, diag = 85 : ui8",
    ),
    "eigenvalues": ("f32[2,3,3]{2,1,0}", "(f32[2,3,3]{2,1,0}, f32[2,3]{1,0}, "
                                         "s32[2]{0})", "cusolver_syevd_ffi", "lower = false"),
    "singular": (
        "f64[2,4,3]{2,1,0}", "(f64[2,4,3]{2,1,0}, f64[2,3]{1,0}, f64[2,4,3]{2,1,0}, f64[2,3,3]{2,1,0}, "
                             "s32[2]{0})", "lapack_dgesdd_ffi", ""
    ),
    "singular_whole": (
        "f32[3,5]{1,0}", "(f32[3,5]{1,0}, f32[3]{0}, f32[5,5]{1,0}, f32[3,3]{0,1}, "
                         "s32[])", "cusolver_gesvd_ffi", "transposed = true"
    ),
    "singular_alone": ("f32[3,5]{1,0}", "(f32[3,5]{1,0}, f32[3]{0}, f32[], f32[], "
                                        "s32[])", "cusolver_gesvd_ffi", "compute_uv = false"),
    "jacobi": ("c64[3,3]{1,0}", "(c64[3,3]{1,0}, f32[3]{0}, c64[3,3]{1,0}, c64[3,3]{1,0}, "
                                "s32[])", "cusolver_gesvdj_ffi", ""),
}  # fmt: skip


def module_of(parameters: str, results: str, target: str, config: str) -> Module:
    shapes = parameters.split(" ")
    lines = [f"  p{n} = {shape} parameter({n})" for n, shape in enumerate(shapes)]
    given = f', backend_config="{{{config}}}"' if config else ""
    names = ", ".join(f"p{n}" for n in range(len(shapes)))
    lines.append(f'  ROOT r = {results} custom-call({names}), custom_call_target="{target}"{given}')
    return hlo_opt.parse("HloModule m\n\nENTRY e {\n" + "\n".join(lines) + "\n}\n")


@pytest.mark.parametrize("name", CASES)
def test_a_factorization_gives_what_the_interpreter_gives(name: str, fake: types.ModuleType) -> None:
    module = module_of(*CASES[name])
    call = call_of(module.entry.root)
    assert call is not None and call.does.startswith("cupy")
    gives_what_the_interpreter_gives(call, module, fake)


def test_some_of_the_matrices_have_a_factor_and_some_have_none() -> None:
    from hlo_opt.evaluate import module_inputs

    for name in ("cholesky", "cholesky_upper", "cholesky_gpu"):
        module = module_of(*CASES[name])
        state = evaluate(module, module_inputs(module, 3))[-1]
        assert 0 < np.count_nonzero(state) < state.size


def test_the_order_of_rows_after_pivoting(fake: types.ModuleType) -> None:
    module = module_of("s32[2,3]{0,1}", "s32[2,4]{1,0}", "cu_lu_pivots_to_permutation", "")
    pivots = np.array([[3, 1, 2], [0, 2, 2]], np.int32)
    call = call_of(module.entry.root)
    assert call is not None
    (made,) = call.run(fake, [fake.asarray(physical(pivots, module.entry.parameters[0].shape))])
    assert np.asarray(made).reshape(2, 4).tolist() == [[3, 1, 2, 0], [0, 2, 1, 3]]
    assert np.array_equal(np.asarray(made).reshape(2, 4), evaluate(module, [pivots])[0])


@pytest.mark.parametrize(
    "case",
    [
        ("f64[4,3]{1,0}", "(f64[4,3]{1,0}, f64[2]{0})", "Qr", ""),
        ("f64[4,3]{1,0}", "(f64[4,3]{1,0}, f64[3]{0}, f64[4,2]{1,0}, f64[3,3]{1,0}, s32[])", "lapack_dgesdd_ffi", ""),
        ("f64[3,3]{1,0}", "(f64[3], f64[3], f64[3,3], f64[3,3], s32[])", "lapack_dgeev_ffi", ""),
        ("f64[3]{0}", "f64[3]{0}", "unheard", ""),
    ],
)
def test_what_has_none(case: tuple[str, str, str, str]) -> None:
    assert call_of(module_of(*case).entry.root) is None
