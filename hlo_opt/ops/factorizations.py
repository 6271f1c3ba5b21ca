"""Custom calls to LAPACK and cuSOLVER: factorizations of (batches of) matrices.

Results are those of jaxlib's kernels (jaxlib/cpu/lapack_kernels.h, jaxlib/gpu/solver_kernels_ffi.h); `Qr` and `ProductOfElementaryHouseholderReflectors` are what
XLA's own builder writes (xla/hlo/builder/lib/qr.cc). Where a factorization is determined up to signs only, the signs are those of LAPACK.
"""

from __future__ import annotations

from hlo_opt.ops.custom_calls import CustomCallSpec, register_custom_call
from hlo_opt.ops.lazy import lazy

_LETTERS = {"potrf": "sdcz", "getrf": "sdcz", "geqrf": "sdcz", "orgqr": "sd", "ungqr": "cz", "gesdd": "sdcz"}
_EIGEN = {"syevd": "sd", "heevd": "cz"}


def _register() -> None:
    meanings = {"ungqr": "orgqr", "gesvd": "gesdd", "gesvdj": "gesdd", "heevd": "syevd"}
    for name, letters in {**_LETTERS, **_EIGEN}.items():
        for letter in letters:
            _one(f"lapack_{letter}{name}_ffi", meanings.get(name, name), "LAPACK")
    for name in ("getrf", "geqrf", "orgqr", "syevd", "gesvd", "gesvdj", "potrf"):
        _one(f"cusolver_{name}_ffi", meanings.get(name, name), "cuSOLVER")
    _one("Qr", "geqrf", "")
    _one("ProductOfElementaryHouseholderReflectors", "orgqr", "")
    for target in ("cu_lu_pivots_to_permutation", "hip_lu_pivots_to_permutation"):
        _one(target, "lu_pivots_to_permutation", "jaxlib")


def _one(target: str, function: str, library: str) -> None:
    register_custom_call(CustomCallSpec(target, evaluate=lazy("factorizations_numpy", function), library=library))


_register()
