"""Which module of a dump's folder is read, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from form_samples import forms

from hlo_opt.cli.folders import chosen, every
from hlo_opt.cli.group import run
from hlo_opt.diag import UsageError
from hlo_opt.forms.kinds import Form

STEM = "module_0004.jit_f"
MODULE = "HloModule m\n\nENTRY e {\n  ROOT p = f32[8]{0} parameter(0)\n}\n"


def folder(path: Path, *names: str) -> Path:
    for name in names:
        (path / name).write_text(MODULE)
    return path


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (
            ("before_optimizations.txt", "cpu_after_optimizations.txt", "before_optimizations.hlo.pb"),
            "before_optimizations.txt",
        ),
        (("before_optimizations.hlo.pb", "sm_9.0_gpu_after_optimizations.txt"), "before_optimizations.hlo.pb"),
        (("before_optimizations.hlo.pb.gz", "after_optimizations.hlo.pb"), "before_optimizations.hlo.pb.gz"),
        (
            ("cpu_after_optimizations.txt", "snapshot.-77.pb", "0001.fusion.after_cse.txt"),
            "cpu_after_optimizations.txt",
        ),
        (
            ("execution_0000.hlo_unoptimized_snapshot.pb", "0000.a.after_b.txt"),
            "execution_0000.hlo_unoptimized_snapshot.pb",
        ),
        (("0002.a.after_c.before_d.txt", "0001.a.after_b.before_c.txt"), "0001.a.after_b.before_c.txt"),
    ],
)
def test_the_stage_decides(names: tuple[str, ...], taken: str, tmp_path: Path) -> None:
    folder(
        tmp_path,
        *(f"{STEM}.{name}" for name in names),
        f"{STEM}.cpu_after_optimizations-buffer-assignment.txt",
        f"{STEM}.ir.ll",
    )
    assert chosen(tmp_path).name == f"{STEM}.{taken}"


def test_others_are_left_with_a_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder(
        tmp_path,
        f"{STEM}.before_optimizations.txt",
        f"{STEM}.cpu_after_optimizations.txt",
        f"{STEM}.0001.a.after_b.txt",
        f"{STEM}.debug_options",
    )
    (tmp_path / "module_0009.jit_g.1.before_optimizations.txt").write_text(MODULE * 2)
    assert chosen(tmp_path).name == "module_0009.jit_g.1.before_optimizations.txt"
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"hlo-opt: {tmp_path}: takes module_0009.jit_g.1.before_optimizations.txt, before XLA's optimisations",
        f"hlo-opt:   left: {STEM}.before_optimizations.txt: of 1 smaller program",
        "hlo-opt:   left: 1 file without a module",
    ]
    (tmp_path / "module_0009.jit_g.1.before_optimizations.txt").unlink()
    assert chosen(tmp_path).name == f"{STEM}.before_optimizations.txt"
    assert [line.partition("left: ")[2] for line in capsys.readouterr().err.splitlines()[1:]] == [
        f"{STEM}.cpu_after_optimizations.txt: after XLA's optimisations",
        f"{STEM}.0001.a.after_b.txt: after one of XLA's passes",
        "1 file without a module",
    ]


def test_a_folder_of_ours(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a folder without a module"):
        chosen(tmp_path)
    (tmp_path / "m.mlir").write_text("")
    (tmp_path / "notes.txt").write_text("")
    assert chosen(tmp_path).name == "m.mlir"
    (tmp_path / "n.hlo.gz").write_text("")
    with pytest.raises(UsageError, match="a folder with 2 modules") as caught:
        chosen(tmp_path)
    assert caught.value.hint == "name one: m.mlir, n.hlo.gz"


def test_verbs_take_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / f"{STEM}.before_optimizations.hlo.pb").write_bytes(forms()[Form.PROTO])
    assert run(["print", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("HloModule m")


def test_every_program_of_a_folder(tmp_path: Path) -> None:
    folder(
        tmp_path,
        f"{STEM}.before_optimizations.txt",
        f"{STEM}.cpu_after_optimizations.txt",
        f"{STEM}.cpu_after_optimizations-buffer-assignment.txt",
        "module_0007.jit_g.cpu_after_optimizations.txt",
        "module_0007.jit_g.0001.a.after_b.txt",
        "z.hlo",
        "a.mlir",
        "notes.txt",
    )
    (tmp_path / "deeper.hlo").mkdir()
    names = [path.name for path in every(tmp_path)]
    assert names == [
        "a.mlir",
        f"{STEM}.before_optimizations.txt",
        "module_0007.jit_g.cpu_after_optimizations.txt",
        "z.hlo",
    ]
