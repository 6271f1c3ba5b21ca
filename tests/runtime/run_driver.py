"""Run an emitted driver with the stand-in for CuPy: `run_driver.py FOLDER IN.npz OUT.npz`. A program of its own, so
that nothing of it leaks into tests."""

import sys
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).parent))
import fake_cupy

fake_cupy.import_as_cupy()
folder, inputs, outputs = sys.argv[1:]
sys.path.insert(0, folder)
from driver import run  # noqa: E402

with numpy.load(inputs) as archive:
    results = run(*[archive[f"in{n}"] for n in range(len(archive.files))])
numpy.savez(outputs, **{f"out{n}": a for n, a in enumerate(results)})
print(len(fake_cupy.launched))
