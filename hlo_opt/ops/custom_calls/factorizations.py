"""Custom calls to LAPACK, cuSOLVER and cuSPARSE: factorizations of (batches of) matrices, and systems of equations.

Results are those of jaxlib's kernels (jaxlib/cpu/lapack_kernels.h, jaxlib/gpu/solver_kernels_ffi.h); `Qr` and `ProductOfElementaryHouseholderReflectors` are what
XLA's own builder writes (xla/hlo/builder/lib/qr.cc), `__cusolver$cholesky` what XLA:GPU makes of `cholesky`. Where a factorization is determined up to signs
only, the signs are those of LAPACK. Calls of jaxlib before its foreign-function interface are known where their meaning is not hidden in an opaque descriptor.
"""

from __future__ import annotations

from hlo_opt.ops.custom_calls.targets import CustomCallSpec, register_custom_call
from hlo_opt.ops.lazy import lazy

_MEANINGS = frozenset({"geev", "gehrd", "geqp3", "gtsv", "gtsv2", "sytrd", "syrk", "trsm"})
"""The routines that have a NumPy meaning of their own; of the others it is that of the call that CuPy computes them with."""
_LAPACK = {
    **dict.fromkeys(("potrf", "getrf", "geqrf", "geqp3", "gehrd", "geev", "gesdd", "gesvd", "gtsv", "trsm"), "sdcz"),
    **dict.fromkeys(("orgqr", "ormqr", "syevd", "sytrd"), "sd"),
    **dict.fromkeys(("ungqr", "unmqr", "heevd", "hetrd"), "cz"),
}
_SOLVER = ("potrf", "getrf", "geqrf", "orgqr", "ormqr", "syevd", "sytrd", "syrk", "gesvd", "gesdd", "gesvdj", "gesvdp")
_SAME = {"ungqr": "orgqr", "unmqr": "ormqr", "heevd": "syevd", "hetrd": "sytrd", "gesvd": "gesdd", "gesvdp": "gesvdj"}
_OTHERS = {
    "Qr": ("geqrf", "LAPACK"),
    "ProductOfElementaryHouseholderReflectors": ("orgqr", "LAPACK"),
    "__cusolver$cholesky": ("cusolver_cholesky", "cuSOLVER"),
    "cu_lu_pivots_to_permutation": ("lu_pivots_to_permutation", "jaxlib"),
    "hip_lu_pivots_to_permutation": ("lu_pivots_to_permutation", "jaxlib"),
    "cusparse_gtsv2_ffi": ("gtsv2", "cuSPARSE"),
    "hipsparse_gtsv2_ffi": ("gtsv2", "hipSPARSE"),
    "cublas_getrf_batched": ("getrf", "cuBLAS"),
    "cublas_geqrf_batched": ("geqrf", "cuBLAS"),
    "cusolver_getrf": ("getrf", "cuSOLVER"),
    "cusolver_geqrf": ("geqrf", "cuSOLVER"),
    "cusolver_orgqr": ("orgqr", "cuSOLVER"),
}


def _register() -> None:
    for name, letters in _LAPACK.items():
        for letter in letters:
            _one(f"lapack_{letter}{name}_ffi", _SAME.get(name, name), "LAPACK")
    for name in _SOLVER:
        _one(f"cusolver_{name}_ffi", _SAME.get(name, name), "cuSOLVER")
        _one(f"hipsolver_{name}_ffi", _SAME.get(name, name), "hipSOLVER")
    for target, (function, library) in _OTHERS.items():
        _one(target, function, library)


_ROUTINES: dict[str, str] = {}


def routine(target: str) -> str | None:
    """The routine behind a custom call's target, by LAPACK's name without the letter of its type; None for any other target."""
    return _ROUTINES.get(target)


def _one(target: str, function: str, library: str) -> None:
    _ROUTINES[target] = function
    meaning = (
        ("custom_calls.factorizations_meaning", function) if function in _MEANINGS else ("calls.call", "over_numpy")
    )
    call = lazy("calls.factorizations", "factorization_call")
    register_custom_call(CustomCallSpec(target, evaluate=lazy(*meaning), call=call, library=library))


_register()
