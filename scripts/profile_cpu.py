"""A profile of a program on XLA:CPU, with the module that ran: python -m scripts.profile_cpu CASE DIR [--times 3]

Compiles a program of `scripts/programs` (`mlp_train_step`, say), runs it under `jax.profiler.trace`, and writes
DIR/CASE.hlo, the module after XLA's optimisations, whose instructions the profile names, DIR/CASE.xplane.pb, and
DIR/CASE.trace.json.gz, the same for Perfetto. `hlo-opt explain DIR/CASE.hlo --measured DIR/CASE.xplane.pb` joins them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp

from scripts.dump import settings
from scripts.programs import all_cases
from scripts.programs.case import Arg, Case

FORMS = (".xplane.pb", ".trace.json.gz")


def profile(case: Case, folder: Path, times: int = 3) -> list[Path]:
    """Write the module and both forms of its profile. Returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    with settings(case):
        args = jax.tree.map(Arg.struct, case.args, is_leaf=lambda x: isinstance(x, Arg))
        compiled = jax.jit(case.function).lower(*args).compile()
        given = jax.tree.map(lambda s: jnp.ones(s.shape, s.dtype), args)
        jax.block_until_ready(compiled(*given))
        with tempfile.TemporaryDirectory() as logs:
            options = jax.profiler.ProfileOptions()
            options.python_tracer_level = 0  # the frames of Python are most of the file
            with jax.profiler.trace(logs, profiler_options=options):
                for _ in range(times):
                    jax.block_until_ready(compiled(*given))
            written = [folder / f"{case.name}.hlo"]
            written[0].write_text(str(compiled.as_text()), encoding="utf-8")
            for form in FORMS:
                (found,) = Path(logs).glob(f"**/*{form}")
                written.append(folder / f"{case.name}{form}")
                written[-1].write_bytes(found.read_bytes())
    return written


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=[name for name, case in all_cases().items() if case.mesh is None])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--times", type=int, default=3)
    arguments = parser.parse_args()
    for path in profile(all_cases()[arguments.case], arguments.folder, arguments.times):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
