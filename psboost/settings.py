"""Knows what a setting is: a field with a kind of value, a name outside and a help text; does not know which there are."""

from __future__ import annotations

import dataclasses
import math
import numbers
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field
from pathlib import Path
from typing import Any

from psboost.errors import ParameterError

# ---- kinds of values. read() parses the text of a flag or variable, check() takes what has a type already;
# both raise ValueError, and checked() says where the value stood and what was expected there.


@dataclass(frozen=True)
class Int:
    low: int
    high: int = 2**31 - 1

    @property
    def expects(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    def read(self, text: str) -> int:
        if not re.fullmatch(r"\s*[+-]?[0-9]{1,20}\s*", text):
            raise ValueError
        return self.check(int(text))

    def check(self, value: Any) -> int:
        # numbers.Integral admits numpy's integers without importing numpy.
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise ValueError
        if not self.low <= value <= self.high:
            raise ValueError
        return int(value)


MAX_FEATURES = 2**63 - 1  # of a data set: as an int64 counts them
THREADS = Int(1, 2**10)


@dataclass(frozen=True)
class Float:
    low: float = -math.inf
    high: float = math.inf
    open: bool = False  # low itself is refused

    @property
    def expects(self) -> str:
        if self.low == -math.inf:
            return "a finite number"
        most = "" if self.high == math.inf else f" and at most {self.high:g}"
        return f"a finite number {'above' if self.open else 'of at least'} {self.low:g}{most}"

    def read(self, text: str) -> float:
        return self.check(float(text))

    def check(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
            raise ValueError
        if not self.low <= value <= self.high or (self.open and value == self.low):
            raise ValueError
        return float(value)


@dataclass(frozen=True)
class OneOf:
    values: tuple[str | int, ...]

    @property
    def expects(self) -> str:
        return "one of " + ", ".join(map(str, self.values))

    def read(self, text: str) -> str | int:
        return self.values[[str(value) for value in self.values].index(text.strip())]

    def check(self, value: Any) -> str | int:
        wanted = str if isinstance(self.values[0], str) else numbers.Integral
        if isinstance(value, bool) or not isinstance(value, wanted):
            raise ValueError
        return self.values[self.values.index(value)]


class Bool:
    expects = "true or false"

    def read(self, text: str) -> bool:
        word = text.strip().lower()
        if word not in ("true", "false", "1", "0"):
            raise ValueError
        return word in ("true", "1")

    def check(self, value: Any) -> bool:
        if type(value).__name__ not in ("bool", "bool_"):  # numpy's as well, without importing numpy
            raise ValueError
        return bool(value)


@dataclass(frozen=True)
class BoolOr:
    """True, False or one of `words`."""

    words: tuple[str, ...]

    @property
    def expects(self) -> str:
        return "one of true, false, " + ", ".join(self.words)

    def read(self, text: str) -> bool | str:
        word = text.strip().lower()
        return word if word in self.words else Bool().read(word)

    def check(self, value: Any) -> bool | str:
        return value if isinstance(value, str) and value in self.words else Bool().check(value)


class File:
    expects = "the path of a file"

    def read(self, text: str) -> Path:
        return self.check(text)

    def check(self, value: Any) -> Path:
        if not isinstance(value, str | os.PathLike) or not str(value).strip() or str(value).endswith("/"):
            raise ValueError
        return Path(value)


class Grid:
    expects = "ROWSxFEATURES, the numbers of row shards and of feature shards, both at least 1, such as 2x2"
    _side = Int(1)

    def read(self, text: str) -> tuple[int, int]:
        rows, features = re.split("[xX]", text)
        return self._side.read(rows), self._side.read(features)

    def check(self, value: Any) -> tuple[int, int]:
        if isinstance(value, str):
            return self.read(value)
        if not isinstance(value, tuple | list) or len(value) != 2:
            raise ValueError
        return self._side.check(value[0]), self._side.check(value[1])


@dataclass(frozen=True)
class SomeOf:
    values: tuple[str, ...]

    @property
    def expects(self) -> str:
        return "a list of " + ", ".join(self.values)

    @property
    def _name(self) -> OneOf:
        return OneOf(self.values)

    def read(self, text: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._name.read(name) for name in text.split(",")))

    def check(self, value: Any) -> tuple[str, ...]:
        if isinstance(value, str):
            return self.read(value)
        if not isinstance(value, tuple | list) or not value:
            raise ValueError
        return tuple(dict.fromkeys(self._name.check(name) for name in value))


class Evals:
    expects = "NAME=DATA, each name once"

    def read(self, text: str) -> tuple[tuple[str, Path], ...]:
        return self.check(text.split(","))

    def check(self, value: Any) -> tuple[tuple[str, Path], ...]:
        pairs = value.items() if isinstance(value, Mapping) else value
        if not isinstance(pairs, Iterable) or isinstance(pairs, str):
            raise ValueError
        evals = []
        for pair in pairs:
            name, path = pair.split("=", 1) if isinstance(pair, str) else pair
            if not isinstance(name, str) or not name.strip():
                raise ValueError
            evals.append((name.strip(), File().check(path)))
        if len(dict(evals)) < len(evals):
            raise ValueError
        return tuple(evals)


# ---- fields with such a value


def define(default: Any, kind: Any, text: str, *, optional: str = "", key: str = "") -> Any:
    """One field: `text` goes into --help; `optional` says what None means; `key` is its name outside."""
    return field(default=default, metadata={"kind": kind, "help": text, "optional": optional, "key": key})


def check_all(config: Any, prefix: str) -> None:
    """Normalise every setting of a frozen dataclass, in its __post_init__."""
    for name, setting in settings_of(type(config)).items():
        object.__setattr__(config, name, checked(setting, getattr(config, name), prefix + name))


def checked(setting: Field, value: Any, place: str, *, text: bool = False) -> Any:
    """The value as its field holds it. `text`: a str is to be parsed, and "auto" stands for None."""
    kind, optional = setting.metadata["kind"], setting.metadata["optional"]
    text = text and isinstance(value, str)
    if optional and (value is None or (text and value == "auto" and not isinstance(kind, File))):
        return None
    try:
        return kind.read(value) if text else kind.check(value)
    except (ValueError, TypeError, OverflowError):
        raise ParameterError(f"{place} must be {kind.expects}, not {value!r}") from None


def settings_of(cls: type) -> dict[str, Field]:
    return {setting.name: setting for setting in dataclasses.fields(cls) if "kind" in setting.metadata}


def settings_by_key(cls: type) -> dict[str, Field]:
    """Settings by the name that they bear in TOML and the environment."""
    return {setting.metadata["key"] or name: setting for name, setting in settings_of(cls).items()}


def flag_of(setting: Field) -> str:
    key = setting.metadata["key"] or setting.name
    return "DATA" if key == "data" else "--" + key.replace("_", "-")


def metavar_of(kind: Any) -> str:
    if isinstance(kind, OneOf | BoolOr):
        values = kind.values if isinstance(kind, OneOf) else ("true", "false", *kind.words)
        return "{" + ",".join(map(str, values)) + "}"
    names = {Int: "N", Float: "X", File: "FILE", Grid: "RxC", SomeOf: "NAMES"}
    return names[type(kind)]


def help_of(setting: Field) -> str:
    default, text = setting.default, setting.metadata["help"]
    if isinstance(setting.metadata["kind"], Grid):
        default = "x".join(map(str, default))
    if default is None:
        return f"{text} (default: {setting.metadata['optional']})" if setting.metadata["optional"] else text
    if default == ():
        return text
    return f"{text} (default: {str(default).lower() if isinstance(default, bool) else default})"


def read_layer(
    cls: type, given: Mapping[str, Any], place: str, where: object, *, text: bool = False
) -> dict[str, Any]:
    """Field name -> checked value, of one source; `place` has {} for the name that the user wrote.

    `cls` may have ALIASES (name -> field name), NOT_HERE (name -> why it is no setting), SETTING (what its fields are
    called) and SUBTABLES (names that stand for other dataclasses).
    """
    keys, names, layer = settings_by_key(cls), {}, {}
    aliases = getattr(cls, "ALIASES", {})
    for key, value in given.items():
        name = aliases.get(key, key)
        if name not in keys:
            raise ParameterError(_unknown(cls, key, keys, where))
        setting = keys[name]
        shown = key.upper() if text else key
        value = checked(setting, value, place.format(shown), text=text)
        if setting.name in layer and layer[setting.name] != value:
            raise ParameterError(
                f"{place.format(shown)} and {place.format(names[setting.name])} are the same parameter, "
                f"given twice with different values ({value} and {layer[setting.name]}); leave one out"
            )
        layer[setting.name], names[setting.name] = value, shown
    return layer


def _unknown(cls: type, key: object, keys: Iterable[str], where: object) -> str:
    reasons, what = getattr(cls, "NOT_HERE", {}), getattr(cls, "SETTING", "setting")
    if key in reasons:
        return f"{key} is no {what} of psboost ({where}): {reasons[key]}"
    known = [*keys, *getattr(cls, "ALIASES", {}), *getattr(cls, "SUBTABLES", ())]
    return f"unknown {what} {key!r} in {where}{nearest(str(key), known)}"


def nearest(name: str, known: list[str], *, lists: bool = True) -> str:
    """The end of a message about an unknown name: which one was probably meant; else, if it `lists` them, all there are."""
    if near := meant(name, known):
        return f"; did you mean {near}?"
    return "; known are " + ", ".join(sorted(known)) if lists else ""


def meant(name: str, known: list[str]) -> str | None:
    """The one that was probably meant by a name that is none of them."""
    import difflib

    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.5)), None)
