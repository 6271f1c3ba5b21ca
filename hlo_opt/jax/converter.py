"""Reads a module with jaxlib and writes it in another form, from stdin to stdout. It is a process of its own, because
XLA aborts the process on some inputs.

    python -P converter.py FROM TO BYTES SECONDS

FROM is hlo, pb or mlir (text or bytecode), TO is hlo, pb, mlir or mlirbc. BYTES limits the memory of the process,
SECONDS its processor time: XLA may go on for ever with a damaged module. The exit status is 3 if XLA refuses the
module, with its message on stdout, and 4 without jaxlib. `conversion.py` calls it.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxlib import _hlo

REFUSED, MISSING = 3, 4


def read(form: str, data: bytes) -> _hlo.HloModule:
    """The module. Raises what jaxlib raises."""
    from jaxlib import _hlo, _jax

    if form == "hlo":
        return _hlo.hlo_module_from_text(data.decode())
    if form == "pb":
        return _hlo.HloModule.from_serialized_hlo_module_proto(data)
    return _jax.mlir.mlir_module_to_xla_computation(data, use_tuple_args=False, return_tuple=False).get_hlo_module()


def write(module: _hlo.HloModule, form: str) -> bytes:
    """The module in a form. Raises what jaxlib raises."""
    from jaxlib import _hlo, _jax

    if form == "hlo":
        options = _hlo.HloPrintOptions()
        options.print_large_constants = True  # without it they are elided, which XLA reads as zeros
        return module.to_string(options).encode()
    message = module.as_serialized_hlo_module_proto()
    if form == "pb":
        return message
    if form == "mlir":
        return _jax.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(message)).encode()
    return _jax.mlir.hlo_to_stablehlo(message)


def main() -> int:
    """Returns the exit status."""
    source, target, limit, seconds = sys.argv[1:]
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (int(limit), int(limit)))
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
    data = sys.stdin.buffer.read()
    try:
        from jaxlib import _hlo, _jax  # noqa: F401  # whether it is there
    except ImportError:
        return MISSING
    try:
        result = write(read(source, data), target)
    except Exception as fault:
        sys.stdout.buffer.write(str(fault).encode())
        return REFUSED
    sys.stdout.buffer.write(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
