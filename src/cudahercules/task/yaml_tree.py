"""A small, safe reading of YAML that remembers lines.

Task files come from anywhere, so this is deliberately less than YAML: mappings, sequences and
scalars only. Aliases, anchors, tags, several documents and repeated keys are errors. Scalars follow
YAML 1.2 (``1e-5`` is a number; ``no`` and ``on`` are strings).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from cudahercules.errors import TaskError

MAX_BYTES = 256 * 1024
MAX_NODES = 20_000
MAX_DEPTH = 16
MAX_KEY = 80

_INTEGER = re.compile(r"[-+]?[0-9]{1,30}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "true": True, "false": False}
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)\}")


@dataclass(frozen=True)
class Node:
    """A value with the line where it starts; ``value`` is a scalar, a list or a dict of nodes.

    ``key_lines`` gives, for a mapping, the line of each key.
    """

    value: Any
    line: int
    key_lines: dict[str, int] = field(default_factory=dict)

    @cached_property
    def is_constant(self) -> bool:
        """Whether no member's parameters go in anywhere below: nothing but this value can come out."""
        if isinstance(self.value, dict):
            choice = self.value.keys() == {"per", "cases"}
            return not choice and all(child.is_constant for child in self.value.values())
        if isinstance(self.value, list):
            return all(child.is_constant for child in self.value)
        return not (isinstance(self.value, str) and _PLACEHOLDER.search(self.value))

    def plain(self) -> Any:
        """The same tree as ordinary dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {k: v.plain() for k, v in self.value.items()}
        if isinstance(self.value, list):
            return [v.plain() for v in self.value]
        return self.value

    def line_of(self, location: tuple[int | str, ...]) -> int:
        """The line of the deepest part of ``location`` (a pydantic error's) that exists."""
        node = self
        line = self.line
        for part in location:
            if isinstance(node.value, dict) and part in node.value:
                line, node = node.key_lines[str(part)], node.value[part]
            elif isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.line
            # pydantic also names union branches ("normal"); they are no part of the file
        return line


class Problem(Exception):
    """Something wrong at a line; the loader adds the file's name."""

    def __init__(self, line: int, field_name: str, what: str) -> None:
        super().__init__(what)
        self.line, self.field_name, self.what = line, field_name, what

    def error(self, path: Path) -> TaskError:
        """The user's message: ``file:line: field: what``."""
        name = f" {self.field_name}:" if self.field_name else ""
        return TaskError(f"{path}:{self.line}:{name} {self.what}")


def read(path: Path) -> Node:
    """Parse a task file. Raises TaskError (file, line, what) for anything that is not a mapping."""
    try:
        with path.open("rb") as f:
            data = f.read(MAX_BYTES + 1)
    except OSError as error:
        raise TaskError(f"{path}: cannot be read ({error.strerror})") from error
    if len(data) > MAX_BYTES:
        raise TaskError(f"{path}: is larger than {MAX_BYTES // 1024} KiB, too large for a task file")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise TaskError(f"{path}:{line}: is not UTF-8") from error
    try:
        tree = parse(text)
    except Problem as problem:
        raise problem.error(path) from None
    if not isinstance(tree.value, dict):
        raise TaskError(f"{path}:{tree.line}: the file must be a mapping (field: value)")
    return tree


def parse(text: str) -> Node:
    """Text to a tree. Raises Problem."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Builder(yaml.parse(text, Loader=loader)).document()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise Problem(mark.line + 1 if mark else 1, "", f"is not YAML: {what}") from None


class _Builder:
    """Builds the tree from parser events, refusing what task files do not need."""

    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self._events = events
        self._nodes = 0

    def document(self) -> Node:
        self._expect(yaml.StreamStartEvent)
        event = next(self._events)
        if isinstance(event, yaml.StreamEndEvent):
            raise Problem(1, "", "the file is empty")
        tree = self._node(next(self._events), depth=0)
        self._expect(yaml.DocumentEndEvent)
        event = next(self._events)
        if not isinstance(event, yaml.StreamEndEvent):
            raise Problem(_line(event), "", "a second document starts here; one is allowed")
        return tree

    def _expect(self, kind: type) -> None:
        event = next(self._events)
        if not isinstance(event, kind):
            raise Problem(_line(event), "", f"is not YAML: unexpected {type(event).__name__}")

    def _node(self, event: yaml.Event, depth: int) -> Node:
        line = _line(event)
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise Problem(line, "", f"has more than {MAX_NODES} values")
        if depth > MAX_DEPTH:
            raise Problem(line, "", f"is nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise Problem(line, "", "anchors and aliases are not allowed; write the value out")
        if (tag := getattr(event, "tag", None)) not in (None, "!"):
            raise Problem(line, "", f"the tag {tag[:40]!r} is not allowed")
        if isinstance(event, yaml.ScalarEvent):
            plain = event.style is None or event.style == ""
            return Node(_scalar(event.value, line) if plain else event.value, line)
        if isinstance(event, yaml.SequenceStartEvent):
            return Node(list(self._items(depth)), line)
        return self._mapping(line, depth)

    def _items(self, depth: int) -> Iterator[Node]:
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            yield self._node(event, depth + 1)

    def _mapping(self, line: int, depth: int) -> Node:
        values: dict[str, Node] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent) or getattr(event, "tag", None) or event.anchor:
                raise Problem(_line(event), "", "a key must be a plain word")
            key = event.value
            if len(key) > MAX_KEY or not key.isprintable():
                raise Problem(_line(event), "", f"a key has at most {MAX_KEY} printable characters")
            if key in values:
                raise Problem(_line(event), key, f"is given twice (first in line {lines[key]})")
            lines[key] = _line(event)
            values[key] = self._node(next(self._events), depth + 1)
        return Node(values, line, lines)


def _line(event: yaml.Event) -> int:
    mark: Any = event.start_mark
    return int(mark.line) + 1


def _scalar(text: str, line: int) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise Problem(line, "", f"{text[:20]} is not a finite number")
        return value
    return text


def resolve(node: Node, parameters: dict[str, int | str], field_name: str = "") -> Node:
    """Put a member's parameters in.

    ``{name}`` inside a string becomes the parameter; a string that is nothing but a placeholder
    takes the parameter's own type. A mapping ``{per: name, cases: {value: ...}}`` becomes the case
    of the parameter's value. Raises Problem for unknown names and missing cases.
    """
    if node.is_constant:
        return node
    if isinstance(node.value, dict):
        if node.value.keys() == {"per", "cases"}:
            return resolve(_case(node, parameters, field_name), parameters, field_name)
        children = {k: resolve(v, parameters, _join(field_name, k)) for k, v in node.value.items()}
        return Node(children, node.line, node.key_lines)
    if isinstance(node.value, list):
        items = [resolve(v, parameters, _join(field_name, i)) for i, v in enumerate(node.value)]
        return Node(items, node.line)
    if isinstance(node.value, str):
        return Node(_fill(node, parameters, field_name), node.line)
    return node


def _case(node: Node, parameters: dict[str, int | str], field_name: str) -> Node:
    name, cases = node.value["per"].value, node.value["cases"]
    if not isinstance(name, str) or name not in parameters:
        raise Problem(node.line, _join(field_name, "per"), f"{name!r} is no parameter of the members")
    wanted = str(parameters[name])
    if not isinstance(cases.value, dict) or wanted not in cases.value:
        raise Problem(node.line, _join(field_name, "cases"), f"has no case for {name} = {wanted}")
    case = cases.value[wanted]
    assert isinstance(case, Node)
    return case


def _fill(node: Node, parameters: dict[str, int | str], field_name: str) -> int | str:
    text: str = node.value
    for name in _PLACEHOLDER.findall(text):
        if name not in parameters:
            raise Problem(node.line, field_name, f"{{{name[:40]}}} is no parameter of the members")
    if whole := _PLACEHOLDER.fullmatch(text):
        return parameters[whole[1]]
    return _PLACEHOLDER.sub(lambda m: str(parameters[m[1]]), text)


def _join(prefix: str, part: int | str) -> str:
    return f"{prefix}.{part}" if prefix else str(part)
