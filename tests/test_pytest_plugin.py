"""The pytest plugin: golden files are tests where a project asks for it, and nowhere else."""

from __future__ import annotations

import pytest

MODULE = "HloModule m\n\nENTRY e {\n  ROOT p = f32[8]{0} parameter(0)\n}\n"
PRINT = "// RUN: hlo-opt print %s\n"


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    for folder in ("goldens", "data"):
        made = pytester.mkdir(folder)
        (made / "good.hlo").write_text(PRINT + MODULE)
        (made / "dump.hlo").write_text(MODULE)
    bad = pytester.path / "goldens" / "bad.hlo"
    bad.write_text(PRINT + MODULE)
    bad.with_name("bad.golden.hlo").write_text("HloModule \x1b[31mother\n")
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return project.runpytest_inprocess(
        "-p", "hlo_opt.pytest_plugin", "-p", "no:xdist", "-p", "no:cacheprovider", *arguments
    )


def test_nothing_is_collected_unasked(project: pytest.Pytester) -> None:
    run(project).assert_outcomes()
    run(project, "goldens/good.hlo").assert_outcomes()


def test_the_setting_names_folders_and_the_difference_is_shown(project: pytest.Pytester) -> None:
    project.makepyprojecttoml('[tool.pytest.ini_options]\nhlo_opt_goldens = ["goldens"]\n')
    done = run(project, "-v")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(
        [
            "goldens/bad.hlo::golden FAILED*",
            "goldens/good.hlo::check PASSED*",
            "*bad.hlo: prints something else than bad.golden.hlo",
            "-HloModule \\x1b[[]31mother",
            "+HloModule m",
        ]
    )
    done.stdout.no_fnmatch_line("*Traceback*")


def test_the_option_collects_everywhere_and_updates(project: pytest.Pytester) -> None:
    run(project, "--hlo-opt-goldens").assert_outcomes(passed=2, failed=1)
    run(project, "--hlo-opt-goldens", "--hlo-opt-update").assert_outcomes(passed=3)
    assert (project.path / "goldens" / "bad.golden.hlo").read_text().startswith("HloModule m\n")
    run(project, "--hlo-opt-goldens", "goldens/bad.hlo").assert_outcomes(passed=1)


def test_a_run_line_is_no_more_trusted_than_elsewhere(project: pytest.Pytester) -> None:
    (project.path / "goldens" / "evil.hlo").write_text(f"// RUN: hlo-opt print %s -o stolen\n{MODULE}")
    done = run(project, "--hlo-opt-goldens", "goldens/evil.hlo")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*HLO340 a RUN line cannot give `-o` to `hlo-opt print`"])
    assert not (project.path / "stolen").exists()


def test_a_folder_of_the_setting_that_does_not_exist_is_an_error(project: pytest.Pytester) -> None:
    project.makepyprojecttoml('[tool.pytest.ini_options]\nhlo_opt_goldens = ["goldens", "golden"]\n')
    done = run(project)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*hlo_opt_goldens: there is no folder *golden"])
