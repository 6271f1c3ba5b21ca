"""Whatever is wrong with the input: one error with its place, exit status 2, no traceback, no output left behind."""

import re
import shlex

import pytest

from hlo_opt.cli.group import VERBS, run

GOOD = """HloModule m

ENTRY e {
  p = f32[8]{0} parameter(0)
  q = f32[8]{0} parameter(1)
  a = f32[8]{0} add(p, q)
  ROOT r = f32[8]{0} multiply(a, p)
}
"""
LINE = {
    "cut-off": (GOOD[: GOOD.index("multiply")], None),
    "unknown op": (GOOD.replace("add(", "ad("), 6),
    "operand count": (GOOD.replace("add(p, q)", "add(p)"), 6),
    "unknown operand": (GOOD.replace("add(p, q)", "add(p, nope)"), 6),
    "wrong shape": (GOOD.replace("a = f32[8]", "a = f32[9]"), 6),
    "unknown type": (GOOD.replace("a = f32[8]", "a = f33[8]"), 6),
    "duplicate name": (GOOD.replace("a = f32", "p = f32"), 6),
    "not HLO": ("hello world\n", 1),
    "empty": ("", 1),
    "blank": (" \n", 1),
    "binary": (b"\x7fELF\0\0\xff", 1),
    "deep": ("HloModule m\nENTRY e {\n  ROOT p = " + "(" * 100000 + "f32[]", None),
    "huge number": (GOOD.replace("[8]", "[" + "9" * 5000 + "]"), None),
}
VERBS_WITH_FILE = ["fuse", "explain", "run", "check", "print", "stats"]


def write(folder, content):
    path = folder / "bad.hlo"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def arguments(verb, path, folder):
    extra = {
        "fuse": ["-o", folder / "o.hlo", "--stats", folder / "s.json", "--emit", folder / "d", "--check"],
        "run": ["--outputs", folder / "o.npz"],
        "print": ["-o", folder / "o.hlo"],
    }
    return [verb, str(path), *map(str, extra.get(verb, []))]


def errors(text):
    return [line for line in text.splitlines() if re.search(r"\b(HLO\d{3}|error)\b", line, re.IGNORECASE)]


@pytest.mark.parametrize("name", LINE)
@pytest.mark.parametrize("verb", ["fuse", "print"])
def test_a_malformed_module_has_one_error_with_its_place(verb, name, tmp_path, capfd):
    content, line = LINE[name]
    path = write(tmp_path, content)
    assert run(arguments(verb, path, tmp_path)) == 2
    done = capfd.readouterr()
    assert done.out == ""
    assert "Traceback" not in done.err and "internal error" not in done.err
    assert len(errors(done.err)) == 1, done.err
    place = re.match(rf"{re.escape(str(path))}:(\d+):(\d+): HLO\d{{3}} ", done.err)
    assert place, done.err
    assert line is None or int(place[1]) == line, done.err
    assert [p.name for p in tmp_path.iterdir()] == ["bad.hlo"]


@pytest.mark.parametrize("verb", VERBS_WITH_FILE)
def test_a_path_that_cannot_be_read_is_named(verb, tmp_path, capfd):
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in (tmp_path / "missing.hlo", folder):
        assert run(arguments(verb, path, tmp_path)) == 2
        done = capfd.readouterr()
        assert done.out == "" and "Traceback" not in done.err
        assert done.err.startswith(f"{path}: HLO300 ") and len(errors(done.err)) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("verb", VERBS_WITH_FILE)
def test_every_verb_refuses_a_cut_off_file(verb, tmp_path, capfd):
    path = write(tmp_path, GOOD[:60])
    assert run(arguments(verb, path, tmp_path)) == 2
    done = capfd.readouterr()
    assert done.out == "" and len(errors(done.err)) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["bad.hlo"]


