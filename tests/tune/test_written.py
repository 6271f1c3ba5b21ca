"""The file of options that a search leaves."""

from __future__ import annotations

import tomllib
from dataclasses import replace

from hlo_opt.analysis.graph.digest import module_digest
from hlo_opt.cli.fusing import KINDS
from hlo_opt.passes import parse_pipeline
from hlo_opt.text import parse
from hlo_opt.tune import tune
from hlo_opt.tune.written import toml

TEXT = """HloModule m

ENTRY e {
  p = f32[64]{0} parameter(0)
  a = f32[64]{0} negate(p)
  ROOT b = f32[64]{0} tanh(a)
}
"""


def test_every_key_is_an_option_of_fuse() -> None:
    tuned = tune(TEXT, trials=3)
    setting = replace(tuned.setting, forbid=(("a", "b"),), force=(('c"\n', "d"),))
    task = replace(tuned.task, trip_counts={"w": 7})
    text = toml(replace(tuned, module='m"\nforce = []', setting=setting, task=task, changes=("a\nb",)))
    values = tomllib.loads(text)
    assert set(values) <= set(KINDS)
    assert values == {
        "fingerprint": module_digest(parse(TEXT)),
        "target": "h100_sxm",
        "simplify": "always",
        "passes": setting.pipeline.spelt(),
        "forbid": ["a:b"],
        "force": ['c"\n:d'],
        "trip-count": ["w=7"],
    }
    assert parse_pipeline(",".join(values["passes"])) == tuned.setting.pipeline
    assert text.count("\n#") == 1 and text.startswith("# ")


def test_what_is_not_needed_is_left_out() -> None:
    values = tomllib.loads(toml(tune(TEXT, trials=3, simplify="never")))
    assert set(values) == {"fingerprint", "target", "simplify", "passes"} and values["simplify"] == "never"


def test_a_device_of_a_file_is_named_by_its_path(tmp_path) -> None:
    from importlib import resources

    path = tmp_path / "mine.toml"
    path.write_text(resources.files("hlo_opt.analysis.targets").joinpath("v100.toml").read_text())
    assert tomllib.loads(toml(tune(TEXT, trials=3, target=str(path))))["target"] == str(path)
    assert tomllib.loads(toml(tune(TEXT, trials=3, target="v100")))["target"] == "v100"
