"""Knows every setting, its default, its range and where it was given; does not know what a setting does.

Three layers lie over the defaults, each beating the one below:

    flags  >  PSBOOST_* environment  >  TOML file  >  defaults of the dataclasses

A TOML file holds run settings at the top, boosting parameters in [parameters], evaluation data in [eval]:

    grid = "2x2"
    num_boost_round = 30
    [parameters]
    max_depth = 8
    [eval]
    test = "test.svm"

In flags and in the environment, "auto" takes an optional setting back to what psboost finds by itself.
Relative paths start at the current directory, wherever they stand.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psboost.errors import ParameterError

if TYPE_CHECKING:
    import argparse

METRICS = {
    "binary:logistic": ("auc", "logloss", "error"),
    "reg:squarederror": ("rmse", "mae"),
}
ALIASES = {
    "eta": "learning_rate",
    "lambda": "reg_lambda",
    "alpha": "reg_alpha",
    "min_split_loss": "gamma",
}
_SEED = "the seed is an argument: psboost.train(..., seed=), or --seed"
_ROUNDS = "the number of rounds is an argument: psboost.train(..., num_boost_round=), or --num-boost-round"
_PARALLEL = "psboost's parallelism is its grid of workers: psboost.train(..., grid=(2, 2)), or --grid 2x2"
# Parameters of XGBoost that people bring along: why there is no such parameter here.
NOT_HERE = {
    "seed": _SEED,
    "random_state": _SEED,
    "n_estimators": _ROUNDS,
    "num_boost_round": _ROUNDS,
    "nthread": _PARALLEL,
    "n_jobs": _PARALLEL,
    "tree_method": "psboost always grows by histogram (XGBoost's tree_method='hist'); leave it out",
    "booster": "psboost always grows trees (XGBoost's booster='gbtree'); leave it out",
    "device": "psboost runs on CPUs only; leave it out",
    "verbosity": "psboost.train prints nothing, pass callbacks=; on the command line there is --quiet",
    "missing": "NaN is always missing, and zero_as_missing says whether zeros are",
}
# Variables that other parts read: the command's --config, and scripts/launch_hosts.
ENVIRONMENT_ELSEWHERE = ("PSBOOST_CONFIG", "PSBOOST_SSH", "PSBOOST_REMOTE_COMMAND")


# ---- kinds of values. read() parses the text of a flag or variable, check() takes what has a type already;
# both raise ValueError, and the caller says where the value stood and what was expected there.


@dataclass(frozen=True)
class _Int:
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


@dataclass(frozen=True)
class _Float:
    low: float = -math.inf
    open: bool = False  # low itself is refused

    @property
    def expects(self) -> str:
        if self.low == -math.inf:
            return "a finite number"
        return f"a finite number {'above' if self.open else 'of at least'} {self.low:g}"

    def read(self, text: str) -> float:
        return self.check(float(text))

    def check(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
            raise ValueError
        if value < self.low or (self.open and value == self.low):
            raise ValueError
        return float(value)


@dataclass(frozen=True)
class _OneOf:
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


class _Bool:
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


class _File:
    expects = "the path of a file"

    def read(self, text: str) -> Path:
        return self.check(text)

    def check(self, value: Any) -> Path:
        if not isinstance(value, str | os.PathLike) or not str(value).strip():
            raise ValueError
        return Path(value)


class _Grid:
    expects = "ROWSxFEATURES, the numbers of row shards and of feature shards, both at least 1, such as 2x2"
    _side = _Int(1)

    def read(self, text: str) -> tuple[int, int]:
        rows, features = re.split("[xX]", text)
        return self._side.read(rows), self._side.read(features)

    def check(self, value: Any) -> tuple[int, int]:
        if isinstance(value, str):
            return self.read(value)
        if not isinstance(value, tuple | list) or len(value) != 2:
            raise ValueError
        return self._side.check(value[0]), self._side.check(value[1])


class _Metrics:
    expects = "a list of " + ", ".join(name for names in METRICS.values() for name in names)
    _name = _OneOf(tuple(name for names in METRICS.values() for name in names))

    def read(self, text: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._name.read(name) for name in text.split(",")))

    def check(self, value: Any) -> tuple[str, ...]:
        if isinstance(value, str):
            return self.read(value)
        if not isinstance(value, tuple | list) or not value:
            raise ValueError
        return tuple(dict.fromkeys(self._name.check(name) for name in value))


class _Evals:
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
            evals.append((name.strip(), _File().check(path)))
        if len(dict(evals)) < len(evals):
            raise ValueError
        return tuple(evals)


def _setting(default: Any, kind: Any, text: str, *, optional: str = "", key: str = "") -> Any:
    """One field: `text` goes into --help; `optional` says what None means; `key` is its name outside."""
    return field(default=default, metadata={"kind": kind, "help": text, "optional": optional, "key": key})


# ---- the settings


@dataclass(frozen=True)
class Parameters:
    """What is boosted and how. Names and defaults are XGBoost's wherever XGBoost has the parameter."""

    objective: str = _setting("binary:logistic", _OneOf(tuple(METRICS)), "the loss to minimise")
    learning_rate: float = _setting(0.3, _Float(0, open=True), "what each tree's leaf values are shrunk by")
    max_depth: int = _setting(6, _Int(0), "levels of splits in a tree, 0 for no limit")
    max_bin: int = _setting(256, _Int(2, 2**16), "bins per feature at most")
    reg_lambda: float = _setting(1.0, _Float(0), "L2 penalty on leaf values")
    reg_alpha: float = _setting(0.0, _Float(0), "L1 penalty on leaf values")
    gamma: float = _setting(0.0, _Float(0), "gain that a split must reach")
    min_child_weight: float = _setting(1.0, _Float(0), "sum of hessians that a child must reach")
    base_score: float | None = _setting(
        None, _Float(), "prediction before the first tree", optional="estimated from the labels"
    )
    grad_bits: int | None = _setting(
        None, _OneOf((8, 16, 32)), "bits that a row's gradient is rounded to", optional="16; 32 below 16,384 rows"
    )
    zero_as_missing: bool | None = _setting(
        None, _Bool(), "zeros are missing, as NaN is", optional="yes for sparse input, no for dense"
    )
    sketch: str = _setting("kll", _OneOf(("kll", "exact")), "how cut points are found")
    eval_metric: tuple[str, ...] | None = _setting(
        None, _Metrics(), "metrics to report, separated by commas", optional="all that suit the objective"
    )

    def __post_init__(self) -> None:
        _check_all(self, "parameter ")
        score = self.base_score
        if self.objective == "binary:logistic" and score is not None and not 0 < score < 1:
            raise ParameterError(
                f"parameter base_score is a probability for {self.objective}: "
                f"it must lie between 0 and 1, both excluded, not {score:g}"
            )
        for name in self.metrics:
            if name not in METRICS[self.objective]:
                raise ParameterError(
                    f"parameter eval_metric: {name} does not suit {self.objective}, which has "
                    + ", ".join(METRICS[self.objective])
                )

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics to report, in order."""
        return self.eval_metric or METRICS[self.objective]

    @classmethod
    def from_dict(cls, params: Mapping[str, Any]) -> Parameters:
        """Parameters from names or XGBoost's aliases to values; raises ParameterError for any other name."""
        if not isinstance(params, Mapping):
            raise ParameterError(
                f"parameters must be a dict from names to values, not {type(params).__name__}; "
                "leave it {} for the defaults"
            )
        return cls(**_layer(cls, params, "parameter {}", "the parameters"))

    def to_dict(self) -> dict[str, Any]:
        """Names to values that JSON can hold; from_dict takes it back."""
        values = dataclasses.asdict(self)
        if self.eval_metric is not None:
            values["eval_metric"] = list(self.eval_metric)
        return values


