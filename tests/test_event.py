"""Room ids as people type them."""

import pytest

from tracekv.event import Event, parse_room


@pytest.mark.parametrize(
    ("text", "room"), [("7", 7), (" 0x1F ", 31), ("0XFF", 255), (str(2**64 - 1), 2**64 - 1), ("007", 7)]
)
def test_decimal_and_hex(text: str, room: int) -> None:
    assert parse_room(text) == room


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0x",
        "1_000",
        "\u0661\u0662",
        "+7",
        "-1",
        "1.0",
        "1e3",
        "7 8",
        "0b1",
        str(2**64),
        "0x1_0",
        "\u00b2",
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"room|number"):
        parse_room(text)


def test_attrs_that_nest_too_deep_say_nothing() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    assert Event(seq=1, op="x", process="p", attrs=deep).attr("host", "none") == "none"
