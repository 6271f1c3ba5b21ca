"""Write `testdata/series`: a module as XLA:CPU dumps it after each pass, with a mistake planted after one of them.

python -m scripts.wrong_series

The program is a layer normalisation. From one run of `algsimp` on, a larger number is added to the variance. Dumps that
are equal to the one before them are left out.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

import jax

from scripts.dump import settings
from scripts.programs.case import Case, f32
from scripts.programs.normalization import layer_norm

SERIES = Path(__file__).resolve().parent.parent / "testdata" / "series"
RIGHT, WRONG = "constant(1e-05)", "constant(0.001)"
FIRST_WRONG = 17


def dumps(case: Case, folder: Path) -> list[Path]:
    """The modules of a case that XLA dumps into a folder, in the order of its passes."""
    os.environ["XLA_FLAGS"] = f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_pass_re=.*"
    with settings(case):
        jax.jit(case.function).lower(*(arg.struct() for arg in case.args)).compile()
    return sorted(folder.glob(f"module_*.jit_{case.function.__name__}.[0-9]*.txt"))


def body(text: str) -> str:
    """The computations without the numbers in names: a dump whose body is that of the one before is left out."""
    return re.sub(r"[.\d]+", "", text.partition("\n\n")[2])


def main() -> None:
    case = Case("layer_norm", layer_norm, (f32(64, 256), f32(256), f32(256)))
    shutil.rmtree(SERIES, ignore_errors=True)
    SERIES.mkdir()
    before = ""
    with tempfile.TemporaryDirectory() as folder:
        for path in dumps(case, Path(folder)):
            text = path.read_text(encoding="utf-8")
            if int(path.name.split(".")[2]) >= FIRST_WRONG:
                text = text.replace(RIGHT, WRONG)
            if body(text) != body(before):
                name = re.sub(r"^module_\d+", "module_0001", path.name)
                (SERIES / name).write_text(text, encoding="utf-8")
            before = text


if __name__ == "__main__":
    main()
