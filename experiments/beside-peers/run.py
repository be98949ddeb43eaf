"""Knows how one program is run on four hosts, and when that cannot be; does not know how programs are started there.

bytes_per_tree    what the hosts send, counted at their interfaces with headers; mean of the trees after the first
seconds_per_tree  wall clock; median of the trees after the first. Four hosts share this machine's cores
seconds_to_end    from the start of the processes to the end of the last tree
"""

import os
import shutil
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from experiments.common.here import NotHere
from experiments.common.plan import Settings

SPEED = Path(__file__).parents[1] / "speed"
CACHE = Path(tempfile.gettempdir()) / "psboost-beside-peers"
SECONDS = 600  # after which a peer's training is given up


def measure(settings: Settings, data: None) -> list[dict]:
    who, n_rounds = settings["who"], settings["n_rounds"]
    needs(who)
    if str(SPEED) not in sys.path:  # its scripts import each other by name
        sys.path.append(str(SPEED))
    wire = import_module("wire")
    from psboost.cluster.signals import signals_as_interrupt
    from psboost.lab.namespaces import LabError, OutOfTime

    files = wire.data_of(settings["shape"], settings["n_rows"] / wire.SHAPES[settings["shape"]][1], CACHE)
    try:
        with signals_as_interrupt():
            if who == "psboost":
                run = wire.run_psboost(wire.DEFAULT, files, n_rounds, settings["rate"], {n_rounds})
            else:
                run = wire.run_peer(who, files, n_rounds, settings["rate"], SECONDS, {n_rounds})
    except OutOfTime as error:
        raise NotHere(f"not done after {SECONDS} seconds") from error
    except LabError as error:
        raise NotHere(str(error)) from error
    return [
        {
            "bytes_per_tree": run.bytes_per_tree, "seconds_per_tree": run.seconds_per_tree,
            "seconds_to_end": run.clock[-1], "auc": float(run.auc[str(n_rounds)]),
        }
    ]  # fmt: skip


def needs(who: str) -> None:
    """Raises NotHere if this machine cannot make the run."""
    if not sys.platform.startswith("linux") or os.geteuid() or not shutil.which("ip") or not shutil.which("tc"):
        raise NotHere("network namespaces need Linux, root, and the commands ip and tc")
    package = {"XGBoost": "xgboost", "LightGBM": "lightgbm"}.get(who.split(",")[0])
    if package is not None:
        try:
            import_module(package)
        except ImportError as error:
            raise NotHere(f"{package} is not installed (pip install '.[experiments]')") from error
