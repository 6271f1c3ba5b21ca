"""The verb `isolate`."""

from pathlib import Path

import numpy as np
import pytest
from cutting_modules import TEXT

import hlo_opt
from hlo_opt.cli.group import run


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.hlo").write_text(TEXT)
    return "m.hlo"


def test_a_part_runs_on_what_it_had(file, capfd):
    np.savez("in.npz", in0=np.full((8, 16), 0.5, np.float32), in1=np.ones((8, 16), np.float32))
    recorded = ["--inputs", "in.npz", "--recorded", "had.npz"]
    assert run(["isolate", file, "called", "-o", "part.hlo", *recorded]) == 0
    assert run(["run", "part.hlo", "--inputs", "had.npz", "--outputs", "out.npz"]) == 0
    with np.load("had.npz") as had, np.load("out.npz") as out:
        np.testing.assert_array_equal(had["in0"], 1.5)
        np.testing.assert_allclose(out["out0"], -np.exp(1.5), rtol=1e-5)


def test_it_is_printed_and_drawn_inputs_will_do(file, capfd):
    assert run(["isolate", file, "body", "--seed", "3", "--recorded", "a.npz", "--call", "2"]) == 0
    module = hlo_opt.parse(capfd.readouterr().out)
    hlo_opt.verify(module)
    with np.load("a.npz") as had:
        assert [k for k in had.files if had[k].dtype == np.int32 and had[k] == 1]


def test_what_goes_wrong_is_told_and_nothing_is_written(file, capfd):
    assert run(["isolate", file, "sum", "--recorded", "a.npz", "-o", "part.hlo"]) == 2
    assert run(["isolate", file, "nothing"]) == 2
    done = capfd.readouterr()
    assert "m.hlo: HLO300 sum never runs by itself" in done.err
    assert "m.hlo: HLO300 there is no instruction or computation 'nothing'\n  hint: it has " in done.err
    assert not Path("a.npz").exists() and not Path("part.hlo").exists() and done.out == ""