@pytest.mark.parametrize(
    "options",
    [
        ["--preset", "no-such-preset"],
        ["--passes", "no-such-pass"],
        ["--passes", "dce{no-such-option=1}"],
        ["--passes", "dce{"],
        ["--target", "no-such-target"],
        ["--simplify", "perhaps"],
        ["--effort", "3"],
        ["--backend", "abacus", "--check"],
        ["--print-after", "no-such-pass"],
        ["--config", "missing.toml"],
        ["--inputs", "missing.npz", "--check"],
        ["--stop-after-step", "-1"],
        ["--no-such-option"],
        ["-o", "no/such/folder/o.hlo"],
        ["--stats", "."],
    ],
    ids=lambda options: " ".join(options),
)
def test_bad_usage_of_fuse(options, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.hlo").write_text(GOOD)
    assert run(["fuse", "good.hlo", "-o", "o.hlo", *options]) == 2
    done = capfd.readouterr()
    assert done.out == "" and "Traceback" not in done.err and "internal error" not in done.err
    assert len(errors(done.err)) == 1, done.err
    assert [p.name for p in tmp_path.iterdir()] == ["good.hlo"]


def test_names_steer_no_terminal(tmp_path, capfd):
    path = write(
        tmp_path, GOOD.replace("HloModule m", "HloModule m\n// \x1b[31m").replace("add(p, q)", "add(p, \x1b]0;x\x07)")
    )
    assert run(["print", str(path)]) == 2
    assert "\x1b" not in capfd.readouterr().err


@pytest.mark.parametrize("arguments", [["no-such-verb"], ["fuze", "x"], ["--no-such-option"], ["fuse"]], ids=" ".join)
def test_bad_usage_of_the_command(arguments, capfd):
    assert run(arguments) == 2
    done = capfd.readouterr()
    assert done.out == "" and errors(done.err) == [done.err.splitlines()[0]] and "  hint: " in done.err
    assert arguments != ["fuze", "x"] or "did you mean fuse?" in done.err


def test_a_file_in_the_place_of_a_verb_names_one(tmp_path, capfd):
    path = write(tmp_path, GOOD)
    assert run([str(path)]) == 2
    assert f"a verb comes before the file: hlo-opt explain {path}" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--stop-after-step", "x"], "'x' is not a whole number from 0 on"),
        (["--stop-after-step", "-1"], "'-1' is not a whole number from 0 on"),
        (["--backend", "gpu"], "there is no backend 'gpu'"),
    ],
    ids=["a word", "below the least", "a backend"],
)
def test_a_wrong_value_is_refused_in_plain_words(options, message, tmp_path, capfd):
    assert run(["fuse", str(write(tmp_path, GOOD)), *options]) == 2
    done = capfd.readouterr()
    assert done.out == "" and message in done.err


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_named(encoding, tmp_path, capfd):
    assert run(["stats", str(write(tmp_path, GOOD.encode(encoding)))]) == 2
    assert "it is UTF-16" in capfd.readouterr().err


def test_another_encoding_is_named_with_its_place(tmp_path, capfd):
    assert run(["stats", str(write(tmp_path, GOOD.replace("HloModule m", "HloModule mé").encode("latin-1")))]) == 2
    done = capfd.readouterr().err
    assert "bad.hlo:1:12: HLO100 not text: byte 0xe9" in done and "save it as UTF-8" in done


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ("parameter(0)", "paramter(0)", "found '0'", "did you mean parameter?"),
        ("parameter(0)", "constent(7)", "found '7'", "did you mean constant?"),
        ("parameter(0)", "negate(7)", "found '7'", "only parameter and constant take a number"),
        ("[8]", f"[{10**20}]", "expected a dimension size of 0 to 2^63 - 1", ""),
    ],
)
def test_a_slip_of_the_pen_is_named(old, new, message, hint, tmp_path, capfd):
    assert run(["stats", str(write(tmp_path, GOOD.replace(old, new, 1)))]) == 2
    done = capfd.readouterr().err
    assert "HLO100" in done and message in done and hint in done


