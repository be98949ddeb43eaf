"""Knows the quality of a training and the bytes of its parts; does not know which cut points are compared.

All bytes are on the wire, of all roles, for the whole training; sketch_bytes with the cut points that come back.
"""

from experiments.common.data import Data
from experiments.common.plan import Settings
from experiments.common.training import test_auc, train
from psboost.boosting.metrics import logloss

KINDS = {"histogram_bytes": ("PushHistograms",), "sketch_bytes": ("PushSketches", "ShareCutPoints")}


def measure(settings: Settings, data: Data) -> list[dict]:
    forest = train(settings, data)
    sent = {kind: sizes["wire"] for kind, sizes in forest.report["bytes"].items()}
    row = {name: sum(sent.get(kind, 0) for kind in kinds) for name, kinds in KINDS.items()}
    margins = forest.predict(data.X_test, output_margin=True)
    return [row | {"bytes": sum(sent.values()), "auc": test_auc(forest, data), "logloss": logloss(margins, data.y_test)}]
