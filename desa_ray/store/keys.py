"""An artifact key is everything that decides a result, as plain data; its digest is the artifact's
address.

Two runs that would compute the same thing must make the same key, today and on any machine, so
values whose text form is not stable (NaN, sets, objects, paths) are refused with the place and a
way to write them. The digest is the SHA-256 of the canonical JSON of (stage, stage version,
parameters, input keys): method.md section 12.
"""

import hashlib
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, cast

from desa_ray.errors import DesaError
from desa_ray.types import canonical_json

STAGE = re.compile(r"[a-z][a-z0-9_-]{0,63}")
DIGEST = re.compile(r"[0-9a-f]{64}")
HINTS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((Fraction,), 'write it as a string such as "1/4"'),
    ((set, frozenset), "write it as a sorted list"),
    ((bytes, bytearray, memoryview), "decode it, or give its SHA-256"),
    ((os.PathLike,), "paths never enter a key: give a hash of the contents"),
)


def plain(value: Any, where: str) -> Any:
    """A copy of `value` made of dict, list, str, int, finite float, bool and None only; tuples
    become lists.

    Raises:
        DesaError: any other value, naming its place below `where` and how to write it instead.
    """
    if isinstance(value, Mapping):
        mapping = cast(Mapping[Any, Any], value)
        for name in mapping:
            if type(name) is not str:
                raise DesaError(
                    f"{name!r} cannot be the name of a value", where=where, hint="use string names"
                )
        return {
            plain(name, where): plain(item, f"{where}.{name}") for name, item in mapping.items()
        }
    if type(value) in (list, tuple):
        return [plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if value is None or type(value) in (bool, int):
        return value
    if type(value) is float:
        if not math.isfinite(value):
            raise DesaError(
                f"{value} is not a stable value",
                where=where,
                hint="use null or a string that names it",
            )
        return value + 0.0  # reads -0.0 as 0.0
    if type(value) is str:
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            raise DesaError(
                f"{value!r} has a lone surrogate", where=where, hint="give valid Unicode"
            )
        return value
    hint = next(
        (hint for kinds, hint in HINTS if isinstance(value, kinds)),
        "give plain numbers, strings or lists",
    )
    raise DesaError(f"a {type(value).__name__} is not a stable value", where=where, hint=hint)


@dataclass(frozen=True, eq=False)
class Key:
    """The identity of one artifact. Equal keys have equal digests, and the other way round.

    Attributes:
        stage: the stage's name (lower case, also the folder in the store).
        version: raised whenever the stage's code changes what it computes.
        params: every parameter that changes the result, and no other (no pool, batch or shard
            sizes, no paths).
        inputs: input name to the digest (64 hex) of the input's key, or of its contents where it
            has no key.

    Raises:
        DesaError: an unstable value; says where it is and how to write it.
    """

    stage: str
    version: int
    params: Mapping[str, Any]
    inputs: Mapping[str, str]

    def __post_init__(self):
        where = f"key of stage {self.stage}"
        if not (type(self.stage) is str and STAGE.fullmatch(self.stage)):
            raise DesaError(
                f"{self.stage!r} is not a stage name", where=where, hint="use a-z, 0-9, _ and -"
            )
        if type(self.version) is not int or self.version < 1:
            raise DesaError(f"version {self.version!r} is not a whole number from 1", where=where)
        for name, digest in self.inputs.items():
            if type(digest) is not str or not DIGEST.fullmatch(digest):
                what = f"{digest!r} is not a SHA-256 in 64 hex digits"
                raise DesaError(
                    what, where=f"{where}: inputs.{name}", hint="give the digest of the input's key"
                )
        # Own plain copies, so that nothing the caller changes later moves the key.
        object.__setattr__(self, "params", plain(self.params, f"{where}: params"))
        object.__setattr__(self, "inputs", plain(self.inputs, f"{where}: inputs"))

    def document(self) -> dict[str, Any]:
        """The full key as plain data; `Key(**document)` is the same key."""
        return {
            "stage": self.stage,
            "version": self.version,
            "params": self.params,
            "inputs": self.inputs,
        }

    def canonical(self) -> str:
        return canonical_json(self.document())

    @cached_property
    def digest(self) -> str:
        """Hex SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()

    @property
    def short(self) -> str:
        """The first 12 hex digits: the artifact's folder."""
        return self.digest[:12]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)
