"""Each verb on a small module: what it prints where, what it writes, its exit status."""

import json
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from hlo_opt.cli import group
from hlo_opt.cli.group import VERBS, run

TEXT = """HloModule m

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY e {
  p = f32[64,96]{1,0} parameter(0), metadata={op_name="p"}
  q = f32[64,96]{1,0} parameter(1)
  a = f32[64,96]{1,0} add(p, q), metadata={op_name="a" source_file="model.py" source_line=7}
  t = f32[64,96]{1,0} tanh(a), metadata={op_name="t" source_file="model.py" source_line=8}
  z = f32[] constant(0)
  r = f32[64]{0} reduce(t, z), dimensions={1}, to_apply=sum
  d = f32[64,64]{1,0} dot(a, q), lhs_contracting_dims={1}, rhs_contracting_dims={1}, metadata={op_name="d" source_file="model.py" source_line=9}
  ROOT o = (f32[64]{0}, f32[64,64]{1,0}) tuple(r, d)
}
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.hlo").write_text(TEXT)
    return "m.hlo"


def test_fuse_prints_the_module_and_sums_up_on_stderr(file, capfd):
    assert run(["fuse", file]) == 0
    done = capfd.readouterr()
    assert done.out.startswith("HloModule m") and " fusion(" in done.out
    for word in ("kernels", "launches", "bytes", "estimated", "refused"):
        assert word in done.err
    assert "\x1b" not in done.err


def test_fuse_writes_what_it_is_asked_for(file, tmp_path, capfd):
    arguments = ["fuse", file, "-o", "o.hlo", "--stats", "s.json", "--emit", "d", "--check", "--time-passes"]
    assert run(arguments) == 0
    done = capfd.readouterr()
    assert (
        done.out == "" and re.search(r"^check: agrees on \w+", done.err, re.MULTILINE) and "seconds by pass" in done.err
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d", "m.hlo", "o.hlo", "s.json"]
    stats = json.loads((tmp_path / "s.json").read_text())
    assert set(stats) == {"schema", "before", "after", "prices", "refused", "seconds"}
    assert (
        set(stats["before"])
        == set(stats["after"])
        == {
            "kernels",
            "launches",
            "bytes",
            "est_us",
            "overlapped_us",
        }
    )
    assert stats["after"]["kernels"] < stats["before"]["kernels"]
    manifest = json.loads((tmp_path / "d" / "manifest.json").read_text())
    assert set(manifest) == {"target", "options", "kernels", "launches", "library"} and manifest["target"] == "h100_sxm"
    assert [row["call"] for row in manifest["library"]] == ["dot"]
    assert run(["check", file, "o.hlo"]) == 0


def test_the_output_may_be_the_input(file, tmp_path):
    assert run(["fuse", file, "-o", file]) == 0
    assert " fusion(" in (tmp_path / file).read_text()


def test_a_difference_is_exit_status_1_and_nothing_is_written(file, tmp_path, capfd):
    (tmp_path / "other.hlo").write_text(TEXT.replace("tanh(a)", "negate(a)"))
    assert run(["check", file, "other.hlo"]) == 1
    assert re.search(r"check: differs on .*out0\[0\]: expected", capfd.readouterr().out)


def test_strict_takes_no_agreement_that_says_little(file, tmp_path, capfd):
    assert run(["check", file, "--strict"]) == 0
    capfd.readouterr()
    (tmp_path / "zero.hlo").write_text(TEXT.replace("tanh(a)", "subtract(a, a)"))
    assert run(["check", "zero.hlo"]) == 0
    said = capfd.readouterr().out
    assert run(["check", "zero.hlo", "--strict"]) == 1
    assert re.search(r"^check: agrees on .*, weak in 1 of them$", said, re.MULTILINE)
    assert re.search(r"^  out0: equal; weak: all elements are 0.0$", said, re.MULTILINE)


def test_a_failed_check_of_fuse_writes_nothing(file, tmp_path, monkeypatch, capfd):
    from hlo_opt.runtime.check import compare

    real = compare.check

    def wrong(original, fused, **options):
        import hlo_opt

        return real(original, hlo_opt.parse(TEXT.replace("tanh(a)", "negate(a)")), **options)

    monkeypatch.setattr(compare, "check", wrong)
    assert run(["fuse", file, "-o", "o.hlo", "--stats", "s.json", "--emit", "d", "--check"]) == 1
    assert "check: differs" in capfd.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["m.hlo"]


def test_without_a_compiler_the_check_says_that_no_kernel_ran(file, monkeypatch, capfd):
    from hlo_opt.runtime import executable
    from hlo_opt.runtime.cupy import device as cupy_device

    monkeypatch.setattr(cupy_device, "has_gpu", lambda: False)
    monkeypatch.setattr(executable, "has_compiler", lambda: False)
    assert run(["fuse", file, "--check"]) == 0
    err = capfd.readouterr().err
    assert "check: agrees on numpy" in err and "notice: only the NumPy interpreter ran" in err


def test_print_after_and_stop_after_step(file, capfd):
    assert run(["fuse", file, "--print-after", "dce", "--stop-after-step", "0", "--simplify", "never"]) == 0
    done = capfd.readouterr()
    assert "// after dce" in done.err and "// after cse" not in done.err
    assert " fusion(" not in done.out
    assert run(["fuse", file, "--passes", "cse,dce", "--print-after", "all"]) == 0
    assert "// after cse" in capfd.readouterr().err


def test_print_after_counts_the_runs_of_a_group_and_repeats_no_text(file, capfd):
    spec = "fixpoint(instruction-fusion,dce)"
    assert run(["fuse", file, "--passes", spec, "--print-after", "all", "--simplify", "never"]) == 0
    err = capfd.readouterr().err
    assert re.findall(r"^// after .*$", err, re.MULTILINE) == [
        "// after instruction-fusion",
        "// after dce: as above",
        "// after instruction-fusion, run 2: as above",
    ]
    assert err.count("HloModule m") == 1


def test_print_after_a_pass_that_does_not_run_is_bad_usage(file, capfd):
    assert run(["fuse", file, "--passes", "cse", "--simplify", "never", "--print-after", "dce"]) == 2
    assert capfd.readouterr().err == "HLO300 --print-after dce: the pipeline does not run it\n  hint: it runs cse\n"
    assert run(["fuse", file, "--passes", "cse", "--print-after", "dce"]) == 0  # the simplify stage runs it


def test_time_passes_tells_runs_and_the_whole(file, capfd):
    assert (
        run(["fuse", file, "--passes", "fixpoint(instruction-fusion,dce)", "--simplify", "never", "--time-passes"]) == 0
    )
    table = capfd.readouterr().err.partition("seconds by pass\n")[2]
    rows = {line.split()[-1]: line.split() for line in table.splitlines()[1:]}
    assert rows.keys() == {"instruction-fusion", "dce", "proof", "decisions", "together"}
    assert rows["instruction-fusion"][-2] == "2" and rows["dce"][-2] == "1"
    assert sum(float(r[0]) for n, r in rows.items() if n != "together") == pytest.approx(
        float(rows["together"][0]), abs=0.003
    )


@pytest.mark.parametrize(
    ("limit", "told", "kernels"),
    [
        (0, "stopped after 0 rewrites", 4),
        (1, "stopped after 1 rewrite", 3),
        (9, "all 2 rewrites happened, fewer than the limit of 9", 3),
    ],
)
def test_stop_after_step_says_whether_it_did(limit, told, kernels, file, capfd):
    assert run(["fuse", file, "--passes", "fixpoint(instruction-fusion,dce)", "--stop-after-step", str(limit)]) == 0
    err = capfd.readouterr().err
    assert f"  {told}\n" in err and re.search(rf"kernels +4 +{kernels}\n", err)


def test_every_part_of_a_split_file_is_fused(tmp_path, capfd):
    path = tmp_path / "two.hlo"
    path.write_text(f"{TEXT}// -----\n{TEXT.replace('HloModule m', 'HloModule n')}")
    arguments = ["fuse", str(path), "--split-input-file", "--stats", str(tmp_path / "s.json"), "--max-kernels", "1"]
    assert run([*arguments, "-o", str(tmp_path / "o.hlo")]) == 1
    err = capfd.readouterr().err
    assert "m on h100_sxm\n" in err and "n on h100_sxm\n" in err
    assert re.findall(r"HLO710 module (\w): ", err) == ["m", "n"]
    assert (tmp_path / "o.hlo").read_text().count("\n// -----\n\nHloModule n") == 1
    assert len(json.loads((tmp_path / "s.json").read_text())) == 2
    for option in (["--emit", str(tmp_path / "d")], ["--inputs", "x.npz"]):
        assert run([*arguments, *option]) == 2
    path.write_text(TEXT + "// -----\n" + TEXT.replace("tanh(a)", "tanh(b)"))
    assert run(["fuse", str(path), "--split-input-file"]) == 2
    assert capfd.readouterr().out == ""


def test_a_module_over_its_budget_is_written_and_told(file, tmp_path, capfd):
    budget = ["--max-kernels", "1", "--max-bytes", "1kB", "--fail-on", "FUS302"]
    assert run(["fuse", file, "-o", "o.hlo", "--stats", "s.json", *budget]) == 1
    err = capfd.readouterr().err
    assert re.findall(r"^m\.hlo: (HLO\d+) module m: \S", err, re.MULTILINE) == ["HLO710", "HLO711", "HLO712"]
    assert " fusion(" in (tmp_path / "o.hlo").read_text() and (tmp_path / "s.json").exists()
    assert run(["explain", file, *budget]) == 1
    done = capfd.readouterr()
    assert done.err.count("\n") == 3 and done.out.startswith("m on h100_sxm\n")
    assert run(["fuse", file, "-o", "o.hlo", "--max-kernels", "99", "--max-bytes", "1GB", "--fail-on", "FUS201"]) == 0
    for wrong in (["--max-bytes", "12 bananas"], ["--max-kernels", "-1"], ["--fail-on", "FUS999"]):
        assert run(["fuse", file, "-o", "p.hlo", *wrong]) == 2
    assert not (tmp_path / "p.hlo").exists()


def test_a_budget_in_the_config_file(file, tmp_path, capfd):
    (tmp_path / "c.toml").write_text('max-kernels = 1\nfail-on = ["FUS302"]\n')
    assert run(["fuse", file, "--config", "c.toml"]) == 1
    assert run(["fuse", file, "--config", "c.toml", "--max-kernels", "9"]) == 1
    assert capfd.readouterr().err.count("HLO710") == 1


def test_a_config_file_gives_options_and_typed_ones_win(file, tmp_path, capfd):
    (tmp_path / "c.toml").write_text('passes = ["cse", "dce"]\ntarget = "a100_sxm_80"\n')
    assert run(["fuse", file, "--config", "c.toml"]) == 0
    done = capfd.readouterr()
    assert " fusion(" not in done.out and "on a100_sxm_80" in done.err
    assert run(["fuse", file, "--config", "c.toml", "--preset", "default", "--target", "v100"]) == 0
    done = capfd.readouterr()
    assert " fusion(" in done.out and "on v100" in done.err


@pytest.mark.parametrize("text", ["pases = 'dce'", "target = 3", "passes = [1]", "force = 'a:b'", "= 1"])
def test_a_bad_config_file_is_named(text, file, tmp_path, capfd):
    (tmp_path / "c.toml").write_text(text)
    assert run(["fuse", file, "--config", "c.toml"]) == 2
    assert capfd.readouterr().err.startswith("c.toml:1:1: HLO300 ")


def test_explain_names_code_hint_and_source_lines(file, capfd):
    assert run(["explain", file, "-v"]) == 0
    out = capfd.readouterr().out
    assert re.search(r"^a -> d  \(add -> dot, in e\)  refused by ", out, re.MULTILINE)
    assert "model.py:7" in out and "model.py:9" in out
    assert re.search(r"FUS302 library-call: .*\n    hint: ", out)


def test_explain_filters_by_instruction(file, capfd):
    assert run(["explain", file, "%t", "--format", "json"]) == 0
    edges = json.loads(capfd.readouterr().out)["edges"]
    assert edges and all(
        "t" in (e["producer"], e["consumer"], e["producer_kernel"], e["consumer_kernel"]) for e in edges
    )
    assert any(e["fused"] for e in edges)
    assert run(["explain", file, "nope"]) == 2
    assert "there is no instruction 'nope'" in capfd.readouterr().err


def test_what_if_switches_a_reason_off(file, capfd):
    def edges(*options):
        assert run(["explain", file, "--format", "json", *options]) == 0
        return json.loads(capfd.readouterr().out)

    codes = {r["code"] for e in edges()["edges"] for r in e["reasons"]}
    for code in codes:
        left = {r["code"] for e in edges("--what-if", code)["edges"] for r in e["reasons"]}
        assert code not in left
    assert run(["explain", file, "--what-if", "FUS999"]) == 2
    assert run(["explain", file, "--force", "a"]) == 2


def test_what_if_shows_what_the_rule_changes(file, capfd):
    options = ["--passes", "instruction-fusion", "--what-if", "fus403"]
    assert run(["explain", file, *options]) == 0
    out = capfd.readouterr().out
    assert "\nwhat if: without FUS403\n" in out and "  1 edge would fuse\n    a -> t\n" in out
    assert run(["explain", file, *options, "--format", "json"]) == 0
    found = json.loads(capfd.readouterr().out)["what_if"]
    assert found["codes"] == ["FUS403"] and found["fused"] == [{"producer": "a", "consumer": "t", "codes": []}]
    assert run(["explain", file, "--passes", "instruction-fusion", "--force", "a:t"]) == 0
    assert "\nwhat if: with a:t forced\n" in capfd.readouterr().out
    assert run(["explain", file, "a:t", "--passes", "instruction-fusion", "--forbid", "a:t", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["what_if"]["forbidden"] == ["a:t"] and "FUS505" in str(told["edges"])
    assert run(["fuse", file, "--forbid", "a:"]) == 2
    assert "--force and --forbid take PRODUCER:CONSUMER, not 'a:'" in capfd.readouterr().err


def test_an_edge_on_demand(file, capfd):
    assert run(["explain", file, "a:d", "-v"]) == 0
    out = capfd.readouterr().out
    assert re.findall(r"^\S+ -> \S+  \(", out, re.MULTILINE) == ["a -> d  ("]
    assert run(["explain", file, "a:q"]) == 2
    assert "no kernel `q` reads a kernel `a`" in capfd.readouterr().err


def test_annotations_of_the_python_lines(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.hlo").write_text(TEXT.replace('"model.py"', f'"{tmp_path}/src/a,b.py"'))
    options = ["m.hlo", "--passes", "instruction-fusion", "--max-kernels", "1"]
    assert run(["explain", *options, "--format", "github"]) == 1
    out = capfd.readouterr().out
    assert re.findall(r"^::(\w+) (\S*?)::", out, re.MULTILINE) == [
        ("error", "file=m.hlo,title=HLO710"),
        ("warning", "file=src/a%2Cb.py,line=8,title=FUS403"),
        ("warning", "file=src/a%2Cb.py,line=9,title=FUS302"),
        ("notice", "title=hlo-opt"),
    ]
    assert run(["explain", *options, "--format", "sarif", "--source-root", "src"]) == 1
    (log,) = json.loads(capfd.readouterr().out)["runs"]
    places = [r["locations"][0]["physicalLocation"] for r in log["results"]]
    assert [p["artifactLocation"].get("uriBaseId") for p in places] == [None, *["SRCROOT"] * 2]
    assert places[1] == {"artifactLocation": {"uri": "a%2Cb.py", "uriBaseId": "SRCROOT"}, "region": {"startLine": 8}}
    assert run(["explain", "FUS201", "--format", "sarif"]) == 2


@pytest.mark.parametrize("form", ["github", "sarif"])
def test_annotations_from_stack_frames(form, dumps, capfd):
    assert run(["explain", str(dumps / "transformer_block.frames.hlo"), "--format", form]) == 0
    out = capfd.readouterr().out
    assert re.search(r"scripts/programs/\w+\.py", out) and re.search(r'line=\d+|"startLine": \d+', out)


def test_github_shows_ten_and_says_how_many_there_are(dumps, capfd):
    file = str(dumps / "mlp_train_step.hlo")
    for more, number in (([], 10), (["--all"], 11)):
        assert run(["explain", file, "--format", "github", *more]) == 0
        *warnings, summary = capfd.readouterr().out.splitlines()
        assert len(warnings) == number and all(line.startswith("::warning ") for line in warnings)
        assert summary.startswith("::notice ") and f" 11 edges refused, {number} shown" in summary


def test_totals_are_for_the_whole_module(file, capfd):
    assert run(["explain", file, "--by", "op"]) == 0
    assert "by operation: estimated " in capfd.readouterr().out
    assert run(["explain", file, "--by", "line", "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["totals"]["by"] == "line"
    for wrong in (["a"], ["--format", "github"]):
        assert run(["explain", file, "--by", "op", *wrong]) == 2
        assert "--by is for the whole module" in capfd.readouterr().err


def test_what_belongs_together_is_checked(file, capfd):
    assert run(["check", file, "--expect-fused", "a,t", "--passes", "instruction-fusion{may-duplicate=true}"]) in (0, 1)
    capfd.readouterr()
    assert run(["check", file, "--expect-fused", "a,d"]) == 1
    done = capfd.readouterr()
    assert done.out == "" and " HLO713 a and d are not in one kernel" in done.err
    assert run(["check", file, file, "--expect-fused", "a,d"]) == 2


def test_explain_of_a_code_is_its_page(file, capfd):
    from hlo_opt.diag import reason_specs

    for spec in reason_specs():
        assert run(["explain", spec.code.lower()]) == 0
        assert capfd.readouterr().out.startswith(f"{spec.code} {spec.slug}\n")
    assert run(["explain", "FUS999"]) == 2


def test_run_writes_outputs_and_reads_inputs(file, tmp_path, capfd):
    p, q = (np.random.default_rng(n).normal(size=(64, 96)).astype(np.float32) for n in range(2))
    np.savez(tmp_path / "in.npz", in0=p, in1=q)
    for backend in ("numpy", "host"):
        assert run(["run", file, "--backend", backend, "--inputs", "in.npz", "--outputs", "out.npz"]) == 0
        with np.load(tmp_path / "out.npz") as stored:
            np.testing.assert_allclose(stored["out0"], np.tanh(p + q).sum(1), rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(stored["out1"], (p + q) @ q.T, rtol=1e-4, atol=1e-4)
    assert capfd.readouterr().out == ""
    assert run(["run", file, "--backend", "numpy", "--seed", "1"]) == 0
    assert capfd.readouterr().out.startswith("out0  float32[64]\n")


def test_types_that_numpy_lacks_travel_as_raw_bits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.hlo").write_text(
        "HloModule b\n\nENTRY e {\n  p = bf16[3]{0} parameter(0)\n  s = bf16[] parameter(1)\n"
        "  c = bf16[3]{0} broadcast(s), dimensions={}\n  ROOT r = bf16[3]{0} multiply(p, c)\n}\n"
    )
    p = np.array([1, 2, 3], ml_dtypes.bfloat16)
    np.savez(tmp_path / "in.npz", in0=p.view(np.uint16), in1=np.array(2, ml_dtypes.bfloat16).view(np.uint16))
    assert run(["run", "b.hlo", "--backend", "numpy", "--inputs", "in.npz", "--outputs", "out.npz"]) == 0
    with np.load(tmp_path / "out.npz") as stored:
        assert stored["out0"].dtype == np.uint16
        assert stored["out0"].view(ml_dtypes.bfloat16).tolist() == [2, 4, 6]


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"in0": np.zeros((64, 96), np.float32)}, "missing: in1"),
        ({f"in{n}": np.zeros((64, 96), np.float32) for n in range(3)}, "no inputs of the module: in2"),
        ({"in0": np.zeros((64, 96), np.float32), "in1": np.zeros((96, 64), np.float32)}, "float32[96,64]"),
        ({"in0": np.zeros((64, 96), np.float64), "in1": np.zeros((64, 96), np.float32)}, "float64[64,96]"),
        ({"in0": np.array([{}]), "in1": np.zeros(1, np.float32)}, "in0 holds Python objects"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(arrays, why, file, tmp_path, capfd):
    np.savez(tmp_path / "in.npz", **arrays)
    assert run(["run", file, "--inputs", "in.npz", "--outputs", "out.npz"]) == 2
    err = capfd.readouterr().err
    assert err.startswith("in.npz: ") and why in err
    assert not (tmp_path / "out.npz").exists()


def test_what_is_no_npz_is_refused(file, tmp_path, capfd):
    np.save(tmp_path / "a.npy", np.zeros(3))
    (tmp_path / "b.npz").write_bytes(b"PK\x03\x04 cut off")
    for name in ("a.npy", "b.npz", "missing.npz", "."):
        assert run(["run", file, "--inputs", name]) == 2
        assert capfd.readouterr().err.startswith(f"{name}: ")


def test_print_is_a_fixed_point(file, tmp_path, capfd):
    assert run(["print", file, "-o", "a.hlo"]) == 0
    assert run(["print", "a.hlo", "-o", "b.hlo"]) == 0
    assert (tmp_path / "a.hlo").read_text() == (tmp_path / "b.hlo").read_text()
    assert run(["print", file, "--style", "short"]) == 0
    assert "%" not in capfd.readouterr().out


def test_stats_counts(file, capfd):
    assert run(["stats", file, "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["launched"] == {"add": 1, "dot": 1, "reduce": 1, "tanh": 1}
    assert data["kernels"] == data["launches"] == 4 and data["parameters"] == 2
    assert run(["stats", file]) == 0
    assert "launched" in capfd.readouterr().out


@pytest.mark.parametrize("verb", ["passes", "ops", "targets"])
def test_lists_come_as_text_and_json(verb, capfd):
    assert run([verb]) == 0
    text = capfd.readouterr().out
    assert run([verb, "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["schema"] == 1
    for row in data[verb]:
        assert (row.get("name") or row["opcode"]) in text


def test_list_passes_and_version(capfd):
    assert run(["--list-passes"]) == 0
    assert "instruction-fusion" in capfd.readouterr().out
    assert run(["--version"]) == 0
    assert capfd.readouterr().out.startswith("hlo-opt 0.1.0\n")


def test_every_verb_is_found():
    assert all(group.group.get_command(None, verb).name == verb for verb in VERBS)


def test_print_takes_several_modules_and_says_where_in_the_file_they_are_wrong(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "two.hlo"
    part = "HloModule {0}\n\nENTRY e {{\n  ROOT p = f32[2]{{0}} {1}\n}}\n"
    file.write_text(part.format("a", "parameter(0)") + "// -----\n" + part.format("b", "parameter(0)"))
    assert run(["print", "--split-input-file", str(file)]) == 0
    first, second = capfd.readouterr().out.split("// -----\n")
    assert "HloModule a" in first and "HloModule b" in second
    file.write_text(part.format("a", "parameter(0)") + "// -----\n" + part.format("b", "negate(q)"))
    assert run(["print", "--split-input-file", str(file)]) == 2
    assert f"{file}:10:" in capfd.readouterr().err


def test_max_errors_shows_one_fault_of_each_computation(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(
        "HloModule m\n\na {\n  ROOT p = f32[2] negate(q)\n}\n\nb {\n  ROOT r = f32[2] negate(s)\n}\n\n"
        "ENTRY e {\n  ROOT t = f32[2] parameter(0)\n}\n"
    )
    for limit, lines in (("1", [4]), ("5", [4, 8])):
        assert run(["print", "--max-errors", limit, str(file)]) == 2
        error = capfd.readouterr().err
        assert [n for n in range(1, 14) if f"{file}:{n}:" in error] == lines


def test_allow_unknown_passes_opcodes_through(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(
        "HloModule m\n\nENTRY e {\n  p = f32[2]{0} parameter(0)\n  ROOT r = f32[2]{0} frobnicate(p), depth=3\n}\n"
    )
    assert run(["print", str(file)]) == 2
    assert f"{file}:5:" in capfd.readouterr().err
    assert run(["print", "--allow-unknown", str(file)]) == 0
    assert "frobnicate(" in capfd.readouterr().out
    assert run(["fuse", "--allow-unknown", str(file)]) == 0
    assert "frobnicate(" in capfd.readouterr().out


def test_stats_counts_each_computation(capfd: pytest.CaptureFixture[str]) -> None:
    dump = Path(__file__).parents[2] / "testdata" / "dumps" / "softmax.hlo"
    assert run(["stats", "--json", str(dump)]) == 0
    found = json.loads(capfd.readouterr().out)
    rows = {c["name"]: c for c in found["computations"]}
    assert rows["main.3"]["parameters"] == 1 and rows["main.3"]["flops"] > 0 and rows["main.3"]["bytes"] > 0
    assert sum(c["instructions"] for c in found["computations"]) == sum(found["opcodes"].values())


CALLS = """HloModule m

