"""Write the dumps in `testdata/dumps` and `testdata/pages`: each program's HLO as JAX hands it to XLA, before any
optimisation.

python -m scripts.dump              write all dumps
python -m scripts.dump adam mlp     write those whose case name contains one of the words
python -m scripts.dump --check      compare with what is there; exit 1 and say what differs
"""

from __future__ import annotations

import argparse
import contextlib
import math
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jaxlib._hlo as hlo
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts import frames
from scripts.programs import all_cases, page_cases
from scripts.programs.case import Arg, Case, Form

jax.config.update("jax_num_cpu_devices", 4)
ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {ROOT / "testdata" / "dumps": all_cases, ROOT / "testdata" / "pages": page_cases}
OURS = "scripts/programs/"


def is_ours(file: str) -> bool:
    """Whether a source file is one of the programs."""
    return file.startswith(OURS)


@contextlib.contextmanager
def settings(case: Case) -> Iterator[None]:
    """JAX set up for a case: source files by their path in the repository, whole tracebacks, nothing remembered."""
    wanted = {
        "jax_hlo_source_file_canonicalization_regex": "^" + re.escape(f"{ROOT}/"),
        "jax_include_full_tracebacks_in_locations": True,
        "jax_traceback_in_locations_limit": -1,
        "jax_enable_x64": case.x64,
        **case.settings,
    }
    before = {name: getattr(jax.config, name) for name in wanted}
    try:
        for name, value in wanted.items():
            jax.config.update(name, value)
        jax.clear_caches()
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def lower(case: Case) -> hlo.HloModule:
    """The module that JAX makes of a case; of one for several devices, what XLA's partitioner makes of that."""
    with settings(case):
        args = jax.tree.map(Arg.struct, case.args, is_leaf=lambda x: isinstance(x, Arg))
        if case.mesh is not None:
            return partitioned(case, args)
        jitted = jax.jit(case.function, donate_argnums=case.donate, keep_unused=True)
        computation = jitted.trace(*args).lower(lowering_platforms=(case.platform,)).compiler_ir("hlo")
        assert computation is not None
        return computation.get_hlo_module()


def partitioned(case: Case, args: Any) -> hlo.HloModule:
    """The module of each device of a case for several."""
    assert case.mesh is not None
    sizes = tuple(case.mesh.values())
    mesh = Mesh(np.array(jax.devices("cpu")[: math.prod(sizes)]).reshape(sizes), tuple(case.mesh))

    def on_mesh(specifications: Any) -> Any:
        return jax.tree.map(
            lambda p: NamedSharding(mesh, p), specifications, is_leaf=lambda p: isinstance(p, PartitionSpec)
        )

    jitted = jax.jit(case.function, in_shardings=on_mesh(case.shardings), out_shardings=on_mesh(case.results))
    with tempfile.TemporaryDirectory() as folder:
        options = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True, "xla_dump_hlo_pass_re": ".*spmd.*"}
        jitted.trace(*args).lower().compile(compiler_options=options)
        (found,) = Path(folder).glob("*.after_spmd-partitioning.*")
        return hlo.hlo_module_from_text(found.read_text(encoding="utf-8"))


def with_op_types(text: str) -> str:
    """The dump with the primitive's name as `op_type` too, as JAX wrote it until 2023."""
    return re.sub(r'metadata=\{op_name="((?:[^"/]*/)*([\w\-]+))"', r'metadata={op_type="\2" op_name="\1"', text)


def with_jit_header(text: str, module: hlo.HloModule) -> str:
    """The dump with what `jax.jit` tells XLA on compiling: that all shardings are free."""
    shape = hlo.XlaComputation(module.as_serialized_hlo_module_proto()).program_shape()
    results = shape.result_shape().tuple_shapes() if shape.result_shape().is_tuple() else [shape.result_shape()]
    header, _, rest = text.partition("\n")
    for name, count in (("parameters", len(shape.parameter_shapes())), ("output", len(results))):
        header += f", allow_spmd_sharding_propagation_to_{name}={{{','.join(['true'] * count)}}}"
    return f"{header}\n{rest}"


def render(module: hlo.HloModule, form: Form) -> str:
    """The module's text in the given form, with no constant left out."""
    options = hlo.HloPrintOptions()
    options.print_large_constants = True
    options.print_percent = options.print_program_shape = form != "short"
    options.print_operand_shape = form == "classic"
    text = module.to_string(options).rstrip("\n") + "\n"
    if form == "frames":
        return with_jit_header(frames.with_kept_frames(text, is_ours), module)
    text = frames.with_lines(text, is_ours)
    return with_op_types(text) if form == "classic" else text


def file_name(case: Case, form: Form) -> str:
    """The dump's name in its folder."""
    return f"{case.name}.hlo" if form == case.forms[0] else f"{case.name}.{form}.hlo"


def dumps(case: Case) -> dict[str, str]:
    """The dumps of a case by file name."""
    module = lower(case)
    return {file_name(case, form): render(module, form) for form in case.forms}


def difference(path: Path, text: str) -> str | None:
    """How a dump differs from what is on disk, in a line."""
    if not path.exists():
        return "is missing"
    there, new = path.read_text(encoding="utf-8").splitlines(), text.splitlines()
    for number, (old, line) in enumerate(zip(there, new, strict=False), 1):
        if old != line:
            return f"differs at line {number}\n    is     {old.strip()[:150]}\n    should {line.strip()[:150]}"
    return None if len(there) == len(new) else f"has {len(there)} lines and should have {len(new)}"


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD", help="only cases whose name contains one of these")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    arguments = parser.parse_args()
    words: list[str] = arguments.words
    texts = {
        folder / name: text
        for folder, cases in FOLDERS.items()
        for case in cases().values()
        if not words or any(word in case.name for word in words)
        for name, text in dumps(case).items()
    }
    stale = [] if words else sorted(path for f in FOLDERS for path in f.glob("*.hlo") if path not in texts)
    if not arguments.check:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        for path in stale:
            path.unlink()
        print(f"{len(texts)} dumps, {sum(map(len, texts.values())) / 1e6:.2f} MB", file=sys.stderr)
        return 0
    differing = {path: why for path, text in texts.items() if (why := difference(path, text))}
    differing |= dict.fromkeys(stale, "belongs to no case")
    for path, why in differing.items():
        print(f"{path.relative_to(ROOT)} {why}")
    print(f"{len(texts) - len(differing)} of {len(texts)} dumps are as they should be", file=sys.stderr)
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
