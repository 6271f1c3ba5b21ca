"""Entry points of packages: found by name, refused when a name is taken, and blamed by name when they do not load."""

from __future__ import annotations

import pytest

from hlo_opt.diag import UsageError
from hlo_opt.diag.plugins import plugins


def test_plugins_come_by_name(fake_plugins) -> None:
    fake_plugins("hlo_opt.passes", zebra="z:Z", ant="a:A")
    assert [(p.name, p.value, p.package) for p in plugins("hlo_opt.passes")] == [
        ("ant", "a:A", "fake 1.0"),
        ("zebra", "z:Z", "fake 1.0"),
    ]
    assert plugins("hlo_opt.choices") == []


def test_a_name_that_is_taken_is_an_error(fake_plugins) -> None:
    fake_plugins("hlo_opt.passes", dce="a:A")
    with pytest.raises(
        UsageError, match=r"plugin 'dce' .a:A, from fake 1.0. has a name that hlo-opt itself declares"
    ) as caught:
        plugins("hlo_opt.passes", ["dce"])
    assert caught.value.code == "HLO311"


def test_two_packages_cannot_share_a_name(fake_plugins) -> None:
    fake_plugins("hlo_opt.passes", mine="a:A")
    fake_plugins("hlo_opt.passes", package="other", mine="b:B")
    with pytest.raises(UsageError, match=r"plugin 'mine' .*from other 1.0.* that fake 1.0 declares") as caught:
        plugins("hlo_opt.passes")
    assert caught.value.code == "HLO311"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("no_such_module_here:A", "ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("hlo_opt.diag:no_such_name", "AttributeError"),
        ("not an object", "cannot be loaded"),
    ],
)
def test_one_that_does_not_load_is_named(value: str, why: str, fake_plugins) -> None:
    fake_plugins("hlo_opt.passes", broken=value)
    (plugin,) = plugins("hlo_opt.passes")
    with pytest.raises(UsageError) as caught:
        plugin.load()
    assert caught.value.code == "HLO310"
    assert (
        "plugin 'broken'" in caught.value.message and "fake 1.0" in caught.value.message and why in caught.value.message
    )
