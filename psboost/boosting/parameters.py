"""Knows every boosting parameter, its default and its range; does not know files, flags or what a parameter does."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from psboost.errors import ParameterError
from psboost.settings import BoolOr, Float, Int, OneOf, SomeOf, check_all, define, read_layer

METRICS_OF = {
    "binary:logistic": ("auc", "logloss", "error"),
    "reg:squarederror": ("rmse", "mae"),
}
ALIASES = {
    "eta": "learning_rate",
    "lambda": "reg_lambda",
    "alpha": "reg_alpha",
    "min_split_loss": "gamma",
}
_FLOAT32_MAX = (2.0 - 2.0**-23) * 2.0**127  # kernels.floats has it, too, but takes numpy to import
_SEED = "the seed is an argument: psboost.train(..., seed=), or --seed"
_ROUNDS = "the number of rounds is an argument: psboost.train(..., num_boost_round=), or --num-boost-round"
_PARALLEL = "the number of threads is an argument: psboost.train(..., threads=), or --threads"
_QUIET = "psboost.train says nothing but that it compiles: pass callbacks=; on the command line there is --quiet"
_ALL_FEATURES = "every tree is grown on all features; leave it out"
_LEVELS = "trees grow level by level, by max_depth and gamma; leave it out"
# Parameters of XGBoost that people bring along: why there is no such parameter here.
NOT_HERE = {
    "seed": _SEED,
    "random_state": _SEED,
    "n_estimators": _ROUNDS,
    "num_boost_round": _ROUNDS,
    "num_iterations": _ROUNDS,
    "nthread": _PARALLEL,
    "num_threads": _PARALLEL,
    "n_jobs": _PARALLEL,
    "tree_method": "psboost always grows by histogram (XGBoost's tree_method='hist'); leave it out",
    "booster": "psboost always grows trees (XGBoost's booster='gbtree'); leave it out",
    "device": "psboost runs on CPUs only; leave it out",
    "verbosity": _QUIET,
    "verbose": _QUIET,
    "silent": _QUIET,
    "subsample": "every tree is grown on all rows; leave it out",
    "colsample_bytree": _ALL_FEATURES,
    "colsample_bylevel": _ALL_FEATURES,
    "colsample_bynode": _ALL_FEATURES,
    "grow_policy": _LEVELS,
    "max_leaves": _LEVELS,
    "num_leaves": _LEVELS,
    "lambda_l1": "that is LightGBM's name: here, as in XGBoost, reg_alpha",
    "lambda_l2": "that is LightGBM's name: here, as in XGBoost, reg_lambda",
    "num_class": "several classes are not here: train one model against the others for each",
    "enable_categorical": "categorical splits are not here: make a column of each category",
    "monotone_constraints": "splits are not constrained; leave it out",
    "interaction_constraints": "splits are not constrained; leave it out",
    "num_parallel_tree": "each round grows one tree; leave it out",
    "validate_parameters": "parameters always are; leave it out",
    "scale_pos_weight": "give sample_weight= to psboost.train, or weights in an .npz",
    "max_delta_step": "leaf values are not bounded; leave it out",
    "early_stopping_rounds": "a callback that returns True ends the training",
    "missing": "NaN is always missing, and zero_as_missing says whether zeros are",
}


@dataclass(frozen=True)
class Parameters:
    """What is boosted and how. Names and defaults are XGBoost's wherever XGBoost has the parameter."""

    SETTING: ClassVar = "parameter"
    ALIASES: ClassVar = ALIASES
    NOT_HERE: ClassVar = NOT_HERE

    objective: str = define("binary:logistic", OneOf(tuple(METRICS_OF)), "the loss to minimise")
    learning_rate: float = define(0.3, Float(0, open=True), "what each tree's leaf values are shrunk by")
    max_depth: int = define(6, Int(0), "levels of splits in a tree, 0 for no limit")
    max_bin: int = define(256, Int(2, 2**16), "bins per feature at most")
    reg_lambda: float = define(1.0, Float(0), "L2 penalty on leaf values")
    reg_alpha: float = define(0.0, Float(0), "L1 penalty on leaf values")
    gamma: float = define(0.0, Float(0), "gain that a split must reach")
    min_child_weight: float = define(1.0, Float(0), "sum of hessians that a child must reach")
    base_score: float | None = define(
        None, Float(-_FLOAT32_MAX, _FLOAT32_MAX), "prediction before the first tree", optional="estimated from the labels"
    )
    grad_bits: int | None = define(
        None,
        OneOf((4, 8, 16, 32)),
        "bits that a row's gradient and hessian are rounded to; with 4 and 8, the gradient to two more",
        optional="16; 32 below 16,384 rows, or where weights differ by more than 8,192 times",
    )
    zero_as_missing: bool | str | None = define(
        None,
        BoolOr(("unstored",)),
        "what is missing beside NaN: all zeros, none, or cells that are not stored while stored zeros are values",
        optional="false for dense data; for sparse data and files unstored if the training data store a zero, else true",
    )
    sketch: str = define(
        "weighted",
        OneOf(("weighted", "exact", "kll")),
        "how cut points are found: by summaries of few bytes that weigh rows and come out the same every time, by all "
        "values, or by random sketches",
    )
    sketch_every: int = define(
        0,
        Int(0),
        "with sketch=weighted: new cut points before every so-many-th tree, which weigh rows by its hessians; 0: once, "
        "before the first tree",
    )
    eval_metric: tuple[str, ...] | None = define(
        None,
        SomeOf(tuple(name for names in METRICS_OF.values() for name in names)),
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
        if self.sketch_every and self.sketch != "weighted":
            raise ParameterError(
                f"parameter sketch_every={self.sketch_every} weighs rows by their hessians, which sketch={self.sketch} "
                "cannot: use sketch=weighted, or leave sketch_every out"
            )
        for name in self.metrics:
            if name not in METRICS_OF[self.objective]:
                raise ParameterError(
                    f"parameter eval_metric: {name} does not suit {self.objective}, which has "
                    + ", ".join(METRICS_OF[self.objective])
                )

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics to report, in order."""
        return self.eval_metric or METRICS_OF[self.objective]

    @classmethod
    def from_dict(cls, params: Mapping[str, Any]) -> Parameters:
        """Parameters from names or XGBoost's aliases to values; raises ParameterError for any other name."""
        if not isinstance(params, Mapping):
            raise ParameterError(
                f"parameters must be a dict from names to values, not {type(params).__name__}; "
                "leave it {} for the defaults"
            )
        return cls(**read_layer(cls, params, "parameter {}", "the parameters"))

    def to_dict(self) -> dict[str, Any]:
        """Names to values that JSON can hold; from_dict takes it back."""
        values = dataclasses.asdict(self)
        if self.eval_metric is not None:
            values["eval_metric"] = list(self.eval_metric)
        return values
