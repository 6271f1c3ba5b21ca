"""The verb `bisect`."""

import json

import pytest
from cutting_modules import TEXT

from hlo_opt.cli.group import run


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.hlo").write_text(TEXT)
    return "m.hlo"


def test_of_our_steps_one_is_told_with_its_pass_and_text(file, capfd):
    assert run(["bisect", file, "--run", "grep -q fusion( {}"]) == 0
    done = capfd.readouterr()
    lines = done.out.splitlines()
    assert lines[0].startswith("step ") and done.err == ""
    assert "the command: another status after step" in lines[1] and "status 0 after this" in lines[1]
    assert any(line.startswith("+") and "fusion(" in line for line in lines)
    number = int(lines[0].split()[1])
    for stop, has in ((number - 1, False), (number, True)):
        assert run(["fuse", file, "--stop-after-step", str(stop)]) == 0
        assert (" fusion(" in capfd.readouterr().out) is has


def test_json_has_everything(file, capfd):
    assert run(["bisect", file, "--watch", "kernels < 5", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["step"] <= found["steps"] and found["pass"] and found["lines"]
    assert (found["was"], found["became"]) == ("no", "kernels < 5")


def test_a_series_and_a_folder(file, tmp_path, capfd):
    (tmp_path / "d").mkdir()
    for number, opcode in enumerate(["sine", "sine", "cosine"]):
        text = TEXT.replace(" sine(", f" {opcode}(")
        (tmp_path / f"{number}.hlo").write_text(text)
        (tmp_path / "d" / f"module_0001.jit_f.{number:04}.all.after_p{number}.before_q.txt").write_text(text)
    assert run(["bisect", "0.hlo", "1.hlo", "2.hlo", "--backend", "numpy"]) == 0
    assert capfd.readouterr().out.startswith("2.hlo\n  check: the same results after 1.hlo, other results after this\n")
    assert run(["bisect", "d", "--backend", "numpy"]) == 0
    assert "before_q.txt: p2 in all\n" in capfd.readouterr().out


def test_a_broken_file_of_a_series_is_left_out_and_one_at_an_end_is_an_error(file, tmp_path, capfd):
    (tmp_path / "broken.hlo").write_text(TEXT[:60])
    (tmp_path / "last.hlo").write_text(TEXT.replace(" sine(", " cosine("))
    assert run(["bisect", file, "broken.hlo", "last.hlo", "--run", "grep -q cosine {}"]) == 0
    done = capfd.readouterr()
    assert done.out.startswith("last.hlo\n") and "hlo-opt: broken.hlo is left out: HLO1" in done.err
    assert run(["bisect", file, "broken.hlo"]) == 2
    assert capfd.readouterr().err.startswith("broken.hlo:")


def test_an_end_with_other_inputs_is_an_error_that_says_so(file, tmp_path, capfd):
    (tmp_path / "other.hlo").write_text("HloModule o\n\nENTRY e {\n  ROOT p = f32[3]{0} parameter(0)\n}\n")
    assert run(["bisect", file, "other.hlo", "--backend", "numpy"]) == 2
    assert "other.hlo has no answer to check\n  hint: it does not run, or takes other inputs" in capfd.readouterr().err


def test_a_folder_of_protobufs(tmp_path, capfd):
    pytest.importorskip("jaxlib", reason="the extra jax is not installed")
    from hlo_opt.forms.kinds import Form
    from hlo_opt.jax.conversion import converted

    for number, opcode in enumerate(["sine", "sine", "cosine"]):
        text = TEXT.replace(" sine(", f" {opcode}(")
        name = f"module_0001.jit_f.{number:04}.all.after_p{number}.before_q.hlo.pb"
        (tmp_path / name).write_bytes(converted(text.encode(), Form.TEXT, "pb", name))
    assert run(["bisect", str(tmp_path), "--backend", "numpy"]) == 0
    assert "before_q.hlo.pb: p2 in all\n" in capfd.readouterr().out


def test_nothing_turns_is_exit_status_1(file, capfd):
    assert run(["bisect", file, "--watch", "kernels > 1000"]) == 1
    done = capfd.readouterr()
    assert done.out == "" and "nothing changes: kernels > 1000: no before fusing and after its " in done.err


@pytest.mark.parametrize("arguments", [["--watch", "x"], ["--run", "true"], ["--preset", "no"]])
def test_bad_options_are_told(file, arguments, capfd):
    assert run(["bisect", file, *arguments]) == 2
    assert run(["bisect", "nothing.hlo"]) == 2
    assert run(["bisect", file, "nothing.hlo"]) == 2
    assert capfd.readouterr().out == ""
