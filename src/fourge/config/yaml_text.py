"""YAML as a tree of plain values, with its mistakes said by line; and ``name=value`` on top.

PyYAML's safe loader keeps the last of two equal keys and says nothing. The text is therefore
read in two steps, nodes and then values, and the nodes (which know their lines) are searched
for what the values no longer show: keys given twice, text that UTF-8 cannot hold, and an alias
inside what it stands for.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from fourge.config.strict import Mistake, Place, dotted
from fourge.core.errors import ConfigError, first_line

# A value that claims a type it is not of (!!int x, 2024-13-01) fails in one of these ways.
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def read_yaml(path: Path) -> tuple[Any, list[Mistake]]:
    """The values of a file, and the keys that it gives twice.

    Raises:
        ConfigError: it cannot be read, is not UTF-8, is not YAML, or holds nothing.
    """
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise ConfigError(f"{path} could not be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(
            f"{path} is not UTF-8 text.",
            why=f"line {line} holds the byte 0x{error.object[error.start]:02x}",
            fix="save it as UTF-8",
        ) from error
    try:
        value, repeated = parse(text)
    except ValueError as error:
        raise ConfigError(f"{path} is not YAML.", why=str(error)) from error
    if value is None:
        raise ConfigError(f"{path} is empty.")
    return value, repeated


def parse(text: str) -> tuple[Any, list[Mistake]]:
    """The value that a text writes down, and the keys that it gives twice.

    Raises:
        ValueError: it is not YAML; the message says the line.
    """
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None, []
        repeated = list(_search(node, (), {}))
        return loader.construct_document(node), repeated
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ValueError(f"line {line}: {error.reason}") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ValueError(f"line {line}: {error.problem}") from error
    except _UNREADABLE as error:
        raise ValueError(first_line(error)) from error


def _search(node: Any, at: Place, finished: dict[int, bool]) -> Iterator[Mistake]:
    """The keys given twice in a node and below it; a node that is not finished is above itself."""
    line = node.start_mark.line + 1
    if id(node) in finished:
        if not finished[id(node)]:
            raise ValueError(f"line {line}: a value refers to itself")
        return
    finished[id(node)] = False
    if isinstance(node, yaml.ScalarNode):
        if any("\ud800" <= letter <= "\udfff" for letter in node.value):
            raise ValueError(f"line {line}: half of a pair of characters stands alone")
    elif isinstance(node, yaml.SequenceNode):
        for index, entry in enumerate(node.value):
            yield from _search(entry, (*at, index), finished)
    else:
        yield from _repeated(node, at)
        for key, value in node.value:
            yield from _search(key, at, finished)
            yield from _search(value, (*at, str(key.value)), finished)
    finished[id(node)] = True


def _repeated(node: Any, at: Place) -> Iterator[Mistake]:
    lines: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            line, name = key.start_mark.line + 1, (key.tag, key.value)
            if name in lines:
                where = f"line {line}" if line == lines[name] else f"lines {lines[name]} and {line}"
                yield Mistake((*at, key.value), f"is given twice, on {where}")
            lines.setdefault(name, line)


def apply(tree: Any, settings: Sequence[str]) -> tuple[Any, list[Mistake]]:
    """The tree with ``name=value`` settings put in, and what is wrong with those.

    A name is dotted, with numbers for the entries of a list (``data.mix.0.weight``); a value is
    YAML. A name that no part knows is put in too: the check of the whole tree says so.
    """
    mistakes = []
    for setting in settings:
        name, equals, text = setting.partition("=")
        place = name.strip().split(".")
        if not equals or not all(place):
            says = "a setting is written as name=value, as in optim.lr=2e-5"
            mistakes.append(Mistake((f"--set {setting}",), says))
            continue
        try:
            value, repeated = parse(text)
            tree = _with(tree, place, value, ())
            mistakes.extend(repeated)
        except ValueError as error:
            mistakes.append(Mistake((f"--set {setting}",), str(error)))
    return tree, mistakes


def _with(node: Any, place: list[str], value: Any, above: Place) -> Any:
    """A copy of the tree with one value replaced; what is not on its path is shared."""
    if not place:
        return value
    name, rest = place[0], place[1:]
    if node is None or isinstance(node, dict):
        inner = (node or {}).get(name)
        return {**(node or {}), name: _with(inner, rest, value, (*above, name))}
    if not isinstance(node, list):
        raise ValueError(f"{dotted(above)} is a single value; it has no {name}")
    if not (name.isascii() and name.isdigit() and int(name) < len(node)):
        raise ValueError(f"{dotted(above)} is a list of {len(node)}; its first entry is 0")
    entry = _with(node[int(name)], rest, value, (*above, int(name)))
    return [*node[: int(name)], entry, *node[int(name) + 1 :]]