sine {
  x = f32[64]{0} parameter(0)
  s = f32[64]{0} sine(x)
  ROOT n = f32[64]{0} negate(s)
}

ENTRY e {
  p = f32[64]{0} parameter(0)
  a = f32[64]{0} call(p), to_apply=sine
  b = f32[64]{0} call(a), to_apply=sine
  k = f32[64]{0} custom-call(b), custom_call_target="opaque"
  c = f32[64]{0} call(k), to_apply=sine
  ROOT t = (f32[64]{0}, f32[64]{0}) tuple(b, c)
}
"""


def test_every_edge_that_is_shown_can_be_forced(tmp_path, capfd):
    (tmp_path / "m.hlo").write_text(CALLS)
    file = str(tmp_path / "m.hlo")

    def edges(*options):
        assert run(["explain", file, "--format", "json", "--all", *options]) == 0
        return json.loads(capfd.readouterr().out)["edges"]

    shown = edges(*(option for name in ("s", "n", "k") for option in (name,)))
    made = {d["producer"] for d in shown} - set(re.findall(r"(\w+) = ", CALLS))
    assert made, "no edge has a name that the simplify stage made"
    for d in shown:
        for ends in ((d["producer"], d["consumer"]), (d["producer_kernel"], d["consumer_kernel"])):
            if ends[0] != ends[1]:
                edges("--force", ":".join(ends))
    assert run(["fuse", file, "--force", f"{shown[0]['producer']}:{shown[0]['consumer']}"]) == 0


@pytest.mark.parametrize(
    ("edge", "said"),
    [
        ("a:r", "no kernel `r` reads a kernel `a`\n  hint: `a` is read by "),
        ("p:a", "no kernel `a` reads a kernel `p`"),
        ("a:tt", "there is no instruction 'tt'"),
        ("aa:t", "there is no instruction 'aa'"),
    ],
)
@pytest.mark.parametrize("verb", ["explain", "fuse"])
def test_an_edge_that_is_none_is_not_forced(verb, edge, said, file, capfd):
    assert run([verb, file, "--force", edge]) == 2
    done = capfd.readouterr()
    assert said in done.err and not done.out


def test_fuse_takes_the_rules_that_explain_takes(file, capfd):
    options = ["--passes", "instruction-fusion"]
    texts = []
    for rule in ([], ["--what-if", "fus403"], ["--force", "a:t"]):
        assert run(["fuse", file, *options, *rule]) == 0
        texts.append(capfd.readouterr().out)
    assert len(set(texts)) == 3  # forced, the kernel writes what others read; decided again, they compute it


APART = """HloModule m

ENTRY e {
  p = f32[64]{0} parameter(0)
  back = f32[64]{0} reverse(p), dimensions={0}
  front = f32[64]{0} reverse(back), dimensions={0}
  ROOT x = f32[64]{0} sine(front)
}
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "front",
            "`front` is in no kernel of the result: `algebraic-simplifier` rewrote it by the rule `reverse-of-reverse`",
        ),
        (
            "back",
            "`back` is in no kernel of the result: `algebraic-simplifier` took it away when it rewrote `front` by the "
            "rule `reverse-of-reverse`",
        ),
        ("x", "`x` is in kernel `x`, and no edge of it is between kernels"),
        ("fus105", "no edge is refused under FUS105"),
    ],
)
def test_what_has_no_edge_is_told(name, says, tmp_path, capsys):
    (tmp_path / "m.hlo").write_text(APART)
    for options in ([], ["-v"]):
        assert run(["explain", str(tmp_path / "m.hlo"), name, *options]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == says
