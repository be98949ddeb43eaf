"""Knows how settings become a training, and how its messages are watched; does not know what is asked of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from inspect import signature

import numpy as np

import psboost
from experiments.common.data import Data
from experiments.common.plan import PlanError, Settings
from psboost.boosting.forest import Forest
from psboost.boosting.metrics import auc
from psboost.cluster import local
from psboost.config import Parameters
from psboost.lab import Cluster
from psboost.wire.codec import decode
from psboost.wire.kinds import Message

_PARAMETERS = {field.name for field in fields(Parameters)}
_CLUSTER = {field.name for field in fields(Cluster)}
_ARGUMENTS = set(signature(psboost.train).parameters) - {"params", "X", "y"}
# Exact cut points are the same each time; a KLL sketch's are not.
DEFAULTS = {"objective": "binary:logistic", "sketch": "exact", "transport": "memory", "threads": 1}

OF_DATA = ("data", "rows")  # settings that say what is trained on

See = Callable[[str, str, Message, int], None]


def train(settings: Settings, data: Data, *, own: tuple[str, ...] = (), **more) -> Forest:
    """Trains by settings that are psboost.train's, parameters or a Cluster's; `own` are the experiment's, not for training.

    `more` are arguments of psboost.train. Raises PlanError for a setting that nobody knows.
    """
    given = DEFAULTS | {name: value for name, value in settings.items() if name not in (*own, *OF_DATA)}
    parameters = {name: given.pop(name) for name in _PARAMETERS & given.keys()}
    arguments = {name: given.pop(name) for name in _ARGUMENTS & given.keys()}
    if "grid" in arguments:
        arguments["grid"] = grid_of(settings)
    if arguments["transport"] == "virtual":
        arguments["cluster"] = Cluster(**{name: given.pop(name) for name in _CLUSTER & given.keys()})
    if given:
        raise PlanError(f"settings that no training has: {', '.join(given)}")
    return psboost.train(parameters, data.X, data.y, **arguments, **more)


def grid_of(settings: Settings) -> tuple[int, int]:
    """(row shards, feature shards) of a text such as "3x3"."""
    rows, columns = settings["grid"].split("x")
    return int(rows), int(columns)


def test_auc(forest: Forest, data: Data) -> float:
    """AUC on the test rows."""
    return auc(forest.predict(data.X_test, output_margin=True), data.y_test)


@contextmanager
def watched(see: See) -> Iterator[None]:
    """Shows every message of trainings with transport="memory": see(sender, receiver, message, its array bytes)."""

    def take(mail):
        receiver, frames = mail.pop(0)
        envelope, message = decode(frames)
        see(envelope.sender, receiver, message, payload_of(message))
        return receiver, frames

    run = local.run_in_memory
    local.run_in_memory = partial(run, take=take)
    try:
        yield
    finally:
        local.run_in_memory = run


def payload_of(message: Message) -> int:
    """Bytes of all arrays of a message, as ledgers count them."""
    values = vars(message).values()
    arrays = [array for value in values for array in (value if isinstance(value, tuple) else (value,))]
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