def test_calls_that_nest_too_deeply_are_refused_at_their_line(tmp_path, capfd):
    text = "HloModule m\nc0 { ROOT p = f32[8] parameter(0) }\n"
    text += "".join(
        f"c{i} {{ p = f32[8] parameter(0) ROOT r = f32[8] call(p), to_apply=c{i - 1} }}\n" for i in range(1, 300)
    )
    path = write(tmp_path, text + "ENTRY e { p = f32[8] parameter(0) ROOT r = f32[8] call(p), to_apply=c299 }\n")
    assert run(["stats", str(path)]) == 2
    assert ":202:" in (said := capfd.readouterr().err) and "computations call each other more than 200 deep" in said


def test_a_text_without_hlo_says_what_a_file_may_be(tmp_path, capfd):
    assert run(["stats", str(write(tmp_path, "hello world\n"))]) == 2
    assert "`hlo-opt help forms`" in capfd.readouterr().err


def test_codes_that_explain_cannot_show(tmp_path, capfd):
    assert run(["explain", "FUS201", "FUS202"]) == 2
    assert "comes alone" in capfd.readouterr().err
    assert run(["explain", str(write(tmp_path, GOOD)), "FUS999"]) == 2
    assert "there is no reason 'FUS999'" in capfd.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb, capfd):
    assert run([verb, "--help"]) == 0
    assert capfd.readouterr().out.startswith(f"Usage: hlo-opt {verb} ")


def test_a_closed_stdout_is_one_error(monkeypatch, capfd):
    monkeypatch.setattr("sys.stdout", None)
    assert run(["passes"]) == 2
    assert capfd.readouterr().err == "stdout: HLO300 is closed\n"


@pytest.mark.parametrize("second", ["--stats", "--emit"])
def test_outputs_in_one_place_are_refused(second, tmp_path, capfd):
    path = write(tmp_path, GOOD)
    assert run(["fuse", str(path), "-o", f"{tmp_path}/o", second, f"{tmp_path}/./o"]) == 2
    assert "need different places" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == [path]


def test_a_foreign_folder_is_told_before_any_work(tmp_path, capfd):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "mine.txt").write_text("x")
    assert run(["fuse", str(tmp_path / "missing.hlo"), "--emit", str(tmp_path / "d")]) == 2
    assert errors(capfd.readouterr().err) == [f"HLO331 {tmp_path}/d holds mine.txt, which hlo-opt did not write"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("test m.hlo --timeout nan", "'nan' is not a number of seconds from 0 to 86400"),
        ("test m.hlo --timeout inf", "HLO363 --timeout: 'inf' is not a number of seconds from 0 to 86400"),
        ("view m.hlo --source-root none", "none: HLO300 no such folder"),
        ("explain m.hlo --by line --source-root m.hlo", "m.hlo: HLO300 no such folder"),
        ("run m.hlo --elided some", "some: HLO300 no such file"),
        ("print m.hlo --style pretty", "hint: styles: canonical, as-read, short"),
        ("bisect m.hlo --watch 'kernels > nan'", "HLO300 'nan' is no number"),
        ("bisect . m.hlo", ".: HLO300 Is a directory"),
        ("print ''", "HLO300 the name of the file is empty"),
    ],
)
def test_a_wrong_value_is_refused_before_anything_is_done(words, why, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.hlo").write_text(GOOD)
    assert run(shlex.split(words)) == 2
    done = capfd.readouterr()
    assert done.out == "" and why in done.err and "internal error" not in done.err
    assert [p.name for p in tmp_path.iterdir()] == ["m.hlo"]


def test_a_folder_without_permission_holds_no_missing_goldens(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert run(["test", str(tmp_path)]) == 2
    assert capfd.readouterr().err == f"{tmp_path}: HLO300 permission denied\n"