@dataclass(frozen=True)
class TrainConfig:
    """One run of `psboost train`."""

    data: Path = _setting(None, _File(), "training data: svmlight (also .gz, .bz2) or scipy .npz")
    model: Path = _setting(None, _File(), "where the model goes: JSON that XGBoost loads too")
    evals: tuple[tuple[str, Path], ...] = _setting(
        (), _Evals(), "data to report metrics on after each round, NAME=DATA; may be repeated", key="eval"
    )
    grid: tuple[int, int] = _setting((1, 1), _Grid(), "row shards x feature shards, one worker each")
    servers: int = _setting(1, _Int(1, 2**16), "servers that merge histograms")
    transport: str = _setting(
        "tcp",
        _OneOf(("tcp", "ipc", "inproc", "memory")),
        "tcp, ipc: processes; inproc: threads; memory: one thread, no sockets",
    )
    num_boost_round: int = _setting(100, _Int(1), "boosting rounds")
    seed: int = _setting(0, _Int(0, 2**63 - 1), "seed of every random choice")
    codec: str = _setting(
        "packed", _OneOf(("packed", "csr")), "how histograms are sent: few bytes, or the paper's CSR arrays"
    )
    index_base: int = _setting(1, _OneOf((0, 1)), "number of the first feature in svmlight files")
    n_features: int | None = _setting(
        None, _Int(1, 2**63), "features declared", optional="the highest that occurs"
    )
    labels: Path | None = _setting(None, _File(), "the labels of .npz data", optional="none")
    bin_mapper: Path | None = _setting(
        None, _File(), "bin mapper of an earlier run to use again", optional="made from the data"
    )
    report: Path | None = _setting(
        None, _File(), "where to write seconds and bytes as JSON", optional="nowhere"
    )
    quiet: bool = _setting(False, _Bool(), "print nothing but errors")
    parameters: Parameters = field(default_factory=Parameters)

    def __post_init__(self) -> None:
        for name, how in (("data", "name the training DATA"), ("model", "pass --model OUT.json")):
            if getattr(self, name) is None:
                raise ParameterError(
                    f"no {name} given: {how}, or set {name} in the TOML file, or PSBOOST_{name.upper()}"
                )
        _check_all(self, "")
        if not isinstance(self.parameters, Parameters):
            raise ParameterError("parameters must be a Parameters; Parameters.from_dict makes one of a dict")

    @property
    def n_workers(self) -> int:
        return self.grid[0] * self.grid[1]


