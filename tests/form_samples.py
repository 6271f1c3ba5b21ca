"""One module in every form."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

from jaxlib import _hlo, _jax

from hlo_opt.forms.kinds import MODULE_FIELD, Form
from hlo_opt.forms.wire import fields, of_bytes, of_number, written

ARTIFACT = Path(__file__).resolve().parents[1] / "testdata" / "forms" / "program.jaxexport"

TEXT = """HloModule m

ENTRY e {
  p = f32[2,3] parameter(0)
  q = s32[2,3] parameter(1)
  c = f32[2,3] constant({{1, 2, 3}, {4, 5, nan}})
  s = f32[2,3] add(p, c)
  ROOT t = (f32[2,3], s32[2,3]) tuple(s, q)
}
"""


def literal(text: str) -> bytes:
    """The LiteralProto that XLA writes for the only constant of a computation that is nothing but it."""
    message = module(f"HloModule m\n\nENTRY e {{\n  ROOT c = {text}\n}}\n")
    (computation,) = (f.data for f in fields(message) if f.number == 3)
    (instruction,) = (f.data for f in fields(computation) if f.number == 2)
    (found,) = (f.data for f in fields(instruction) if f.number == 8)
    return found


@functools.cache
def module(text: str = TEXT) -> bytes:
    """The HloModuleProto of a text."""
    return _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()


INPUTS = ("f32[2,3]{0,1} constant({{1, 2, 3}, {4, 5, 6}})", "s32[2,3] constant({{1, -2, 3}, {4, 5, 6}})")


def forms() -> dict[Form, bytes]:
    """The module of `TEXT` in each form but an artifact."""
    message = module()
    arguments = b"".join(of_bytes(2, literal(text)) for text in INPUTS)
    snapshot = of_bytes(MODULE_FIELD, of_bytes(MODULE_FIELD, message)) + arguments + of_bytes(4, b"Host")
    partition = of_bytes(2, b"".join(of_bytes(1, literal(text)) for text in INPUTS))
    return {
        Form.TEXT: TEXT.encode(),
        Form.MODULE: message,
        Form.PROTO: of_bytes(MODULE_FIELD, message) + of_bytes(3, of_bytes(1, of_number(1, 7))),
        Form.SNAPSHOT: snapshot,
        Form.PARTITIONS: of_bytes(MODULE_FIELD, message) + partition,
        Form.MLIR: _jax.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(message)).encode(),
        Form.BYTECODE: _jax.mlir.hlo_to_stablehlo(message),
        Form.ARTIFACT: ARTIFACT.read_bytes(),
    }


def apart(descriptions: list[int], arrays: bytes) -> bytes:
    """An HloUnoptimizedSnapshot whose arrays stand behind it."""
    described = b"".join(of_bytes(2, of_number(2, size)) for size in descriptions)
    message = of_bytes(MODULE_FIELD, module()) + of_bytes(2, described)
    return written(len(message)) + message + arrays


DUMPING = """
import sys
import jax, ml_dtypes, numpy as np
values = np.random.default_rng(0)
arrays = []
for name in {names!r}:
    kind = np.dtype(getattr(ml_dtypes, name, name))
    raw = values.integers(0, 256, (3, 5 * kind.itemsize), dtype=np.uint8)
    if name == "bool":
        raw %= 2
    elif name in ("int2", "uint2", "int4", "uint4"):
        bits = int(name[-1])
        raw = raw.astype(np.int8) << (8 - bits) >> (8 - bits) if name[0] == "i" else raw % (1 << bits)
        raw = raw.astype(kind)
    arrays.append(raw.view(kind))
jax.block_until_ready(jax.jit(lambda *xs: [x.T for x in xs])(*arrays))
np.savez(sys.argv[1], *[a.view(f"u{{a.dtype.itemsize}}") if a.dtype.isbuiltin != 1 else a for a in arrays])
"""


def dumped(flags: str, names: tuple[str, ...], folder: Path) -> None:
    """Have XLA dump a program that takes an array of each of these types into a folder, with what it was given in
    `given.npz`."""
    told = {"XLA_FLAGS": f"--xla_dump_to={folder} {flags}", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", DUMPING.format(names=names), f"{folder}/given.npz"]
    subprocess.run(command, check=True, env={**os.environ, **told})
