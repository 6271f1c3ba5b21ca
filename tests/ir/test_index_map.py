import math

from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_opt.ir import index_map as im


def value_of(e: im.Expression, values: dict[str, int]) -> int:
    match e:
        case im.Constant():
            return e.value
        case im.Variable():
            return values[e.name]
        case im.Sum():
            return value_of(e.left, values) + value_of(e.right, values)
        case im.Product():
            return value_of(e.left, values) * e.factor
        case im.Quotient():
            return value_of(e.left, values) // e.divisor
        case im.Remainder():
            return value_of(e.left, values) % e.divisor
    raise AssertionError(e)


SIZES = {"i": 7, "j": 4, "k": 12}


@st.composite
def pairs(draw: st.DrawFn) -> tuple[im.Expression, str]:
    """A simplified expression and the plain Python that it must equal."""
    made: tuple[im.Expression, str] = draw(
        st.sampled_from(
            [(im.variable(n, s), n) for n, s in SIZES.items()] + [(im.constant(3), "3"), (im.constant(-2), "(-2)")]
        )
    )
    for _ in range(draw(st.integers(0, 6))):
        e, text = made
        operation, number = draw(st.sampled_from("+*/%")), draw(st.integers(1, 13))
        if operation == "+":
            other, other_text = draw(st.sampled_from([(im.variable(n, s), n) for n, s in SIZES.items()]))
            made = im.add(e, im.multiply(other, number)), f"({text}+{other_text}*{number})"
        elif operation == "*":
            made = im.multiply(e, number - 3), f"({text}*{number - 3})"
        else:
            made = (
                (im.divide if operation == "/" else im.modulo)(e, number),
                f"({text}{'//' if operation == '/' else '%'}{number})",
            )
    return made


@settings(max_examples=300, deadline=None)
@given(pairs(), st.fixed_dictionaries({n: st.integers(0, s - 1) for n, s in SIZES.items()}))
def test_simplification_keeps_values_and_ranges(pair: tuple[im.Expression, str], values: dict[str, int]):
    e, text = pair
    want = eval(text, {}, values)  # the text is made above
    assert value_of(e, values) == want
    assert e.low <= want <= e.high
    assert not (im.is_even(e) and want % 2)


def test_even_forms() -> None:
    i, j = im.variable("i", 8), im.variable("j", 4)
    assert im.is_even(im.add(im.multiply(i, 4), im.multiply(j, 6))) and im.is_even(im.constant(0))
    assert not im.is_even(i) and not im.is_even(im.add(im.multiply(i, 4), im.multiply(j, 3)))


def test_a_reshape_there_and_back_is_the_identity():
    i, j = im.variable("i", 8), im.variable("j", 4)
    position = im.linearize((i, j), (8, 4))
    assert im.delinearize(position, (8, 4)) == (i, j)
    a, b = im.delinearize(position, (4, 8))
    assert im.delinearize(im.linearize((a, b), (4, 8)), (8, 4)) != ()
    assert str(im.divide(position, 2)) == "((i * 2) + (j / 2))"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_delinearize_inverts_linearize(sizes: list[int], data: st.DataObject):
    position = data.draw(st.integers(0, math.prod(sizes) - 1))
    p = im.Variable(0, math.prod(sizes) - 1, "p")
    index = [value_of(e, {"p": position}) for e in im.delinearize(p, sizes)]
    assert all(0 <= x < s for x, s in zip(index, sizes, strict=True))
    assert value_of(im.linearize([im.constant(x) for x in index], sizes), {}) == position


def test_conditions_that_always_hold_disappear():
    d0 = im.variable("d0", 10)
    made = im.IndexMap((im.add(d0, im.constant(-2)),), conditions=(im.Condition(d0, 2, 5),))
    assert made.conditions_at((im.add(im.variable("x", 3), im.constant(2)),)) == ()
    assert len(made.conditions_at((im.variable("x", 3),))) == 1
    assert not made.is_identity and im.identity((3, 1, 5)).is_identity


def test_digits_of_a_sum_that_another_digit_follows() -> None:
    """(70 i + j) / 770 needs no more than i when j < 70."""
    i, j = im.variable("i", 33), im.variable("j", 70)
    place = im.add(im.multiply(i, 70), j)
    assert im.divide(place, 770) == im.divide(i, 11)
    assert im.modulo(place, 770) == im.add(im.multiply(im.modulo(i, 11), 70), j)
    index = im.delinearize(place, (3, 11, 70))
    assert im.linearize(index, (3, 11, 70)) == place


OWN = {"i": 7, "j": 4}


@settings(max_examples=300, deadline=None)
@given(st.lists(pairs(), min_size=1, max_size=3), st.integers(0, SIZES["k"] - 1))
def test_an_index_takes_no_fewer_places_than_its_digits_say(made: list[tuple[im.Expression, str]], k: int) -> None:
    index = [e for e, _ in made]
    points = [{"i": i, "j": j, "k": k} for i in range(OWN["i"]) for j in range(OWN["j"])]
    assert im.distinct_places(index, OWN) <= len({tuple(value_of(e, at) for e in index) for at in points})


def test_digits_that_do_not_overlap_say_what_a_variable_is() -> None:
    i, j, k = (im.variable(name, size) for name, size in SIZES.items())
    assert im.distinct_places([im.add(im.multiply(i, 4), j)], OWN) == 28
    assert im.distinct_places([k, im.divide(i, 2), im.modulo(i, 2)], OWN) == 7
    assert im.distinct_places([im.modulo(i, 2), k], OWN) == 2
    assert im.distinct_places([im.add(i, j)], OWN) == 1  # they overlap: nothing is said


def test_equal_expressions_have_equal_hashes() -> None:
    one, other = (im.Sum(0, 9, im.Variable(0, 4, "i"), im.Variable(0, 5, "j")) for _ in range(2))
    assert one == other and one is not other and hash(one) == hash(other) == hash(one)


def test_a_part_of_a_digit_joins_its_neighbours() -> None:
    """(x mod 128) / 2 is a digit of x, too: with those above it, it is x / 2 again."""
    x = im.variable("x", 1 << 20)
    digit = im.divide(im.modulo(x, 128), 2)
    assert digit == im.modulo(im.divide(x, 2), 64)
    assert im.add(im.multiply(im.divide(x, 128), 64), digit) == im.divide(x, 2)
