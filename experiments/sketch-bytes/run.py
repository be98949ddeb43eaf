"""Knows what the summaries of features' values take in three layouts; does not know how that is drawn.

Bytes that one sender (a worker; of blocks, one that has a third of the features) sends:

    held          what it has to say (psboost)
    padded        each declared feature as large as the largest summary that there is, stored or not
    maximum       each declared feature as large as XGBoost 0.72 made room for (8 + 66 * 16 bytes); by formula
    with_headers  what it has to say, and 16 bytes for each declared feature (XGBoost since 3.3)
"""

from experiments.common.data import Data
from experiments.common.plan import Settings
from experiments.common.training import grid_of, train

XGBOOST_MAXIMUM = 8 + 16 * 66  # for sketch_eps = 0.03, its default


def measure(settings: Settings, data: Data) -> list[dict]:
    report = train(settings, data).report
    n_rows, n_columns = grid_of(settings)
    # In a ring, nobody sends the features that it merges itself: R - 1 send each feature.
    n_senders = n_rows * n_columns if settings["mode"] == "block" else n_rows - 1
    sizes = {f"{way}_bytes": size / n_senders for way, size in report["sketches"].items()}
    sizes["maximum_bytes"] = XGBOOST_MAXIMUM * report["features"]["declared"]
    return [sizes | {"features_declared": report["features"]["declared"], "features_stored": report["features"]["stored"]}]