def parse_grid(text: str) -> tuple[int, int]:
    """(row shards, feature shards) of a text such as "2x2"."""
    return check_setting("grid", text)


def check_setting(name: str, value: Any) -> Any:
    """The value of one run setting, normalised, or ParameterError; for callers without a TrainConfig."""
    return _checked(_settings(TrainConfig)[name], value, name)


# ---- layers


def load_config(
    flags: Mapping[str, Any], environ: Mapping[str, str], toml_path: str | os.PathLike[str] | None = None
) -> TrainConfig:
    """The settings of one run. `flags` holds field names of both dataclasses; a None there was not given."""
    given = {name: value for name, value in flags.items() if value is not None}
    layers = [*_toml_layers(toml_path), *_environment_layers(environ)]
    settings = _settings(TrainConfig) | _settings(Parameters)
    if unknown := given.keys() - settings.keys():
        raise TypeError(f"flags that are no settings: {', '.join(sorted(unknown))}")
    for name, value in given.items():
        given[name] = _checked(settings[name], value, _flag(settings[name]), text=True)
    layers.append(given)
    run: dict[str, Any] = {}
    for layer in layers:
        run.update(layer)
    boosting = {name: run.pop(name) for name in _settings(Parameters) if name in run}
    return TrainConfig(**run, parameters=Parameters(**boosting))


