from pathlib import Path

import pytest

from hlo_opt.analysis.targets import DeviceTarget, target, target_names
from hlo_opt.diag import UsageError


def test_every_device_reads():
    names = target_names()
    assert {"h100_sxm", "h200", "a100_sxm_80", "a100_pcie_80", "b200", "a6000", "v100"} <= set(names)
    for name in names:
        found = target(name)
        assert isinstance(found, DeviceTarget)
        assert found.name == name
        assert found.architecture == f"sm_{found.compute_capability}"
        assert 1e11 < found.memory_bandwidth < 1e13


def test_an_unknown_device_names_the_nearest():
    with pytest.raises(UsageError, match="did you mean h100_sxm"):
        target("h100-sxm")


@pytest.mark.parametrize(("chip", "name"), [("a100", "a100_sxm_80"), ("H100", "h100_sxm"), ("A100_SXM", "a100_sxm_80")])
def test_a_chip_is_its_fastest_form(chip: str, name: str):
    assert target(chip) is target(name)


def test_a_part_of_a_word_is_no_chip():
    with pytest.raises(UsageError, match="did you mean b200"):
        target("b20")


def test_a_device_file(tmp_path: Path):
    text = (Path(__file__).parents[2] / "hlo_opt/analysis/targets/h100_sxm.toml").read_text()
    good = tmp_path / "mine.toml"
    good.write_text(text)
    assert target(str(good)).core_count == 132
    for wrong, message in (
        (text + "\nspeed = 3\n", "no 'speed'"),
        (text.replace("core_count = 132", 'core_count = "many"'), "core_count must be int"),
        (text.replace("core_count = 132", "core_count = 0"), "must be positive"),
        (text.replace("core_count = 132", ""), "lacks core_count"),
        ("[", "not TOML"),
    ):
        bad = tmp_path / f"bad{len(list(tmp_path.iterdir()))}.toml"
        bad.write_text(wrong)
        with pytest.raises(UsageError, match=message):
            target(str(bad))
    with pytest.raises(UsageError, match="cannot be read"):
        target(str(tmp_path / "absent.toml"))
