import keyword

from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_opt.runtime.driver.writer import Namespace, sanitised


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=80), max_size=20))
def test_names_are_distinct_identifiers(wishes: list[str]) -> None:
    space = Namespace({"cupy"})
    names = [space.take(w) for w in [*wishes, "cupy", "class", "print", "match"]]
    assert len(set(names)) == len(names)
    for name in names:
        assert name.isidentifier() and name.isascii() and not keyword.iskeyword(name)
        assert name not in ("cupy", "print")


def test_sanitised_keeps_what_is_safe() -> None:
    assert sanitised("fusion.12") == "fusion_12"
    assert sanitised("a\nimport os") == "a_import_os"
    assert sanitised("9lives") == "v9lives"
    assert sanitised("") == "v"
    assert len(sanitised("x" * 500)) == 60