def config_from_args(args: argparse.Namespace, environ: Mapping[str, str]) -> TrainConfig:
    """load_config for a namespace that add_flags filled; other attributes of it are left alone."""
    names = _settings(TrainConfig).keys() | _settings(Parameters).keys()
    flags = {name: value for name, value in vars(args).items() if name in names}
    return load_config(flags, environ, args.config or environ.get("PSBOOST_CONFIG") or None)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Give `parser` DATA, --config and one flag per setting. Texts stay texts: load_config reads them."""
    from argparse import BooleanOptionalAction

    groups = {TrainConfig: parser.add_argument_group("run"), Parameters: None}
    groups[Parameters] = parser.add_argument_group("boosting parameters")
    groups[TrainConfig].add_argument(
        "--config", metavar="FILE.toml", help="settings that flags and PSBOOST_* variables override"
    )
    for cls, group in groups.items():
        for name, setting in _settings(cls).items():
            kind, text = setting.metadata["kind"], _help(setting).replace("%", "%%")
            if name == "data":
                group.add_argument("data", metavar="DATA", nargs="?", help=text)
                continue
            aliases = [alias for alias, of in ALIASES.items() if of == name and cls is Parameters]
            flags = [_flag(setting), *(f"--{alias.replace('_', '-')}" for alias in aliases)]
            if isinstance(kind, _Bool):
                group.add_argument(*flags, dest=name, action=BooleanOptionalAction, default=None, help=text)
            elif isinstance(kind, _Evals):
                group.add_argument(*flags, dest=name, action="append", metavar="NAME=DATA", help=text)
            else:
                group.add_argument(*flags, dest=name, metavar=_metavar(kind), help=text)


def _toml_layers(path: str | os.PathLike[str] | None) -> list[dict[str, Any]]:
    if path is None:
        return []
    import tomllib

    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise ParameterError(f"cannot read the configuration {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path} is no TOML: {error}") from error
    parameters = content.pop("parameters", {})
    if not isinstance(parameters, dict):
        raise ParameterError(f"{path}: parameters must be a table, [parameters]")
    if not isinstance(content.get("eval", {}), dict):
        raise ParameterError(f"{path}: eval must be a table, [eval] with NAME = DATA")
    for name in content:
        if ALIASES.get(name, name) in _settings(Parameters):
            raise ParameterError(f"{path}: {name} is a boosting parameter; it belongs in [parameters]")
    for name in parameters:
        if name in _keys(TrainConfig):
            raise ParameterError(f"{path}: {name} is no boosting parameter; it belongs above the first table")
    return [
        _layer(TrainConfig, content, f"{path}: {{}}", path),
        _layer(Parameters, parameters, f"{path}: {{}} in [parameters]", f"[parameters] of {path}"),
    ]


def _environment_layers(environ: Mapping[str, str]) -> list[dict[str, Any]]:
    run, boosting = {}, {}
    for variable in sorted(environ):
        if not variable.startswith("PSBOOST_") or variable in ENVIRONMENT_ELSEWHERE:
            continue
        name = variable.removeprefix("PSBOOST_").lower()
        if name in _keys(TrainConfig):
            run[name] = environ[variable]
        elif ALIASES.get(name, name) in _settings(Parameters) or name in NOT_HERE:
            boosting[name] = environ[variable]
        else:
            known = [*_keys(TrainConfig), *_settings(Parameters), *ALIASES]
            known = [f"PSBOOST_{key.upper()}" for key in known] + list(ENVIRONMENT_ELSEWHERE)
            raise ParameterError(f"unknown variable {variable} in the environment{_nearest(variable, known)}")
    place = "PSBOOST_{} in the environment"
    return [
        _layer(cls, layer, place, "the environment", text=True)
        for cls, layer in ((TrainConfig, run), (Parameters, boosting))
    ]


def _layer(
    cls: type, given: Mapping[str, Any], place: str, where: object, *, text: bool = False
) -> dict[str, Any]:
    """Field name -> checked value, of one source; `place` has {} for the name that the user wrote."""
    keys, names, layer = _keys(cls), {}, {}
    for key, value in given.items():
        name = ALIASES.get(key, key) if cls is Parameters else key
        if name not in keys:
            raise ParameterError(_unknown(cls, key, keys, where))
        setting = keys[name]
        shown = key.upper() if text else key
        value = _checked(setting, value, place.format(shown), text=text)
        if setting.name in layer and layer[setting.name] != value:
            raise ParameterError(
                f"{place.format(shown)} and {names[setting.name]} are the same parameter, "
                f"given twice with different values ({value} and {layer[setting.name]}); leave one out"
            )
        layer[setting.name], names[setting.name] = value, shown
    return layer


def _unknown(cls: type, key: object, keys: Iterable[str], where: object) -> str:
    what = "parameter" if cls is Parameters else "setting"
    if cls is Parameters and key in NOT_HERE:
        return f"{key} is no parameter of psboost ({where}): {NOT_HERE[key]}"
    known = [*keys, *ALIASES] if cls is Parameters else [*keys, "parameters"]
    return f"unknown {what} {key!r} in {where}{_nearest(str(key), known)}"


def _nearest(name: str, known: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else "; known are " + ", ".join(sorted(known))


def _check_all(config: Any, prefix: str) -> None:
    """Normalise every setting of a frozen dataclass, in its __post_init__."""
    for name, setting in _settings(type(config)).items():
        object.__setattr__(config, name, _checked(setting, getattr(config, name), prefix + name))


def _checked(setting: Field, value: Any, place: str, *, text: bool = False) -> Any:
    """The value as its field holds it. `text`: a str is to be parsed, and "auto" stands for None."""
    kind, optional = setting.metadata["kind"], setting.metadata["optional"]
    text = text and isinstance(value, str)
    if optional and (value is None or (text and value == "auto" and not isinstance(kind, _File))):
        return None
    try:
        return kind.read(value) if text else kind.check(value)
    except (ValueError, TypeError, OverflowError):
        raise ParameterError(f"{place} must be {kind.expects}, not {value!r}") from None


def _settings(cls: type) -> dict[str, Field]:
    return {setting.name: setting for setting in dataclasses.fields(cls) if "kind" in setting.metadata}


def _keys(cls: type) -> dict[str, Field]:
    """Settings by the name that they bear in TOML and the environment."""
    return {setting.metadata["key"] or name: setting for name, setting in _settings(cls).items()}


def _flag(setting: Field) -> str:
    key = setting.metadata["key"] or setting.name
    return "DATA" if key == "data" else "--" + key.replace("_", "-")


def _metavar(kind: Any) -> str:
    if isinstance(kind, _OneOf):
        return "{" + ",".join(map(str, kind.values)) + "}"
    names = {_Int: "N", _Float: "X", _File: "FILE", _Grid: "RxC", _Metrics: "NAMES"}
    return names[type(kind)]


def _help(setting: Field) -> str:
    default, text = setting.default, setting.metadata["help"]
    if isinstance(setting.metadata["kind"], _Grid):
        default = "x".join(map(str, default))
    if default is None:
        return f"{text} (default: {setting.metadata['optional']})" if setting.metadata["optional"] else text
    if default == ():
        return text
    return f"{text} (default: {str(default).lower() if isinstance(default, bool) else default})"
