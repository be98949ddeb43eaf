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
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psboost.errors import ParameterError
from psboost.settings import (
    Bool,
    Evals,
    File,
    Float,
    Grid,
    Int,
    OneOf,
    SomeOf,
    check_all,
    checked,
    define,
    flag_of,
    help_of,
    metavar_of,
    settings_by_key,
    settings_of,
)

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


# ---- the settings


@dataclass(frozen=True)
class Parameters:
    """What is boosted and how. Names and defaults are XGBoost's wherever XGBoost has the parameter."""

    objective: str = define("binary:logistic", OneOf(tuple(METRICS)), "the loss to minimise")
    learning_rate: float = define(0.3, Float(0, open=True), "what each tree's leaf values are shrunk by")
    max_depth: int = define(6, Int(0), "levels of splits in a tree, 0 for no limit")
    max_bin: int = define(256, Int(2, 2**16), "bins per feature at most")
    reg_lambda: float = define(1.0, Float(0), "L2 penalty on leaf values")
    reg_alpha: float = define(0.0, Float(0), "L1 penalty on leaf values")
    gamma: float = define(0.0, Float(0), "gain that a split must reach")
    min_child_weight: float = define(1.0, Float(0), "sum of hessians that a child must reach")
    base_score: float | None = define(
        None, Float(), "prediction before the first tree", optional="estimated from the labels"
    )
    grad_bits: int | None = define(
        None, OneOf((8, 16, 32)), "bits that a row's gradient is rounded to", optional="16; 32 below 16,384 rows"
    )
    zero_as_missing: bool | None = define(
        None, Bool(), "zeros are missing, as NaN is", optional="yes for sparse input, no for dense"
    )
    sketch: str = define("kll", OneOf(("kll", "exact")), "how cut points are found")
    eval_metric: tuple[str, ...] | None = define(
        None,
        SomeOf(tuple(name for names in METRICS.values() for name in names)),
        "metrics to report, separated by commas",
        optional="all that suit the objective",
    )

    def __post_init__(self) -> None:
        check_all(self, "parameter ")
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

    data: Path = define(None, File(), "training data: svmlight (also .gz, .bz2) or scipy .npz")
    model: Path = define(None, File(), "where the model goes: JSON that XGBoost loads too")
    evals: tuple[tuple[str, Path], ...] = define(
        (), Evals(), "data to report metrics on after each round, NAME=DATA; may be repeated", key="eval"
    )
    grid: tuple[int, int] = define((1, 1), Grid(), "row shards x feature shards, one worker each")
    servers: int = define(1, Int(1, 2**16), "servers that merge histograms")
    transport: str = define(
        "tcp",
        OneOf(("tcp", "ipc", "inproc", "memory")),
        "tcp, ipc: processes; inproc: threads; memory: one thread, no sockets",
    )
    num_boost_round: int = define(100, Int(1), "boosting rounds")
    seed: int = define(0, Int(0, 2**63 - 1), "seed of every random choice")
    codec: str = define(
        "packed", OneOf(("packed", "csr")), "how histograms are sent: few bytes, or the paper's CSR arrays"
    )
    index_base: int = define(1, OneOf((0, 1)), "number of the first feature in svmlight files")
    n_features: int | None = define(
        None, Int(1, 2**63), "features declared", optional="the highest that occurs"
    )
    labels: Path | None = define(None, File(), "the labels of .npz data", optional="none")
    bin_mapper: Path | None = define(
        None, File(), "bin mapper of an earlier run to use again", optional="made from the data"
    )
    report: Path | None = define(
        None, File(), "where to write seconds and bytes as JSON", optional="nowhere"
    )
    quiet: bool = define(False, Bool(), "print nothing but errors")
    parameters: Parameters = field(default_factory=Parameters)

    def __post_init__(self) -> None:
        for name, how in (("data", "name the training DATA"), ("model", "pass --model OUT.json")):
            if getattr(self, name) is None:
                raise ParameterError(
                    f"no {name} given: {how}, or set {name} in the TOML file, or PSBOOST_{name.upper()}"
                )
        check_all(self, "")
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
    return checked(settings_of(TrainConfig)[name], value, name)


# ---- layers


def load_config(
    flags: Mapping[str, Any], environ: Mapping[str, str], toml_path: str | os.PathLike[str] | None = None
) -> TrainConfig:
    """The settings of one run. `flags` holds field names of both dataclasses; a None there was not given."""
    given = {name: value for name, value in flags.items() if value is not None}
    layers = [*_toml_layers(toml_path), *_environment_layers(environ)]
    settings = settings_of(TrainConfig) | settings_of(Parameters)
    if unknown := given.keys() - settings.keys():
        raise TypeError(f"flags that are no settings: {', '.join(sorted(unknown))}")
    for name, value in given.items():
        given[name] = checked(settings[name], value, flag_of(settings[name]), text=True)
    layers.append(given)
    run: dict[str, Any] = {}
    for layer in layers:
        run.update(layer)
    boosting = {name: run.pop(name) for name in settings_of(Parameters) if name in run}
    return TrainConfig(**run, parameters=Parameters(**boosting))


def config_from_args(args: argparse.Namespace, environ: Mapping[str, str]) -> TrainConfig:
    """load_config for a namespace that add_flags filled; other attributes of it are left alone."""
    names = settings_of(TrainConfig).keys() | settings_of(Parameters).keys()
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
        for name, setting in settings_of(cls).items():
            kind, text = setting.metadata["kind"], help_of(setting).replace("%", "%%")
            if name == "data":
                group.add_argument("data", metavar="DATA", nargs="?", help=text)
                continue
            aliases = [alias for alias, of in ALIASES.items() if of == name and cls is Parameters]
            flags = [flag_of(setting), *(f"--{alias.replace('_', '-')}" for alias in aliases)]
            if isinstance(kind, Bool):
                group.add_argument(*flags, dest=name, action=BooleanOptionalAction, default=None, help=text)
            elif isinstance(kind, Evals):
                group.add_argument(*flags, dest=name, action="append", metavar="NAME=DATA", help=text)
            else:
                group.add_argument(*flags, dest=name, metavar=metavar_of(kind), help=text)


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
        if ALIASES.get(name, name) in settings_of(Parameters):
            raise ParameterError(f"{path}: {name} is a boosting parameter; it belongs in [parameters]")
    for name in parameters:
        if name in settings_by_key(TrainConfig):
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
        if name in settings_by_key(TrainConfig):
            run[name] = environ[variable]
        elif ALIASES.get(name, name) in settings_of(Parameters) or name in NOT_HERE:
            boosting[name] = environ[variable]
        else:
            known = [*settings_by_key(TrainConfig), *settings_of(Parameters), *ALIASES]
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
    keys, names, layer = settings_by_key(cls), {}, {}
    for key, value in given.items():
        name = ALIASES.get(key, key) if cls is Parameters else key
        if name not in keys:
            raise ParameterError(_unknown(cls, key, keys, where))
        setting = keys[name]
        shown = key.upper() if text else key
        value = checked(setting, value, place.format(shown), text=text)
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
