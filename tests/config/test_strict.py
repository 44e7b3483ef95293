import math
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from fourge.config.strict import Many, Number, Strict, Text, explain, refusal, shown


class Wheel(Strict):
    size: Annotated[int, Field(ge=1)] = 1
    kind: Literal["wood", "rubber"] = "wood"


class Cart(Strict):
    name: Text
    load: Annotated[Number, Field(gt=0, le=10)] = 1.0
    spare: Annotated[Number, Field(ge=0, lt=1)] | None = None
    is_red: bool = False
    wheels: Many[Wheel] = ()
    first: Wheel = Wheel()


def mistakes(**settings: object) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        Cart.model_validate({"name": "a", **settings})
    return [str(mistake) for mistake in explain(Cart, caught.value)]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"name": 3}, "name: is 3; it must be text"),
        ({"name": ""}, "name: is empty; it must not be"),
        ({"name": None}, "name: is null; it must be text"),
        ({"load": "abc"}, "load: is 'abc'; it must be a number"),
        ({"load": "0.5"}, "load: is '0.5'; it must be a number"),
        ({"load": True}, "load: is true; it must be a number"),
        ({"load": 0}, "load: is 0; it must be more than 0"),
        ({"load": 10.5}, "load: is 10.5; it must be 10 or less"),
        ({"load": math.inf}, "load: is inf; it must be a finite number"),
        ({"spare": -1}, "spare: is -1; it must be 0 or more"),
        ({"spare": 1}, "spare: is 1; it must be less than 1"),
        ({"is_red": 1}, "is_red: is 1; it must be true or false"),
        ({"is_red": "yes"}, "is_red: is 'yes'; it must be true or false"),
        ({"wheels": 4}, "wheels: is 4; it must be a list, as in [one, two]"),
        ({"wheels": {}}, "wheels: is a mapping; it must be a list, as in [one, two]"),
        ({"wheels": [{}, 7]}, "wheels.1: is 7; it must be settings, as in {name: value}"),
        ({"first": [1]}, "first: is a list; it must be settings, as in {name: value}"),
        ({"first": {"size": "2"}}, "first.size: is '2'; it must be a whole number"),
        ({"first": {"size": 2.0}}, "first.size: is 2.0; it must be a whole number"),
        ({"first": {"size": 0}}, "first.size: is 0; it must be 1 or more"),
        ({"first": {"kind": "stone"}}, "first.kind: is 'stone'; one of: wood, rubber"),
        (
            {"first": {"kind": "ruber"}},
            "first.kind: is 'ruber'; one of: wood, rubber; did you mean rubber?",
        ),
    ],
)
def test_a_wrong_value_is_said_with_what_it_must_be(settings: dict[str, object], says: str) -> None:
    assert mistakes(**settings) == [says]


def test_an_unknown_name_is_a_mistake_at_every_depth() -> None:
    found = mistakes(nam="b", wheels=[{}, {"sise": 2}], first={"zzz": 1}, qqq=0)
    assert found == [
        "wheels.1.sise: no such setting; did you mean size?",
        "first.zzz: no such setting",
        "nam: no such setting; did you mean name?",
        "qqq: no such setting",
    ]


def test_a_name_that_belongs_elsewhere_is_pointed_to() -> None:
    assert mistakes(kind="wood") == ["kind: no such setting; did you mean first.kind?"]


def test_a_key_that_is_not_text_is_no_setting() -> None:
    with pytest.raises(ValidationError) as caught:
        Cart.model_validate({"name": "a", 3: 1})
    assert [str(each) for each in explain(Cart, caught.value)] == ["3: no such setting"]


def test_a_missing_setting_is_required() -> None:
    with pytest.raises(ValidationError) as caught:
        Cart.model_validate({})
    assert [str(each) for each in explain(Cart, caught.value)] == ["name: is required"]


@pytest.mark.parametrize(
    ("text", "value"), [("1e-5", 1e-5), ("1.0e1", 10), ("+.5E0", 0.5), ("2e+0", 2), ("1.e0", 1)]
)
def test_a_number_that_yaml_takes_for_text_is_a_number(text: str, value: float) -> None:
    assert Cart(name="a", load=text).load == value  # type: ignore[arg-type]


@given(st.text(max_size=12))
def test_no_other_text_is_a_number(text: str) -> None:
    if not ("e" in text.lower() and any(letter.isdigit() for letter in text)):
        assert mistakes(load=text) == [f"load: is {text!r}; it must be a number"]


def test_a_list_is_kept_as_a_tuple_and_nothing_can_be_changed() -> None:
    cart = Cart.model_validate({"name": "a", "wheels": [{"size": 2}]})
    assert cart.wheels == (Wheel(size=2),)
    with pytest.raises(ValidationError):
        cart.name = "b"


def test_a_long_value_is_cut_to_a_line() -> None:
    assert len(shown("x" * 1000)) == 60
    assert len(shown(10**500)) == 60


def test_all_mistakes_are_one_error_with_a_line_each() -> None:
    with pytest.raises(ValidationError) as caught:
        Cart.model_validate({"load": 0})
    error = refusal("cart.yaml is not a cart.", explain(Cart, caught.value))
    assert str(error).splitlines() == [
        "cart.yaml is not a cart.",
        "  name: is required",
        "  load: is 0; it must be more than 0",
    ]
