"""Reads one YAML document from elsewhere as plain data, with limits on its size, depth and
aliases; makes no objects.

Scalars mean what they mean to Hydra. Refused, with their line: tags, merge keys, names that are not
text or occur twice, a second document, and what YAML itself refuses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from omegaconf._utils import get_yaml_loader
from yaml import events

from desa_ray.errors import DesaError
from desa_ray.lines import BOM, shown

MAX_BYTES = 256 << 10
MAX_DEPTH = 20
MAX_VALUES = 20_000  # what aliases stand for counts each time
MAX_DIGITS = 100
LARGE = "split it, or leave out what is not needed"

Place = tuple[str | int, ...]
_PLAIN = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null"))
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


@dataclass(frozen=True)
class Document:
    """`value` is made of dict, list, str, int, float, bool and None; `lines` says where each of its
    parts begins.
    """

    value: Any
    lines: Mapping[Place, int]

    def line(self, path: Place) -> int:
        """The line, from 1, of the part at `path`, or of the nearest part around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def decoded(data: bytes, where: str) -> str:
    """The text of a file's bytes, without a byte order mark.

    Raises:
        DesaError: too large, or not UTF-8.
    """
    if len(data) > MAX_BYTES:
        raise DesaError(f"is larger than {MAX_BYTES >> 10} KiB", where=where, hint=LARGE)
    try:
        return data.removeprefix(BOM).decode()
    except UnicodeDecodeError as error:
        raise DesaError(
            f"not UTF-8: byte {error.object[error.start]:#04x}", where=where, hint="save as UTF-8"
        ) from None


def read_document(text: str, where: str) -> Document:
    """The one document of `text`.

    Raises:
        DesaError: file and line of what is refused.
    """
    loader = get_yaml_loader()
    try:
        return _Reader(loader(text), where).document()
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        what = " ".join(filter(None, (error.context, error.problem)))
        raise DesaError(f"not YAML: {what}", where=f"{where}{line}", hint="fix that line") from None
    except (yaml.YAMLError, ValueError) as error:
        what = " ".join(str(error).split())[:200]
        raise DesaError(f"not YAML: {what}", where=where, hint="fix the file") from None


class _Reader:
    """Builds the value from the parser's events, so that nothing is made before it is known to be
    allowed.
    """

    def __init__(self, loader: Any, where: str):
        self.loader, self.where = loader, where
        self.lines: dict[Place, int] = {}
        # Value and how many it stands for; None while it is open
        self.anchors: dict[str, tuple[Any, int] | None] = {}
        self.count = 0

    def document(self) -> Document:
        self.loader.get_event()  # the stream begins
        value: Any = None
        if not self.loader.check_event(events.StreamEndEvent):
            self.loader.get_event()
            value = self._node((), 0)
            self.loader.get_event()  # the document ends
        if not self.loader.check_event(events.StreamEndEvent):
            raise self._refused(self.loader.peek_event(), "a second document", "keep one")
        return Document(value, self.lines)

    def _node(self, path: Place, depth: int) -> Any:
        event = self.loader.get_event()
        self.lines.setdefault(path, event.start_mark.line + 1)
        if isinstance(event, events.AliasEvent):
            return self._alias(event)
        if depth > MAX_DEPTH:
            raise self._refused(event, f"nested more than {MAX_DEPTH} deep", LARGE)
        before = self.count
        self._counted(event, 1)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        if isinstance(event, events.ScalarEvent):
            value = self._scalar(event)
        elif event.tag is not None and event.tag != "!":
            raise self._refused(event, f"the tag {shown(event.tag)}", "leave it out")
        elif isinstance(event, events.SequenceStartEvent):
            value = self._list(path, depth)
        else:
            value = self._mapping(path, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = value, self.count - before
        return value

    def _alias(self, event: events.AliasEvent) -> Any:
        found = self.anchors.get(event.anchor)
        if found is None:
            raise self._refused(
                event,
                f"the alias *{event.anchor} is used before it is defined",
                "write the value itself",
            )
        self._counted(event, found[1])
        return found[0]

    def _scalar(self, event: events.ScalarEvent) -> Any:
        tag = event.tag
        if tag is None or tag == "!":
            tag = self.loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        if tag not in _PLAIN:
            raise self._refused(
                event, f"the tag {shown(tag)} of {shown(event.value)}", "quote it, or leave it out"
            )
        if tag in _NUMBERS and len(event.value) > MAX_DIGITS:
            raise self._refused(
                event, f"a number of {len(event.value)} characters", "quote it if it is text"
            )
        try:
            return self.loader.construct_object(
                yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark)
            )
        except (ValueError, KeyError):  # !!int x, !!bool x
            raise self._refused(
                event, f"{shown(event.value)} is not a valid {tag.rpartition(':')[2]}", "fix it"
            ) from None

    def _list(self, path: Place, depth: int) -> list[Any]:
        items: list[Any] = []
        while not self.loader.check_event(events.SequenceEndEvent):
            items.append(self._node((*path, len(items)), depth + 1))
        self.loader.get_event()
        return items

    def _mapping(self, path: Place, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self.loader.check_event(events.MappingEndEvent):
            event = self.loader.peek_event()
            name = self._name(event)
            if name in found:
                raise self._refused(event, f"{shown(name)} occurs twice", "keep one of them")
            self.lines[(*path, name)] = event.start_mark.line + 1
            found[name] = self._node((*path, name), depth + 1)
        self.loader.get_event()
        return found

    def _name(self, event: events.Event) -> str:
        if not isinstance(event, events.ScalarEvent) or event.anchor is not None:
            raise self._refused(event, "a name that is not a text", "write NAME: VALUE")
        name = self._scalar(event)
        self.loader.get_event()
        if not isinstance(name, str):
            raise self._refused(
                event, f"a name that is not a text: {shown(event.value)}", "quote it"
            )
        return name

    def _counted(self, event: events.Event, values: int) -> None:
        self.count += values
        if self.count > MAX_VALUES:
            raise self._refused(event, f"more than {MAX_VALUES} values, aliases written out", LARGE)

    def _refused(self, event: events.Event, what: str, hint: str) -> DesaError:
        line = event.start_mark.line + 1 if event.start_mark else 1
        return DesaError(
            f"not YAML that is accepted: {what}", where=f"{self.where}:{line}", hint=hint
        )
