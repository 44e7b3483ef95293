"""The rows of a text file, as (role, content) pairs: the syntax, and nothing of the meaning.

Each function gives, for every row, the number of its line and a way to read it; reading a row
raises ``DataError`` for that row alone, so that a caller can go on and name all the bad ones.

Lines end at a newline only: the other characters that Unicode calls a line break belong to the
text. Keys of a JSON object that only describe a row (an id, a category) are passed over; those
that would change what is said (tools, a system text, images) are refused.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial

from fourge.core.errors import DataError

Pairs = tuple[tuple[str, str], ...]
Rows = Iterator[tuple[int, Callable[[], Pairs]]]

_OPENAI = {"system": "system", "user": "user", "assistant": "assistant"}
_SHAREGPT = {"system": "system", "human": "user", "gpt": "assistant"}
_SHAPES = {
    "prompt and response": {"prompt", "response"},
    "messages": {"messages"},
    "conversations": {"conversations"},
}
_MEANINGFUL = ("audios", "functions", "images", "system", "tools", "videos")
_HEADER_LEFT = {"prompt", "question", "input", "instruction", "user", "source"}
_HEADER_RIGHT = {"target", "answer", "response", "output", "completion", "assistant"}


def tsv_rows(text: str) -> Rows:
    """``prompt<TAB>target``; blank lines and lines that start with ``#`` are no rows."""
    first = True
    for number, line in _lines(text):
        if not line.startswith("#"):
            yield number, partial(_tsv_pairs, line, first=first)
            first = False


def jsonl_rows(text: str) -> Rows:
    """A JSON object a line."""
    for number, line in _lines(text):
        yield number, partial(_json_line, line)


def json_rows(text: str) -> Rows:
    """A list of JSON objects; without its bracket, an object a line."""
    if not text.lstrip().startswith("["):
        yield from jsonl_rows(text)
        return
    try:
        _parse(text)
    except DataError as error:  # where a list breaks, no row of it is sure
        yield getattr(error.__cause__, "lineno", 1), partial(_json_line, text)
        return
    yield from _elements(text)


def _elements(text: str) -> Rows:
    """Each element of a list that is known to be JSON, with the line it begins on."""
    decoder, gap = json.JSONDecoder(), re.compile(r"[\s,]*")
    line, counted, at = 1, 0, text.index("[") + 1
    while True:
        at += len(gap.match(text, at).group())  # type: ignore[union-attr]  # it may be empty
        if text[at] == "]":
            return
        line, counted = line + text.count("\n", counted, at), at
        value, at = decoder.raw_decode(text, at)
        yield line, partial(_json_pairs, value)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line.removesuffix("\r")


def _tsv_pairs(line: str, *, first: bool) -> Pairs:
    cells = line.split("\t")
    if len(cells) != 2:
        found = "no tab" if len(cells) == 1 else f"{len(cells) - 1} tabs"
        raise DataError(f"{found}, where one is to stand between prompt and target")
    if first and is_header(*cells):
        raise DataError("a header, not a row; put # in front of it")
    return ("user", cells[0]), ("assistant", cells[1])


def is_header(left: str, right: str) -> bool:
    """Whether two cells name columns instead of saying something."""
    return left.strip().lower() in _HEADER_LEFT and right.strip().lower() in _HEADER_RIGHT


def _json_line(line: str) -> Pairs:
    return _json_pairs(_parse(line))


def _parse(text: str) -> object:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise DataError("not JSON: nested too deeply") from error
    except ValueError as error:
        raise DataError(f"not JSON: {error}") from error


def _json_pairs(row: object) -> Pairs:
    if not isinstance(row, dict):
        raise DataError(f"{_kind(row)}, not an object")
    shapes = [name for name, keys in _SHAPES.items() if keys <= row.keys()]
    if len(shapes) != 1:
        found = ", ".join(map(repr, row)) or "none"
        raise DataError(f"the keys are {found}; one of these is needed: {', '.join(_SHAPES)}")
    for key in _MEANINGFUL:
        if row.get(key):
            raise DataError(f"{key!r} would be lost: say it in messages, or remove it")
    if shapes == ["messages"]:
        return _conversation(row["messages"], "role", "content", _OPENAI)
    if shapes == ["conversations"]:
        return _conversation(row["conversations"], "from", "value", _SHAREGPT)
    return ("user", _string(row, "prompt")), ("assistant", _string(row, "response"))


def _conversation(turns: object, who: str, what: str, roles: dict[str, str]) -> Pairs:
    if not isinstance(turns, list):
        raise DataError(f"the conversation is {_kind(turns)}, not a list")
    return tuple(_turn(turn, who, what, roles) for turn in turns)


def _turn(turn: object, who: str, what: str, roles: dict[str, str]) -> tuple[str, str]:
    if not isinstance(turn, dict):
        raise DataError(f"a turn is {_kind(turn)}, not an object")
    extra = [key for key, value in turn.items() if key not in (who, what) and value is not None]
    if extra:
        raise DataError(f"a turn has {', '.join(map(repr, extra))}, which would be lost")
    role = _string(turn, who)
    if role not in roles:
        raise DataError(f"{who!r} is {role!r}; it must be one of {', '.join(roles)}")
    return roles[role], _string(turn, what)


def _string(row: dict[str, object], key: str) -> str:
    if key not in row:
        raise DataError(f"{key!r} is missing")
    value = row[key]
    if not isinstance(value, str):
        raise DataError(f"{key!r} is {_kind(value)}, not text")
    return value


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return names.get(type(value), "null" if value is None else "a number")
