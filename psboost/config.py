"""Knows every setting, its default, its range and where it was given; does not know what a setting does.

Three layers lie over the defaults, each beating the one below:

    flags  >  PSBOOST_* environment  >  TOML file  >  defaults of the dataclasses

A TOML file holds run settings at the top, boosting parameters in [parameters], evaluation data in [eval], and what a
virtual cluster is made of in [cluster]:

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

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from psboost.boosting.parameters import ALIASES, NOT_HERE, Parameters
from psboost.errors import ParameterError
from psboost.lab.hosts import Cluster
from psboost.roles.modes import BLOCK, MODES, check_grid
from psboost.settings import (
    MAX_FEATURES,
    THREADS,
    Bool,
    Evals,
    File,
    Grid,
    Int,
    OneOf,
    check_all,
    checked,
    define,
    flag_of,
    help_of,
    meant,
    metavar_of,
    nearest,
    read_layer,
    settings_by_key,
    settings_of,
)

__all__ = [
    "Parameters", "TrainConfig", "add_flags", "check_setting", "config_from_args", "config_path", "load_config"
]  # fmt: skip

if TYPE_CHECKING:
    import argparse

# Variables that other parts read: the command's --config, and scripts/launch_hosts.
ENVIRONMENT_ELSEWHERE = ("PSBOOST_CONFIG", "PSBOOST_SSH", "PSBOOST_REMOTE_COMMAND")


@dataclass(frozen=True)
class TrainConfig:
    """One run of `psboost train`."""

    SUBTABLES: ClassVar = ("parameters", "cluster")

    data: Path = define(None, File(), "training data: svmlight (also .gz, .bz2) or scipy .npz")
    model: Path = define(None, File(), "where the model goes: JSON that XGBoost loads too")
    evals: tuple[tuple[str, Path], ...] = define(
        (), Evals(), "data to report metrics on after each round, NAME=DATA; may be repeated", key="eval"
    )
    mode: str = define(
        "block",
        OneOf(MODES),
        "block: servers merge sparse histograms; the others distribute rows alone, on a grid Rx1: "
        "workers sum histograms in a ring, dense ones but in sparse-allreduce",
    )
    grid: tuple[int, int] = define((1, 1), Grid(), "row shards x feature shards, one worker each")
    servers: int = define(1, Int(1, 2**16), "servers that merge histograms; none with one row shard, or in other modes")
    threads: int | None = define(
        None, THREADS, "threads of each worker, at most: no more grow trees than the data keep busy",
        optional="this machine's cores, shared among the workers",
    )
    transport: str = define(
        "tcp",
        OneOf(("tcp", "ipc", "inproc", "memory", "virtual")),
        "tcp, ipc: processes; inproc: threads; memory: one thread, no sockets; virtual: on a cluster that is not there",
    )
    num_boost_round: int = define(100, Int(1), "boosting rounds")
    seed: int = define(0, Int(0, 2**63 - 1), "seed of every random choice")
    codec: str = define(
        "packed", OneOf(("packed", "csr")), "how histograms are sent: few bytes, or the paper's CSR arrays"
    )
    index_base: int = define(1, OneOf((0, 1)), "number of the first feature in svmlight files")
    n_features: int | None = define(
        None, Int(1, MAX_FEATURES), "features declared", optional="the highest that occurs"
    )
    labels: Path | None = define(None, File(), "the labels of .npz data", optional="none")
    bin_mapper: Path | None = define(
        None, File(), "bin mapper of an earlier run to use again", optional="made from the data"
    )
    report: Path | None = define(
        None, File(), "where to write seconds and bytes as JSON", optional="nowhere"
    )
    report_html: Path | None = define(
        None, File(), "where to write a page that shows the run: one HTML file", optional="nowhere"
    )
    quiet: bool = define(False, Bool(), "print nothing but errors; a coordinator: and where to join")
    parameters: Parameters = field(default_factory=Parameters)
    cluster: Cluster | None = None  # transport virtual only

    def __post_init__(self) -> None:
        for name, how in (("data", "name the training DATA"), ("model", "pass --model OUT.json")):
            if getattr(self, name) is None:
                raise ParameterError(
                    f"no {name} given: {how}, or set {name} in the TOML file, or PSBOOST_{name.upper()}"
                )
        check_all(self, "")
        check_grid(self.mode, self.grid)
        if not isinstance(self.parameters, Parameters):
            raise ParameterError("parameters must be a Parameters; Parameters.from_dict makes one of a dict")
        object.__setattr__(self, "cluster", checked_cluster(self.cluster, self.transport))

    @property
    def n_servers(self) -> int:
        return self.servers if self.mode == BLOCK and self.grid[0] > 1 else 0

    @property
    def n_workers(self) -> int:
        return self.grid[0] * self.grid[1]


def checked_cluster(cluster: Cluster | None, transport: str) -> Cluster | None:
    """The cluster of a run: the default one for transport virtual if none is given. ParameterError for other transports."""
    if cluster is not None and not isinstance(cluster, Cluster):
        raise ParameterError(f"cluster must be a psboost.lab.Cluster, not {cluster!r}")
    if transport == "virtual":
        return cluster or Cluster()
    if cluster is not None:
        raise ParameterError(
            f"a virtual cluster is given (hosts, gbit or such), but the transport is {transport}: give transport virtual"
        )
    return None


def check_setting(name: str, value: Any) -> Any:
    """The value of one run setting, normalised, or ParameterError; for callers without a TrainConfig."""
    return checked(settings_of(TrainConfig)[name], value, name)


# ---- layers

_CLASSES = {TrainConfig: "run", Parameters: "boosting parameters", Cluster: "the cluster of --transport virtual"}


def load_config(
    flags: Mapping[str, Any], environ: Mapping[str, str], toml_path: str | os.PathLike[str] | None = None
) -> TrainConfig:
    """The settings of one run. `flags` holds field names of all dataclasses; a None there was not given."""
    given = {name: value for name, value in flags.items() if value is not None}
    layers = [*_toml_layers(toml_path), *_environment_layers(environ)]
    settings = {name: setting for cls in _CLASSES for name, setting in settings_of(cls).items()}
    if unknown := given.keys() - settings.keys():
        raise TypeError(f"flags that are no settings: {', '.join(sorted(unknown))}")
    for name, value in given.items():
        given[name] = checked(settings[name], value, flag_of(settings[name]), text=True)
    layers.append(given)
    run: dict[str, Any] = {}
    for layer in layers:
        run.update(layer)
    boosting, hosts = ({name: run.pop(name) for name in settings_of(cls) if name in run} for cls in (Parameters, Cluster))
    return TrainConfig(**run, parameters=Parameters(**boosting), cluster=Cluster(**hosts) if hosts else None)


def config_from_args(args: argparse.Namespace, environ: Mapping[str, str]) -> TrainConfig:
    """load_config for a namespace that add_flags filled; other attributes of it are left alone."""
    names = {name for cls in _CLASSES for name in settings_of(cls)}
    flags = {name: value for name, value in vars(args).items() if name in names}
    return load_config(flags, environ, config_path(args, environ))


def config_path(args: argparse.Namespace, environ: Mapping[str, str]) -> str | None:
    """The TOML file that --config names or, without one, PSBOOST_CONFIG."""
    path = environ.get("PSBOOST_CONFIG") if args.config is None else args.config
    if path is not None and not path.strip():
        place = "PSBOOST_CONFIG in the environment" if args.config is None else "--config"
        raise ParameterError(f"{place} must be {File.expects}, not {path!r}")
    return path


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Give `parser` DATA, --config and one flag per setting. Texts stay texts: load_config reads them."""
    from argparse import BooleanOptionalAction

    groups = {cls: parser.add_argument_group(title) for cls, title in _CLASSES.items()}
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
    parameters, cluster = content.pop("parameters", {}), content.pop("cluster", {})
    for name, table in (("parameters", parameters), ("cluster", cluster)):
        if not isinstance(table, dict):
            raise ParameterError(f"{path}: {name} must be a table, [{name}]")
    if not isinstance(content.get("eval", {}), dict):
        raise ParameterError(f"{path}: eval must be a table, [eval] with NAME = DATA")
    run, boosting = [*settings_by_key(TrainConfig), *TrainConfig.SUBTABLES], [*settings_of(Parameters), *ALIASES]
    for name in content:
        if name in boosting:
            raise ParameterError(f"{path}: {name} is a boosting parameter; it belongs in [parameters]")
        if name not in run and (near := meant(name, run + boosting)) in boosting:
            raise ParameterError(f"unknown setting {name!r} in {path}; did you mean {near}, in [parameters]?")
    for name in parameters:
        if name in settings_by_key(TrainConfig):
            raise ParameterError(f"{path}: {name} is no boosting parameter; it belongs above the first table")
    return [
        read_layer(TrainConfig, content, f"{path}: {{}}", path),
        read_layer(Parameters, parameters, f"{path}: {{}} in [parameters]", f"[parameters] of {path}"),
        read_layer(Cluster, cluster, f"{path}: {{}} in [cluster]", f"[cluster] of {path}"),
    ]


def _environment_layers(environ: Mapping[str, str]) -> list[dict[str, Any]]:
    run, boosting, cluster = {}, {}, {}
    for variable in sorted(environ):
        if not variable.startswith("PSBOOST_") or variable in ENVIRONMENT_ELSEWHERE:
            continue
        name = variable.removeprefix("PSBOOST_").lower()
        if name in settings_by_key(TrainConfig):
            run[name] = environ[variable]
        elif ALIASES.get(name, name) in settings_of(Parameters) or name in NOT_HERE:
            boosting[name] = environ[variable]
        elif name in settings_of(Cluster):
            cluster[name] = environ[variable]
        else:
            known = [*(key for cls in _CLASSES for key in settings_by_key(cls)), *ALIASES]
            known = [f"PSBOOST_{key.upper()}" for key in known] + list(ENVIRONMENT_ELSEWHERE)
            raise ParameterError(f"unknown variable {variable} in the environment{nearest(variable, known)}")
    place = "PSBOOST_{} in the environment"
    return [
        read_layer(cls, layer, place, "the environment", text=True)
        for cls, layer in ((TrainConfig, run), (Parameters, boosting), (Cluster, cluster))
    ]
