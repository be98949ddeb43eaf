"""Knows where the matrices that all programs are given lie as files, and which columns are left out; does not run them."""

import os
import shutil
from pathlib import Path

import numpy as np
import shapes
from scipy import sparse

RARE = 4  # rows: a column of fewer cannot be split at min_child_weight 1
GIVEN, USED, KEPT = "as given", "unused columns removed", f"columns of < {RARE} rows removed"
LEAST_ROWS = {GIVEN: 0, USED: 1, KEPT: RARE}
TEST_ROWS = 20_000  # that qualities are told on


def default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "psboost-speed"


def save(folder: Path, X, y: np.ndarray) -> None:
    folder.mkdir(parents=True)
    np.save(folder / "y.npy", y)
    if not sparse.issparse(X):
        np.save(folder / "cells.npy", X)
        return
    for name in ("data", "indices", "indptr"):
        np.save(
            folder / f"{name}.npy", getattr(X, name).astype(np.float32 if name == "data" else X.indices.dtype, copy=False)
        )
    np.save(folder / "shape.npy", np.array(X.shape, np.int64))


def load(folder: str | Path):
    """X (CSR or dense, float32) and y; each array is held once, and 64-bit indices stay what they are."""
    folder = Path(folder)
    y = np.load(folder / "y.npy")
    if (folder / "cells.npy").exists():
        return np.load(folder / "cells.npy"), y
    X = sparse.csr_matrix(tuple(np.load(folder / "shape.npy").tolist()), dtype=np.float32)
    X.data, X.indices, X.indptr = (np.load(folder / f"{name}.npy") for name in ("data", "indices", "indptr"))
    return X, y


def prepare(shape: str, arguments) -> dict[str, Path]:
    """{way: folder}, each with train/, test/ and columns.npy, those kept. Ways that leave out no more are not there."""
    folder = arguments.cache / _name(shape, arguments)
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        (X, y), test = _matrices(shape, arguments)
        counts = np.bincount(X.indices, minlength=X.shape[1]) if sparse.issparse(X) else np.full(X.shape[1], len(y))
        n_before = None
        for way, least in LEAST_ROWS.items():
            columns = np.flatnonzero(counts >= least)
            if len(columns) == n_before:
                continue
            n_before = len(columns)
            all_ = n_before == X.shape[1]
            for part, (matrix, labels) in (("train", (X, y)), ("test", test)):
                save(folder / _slug(way) / part, matrix if all_ else matrix[:, columns], labels)
            np.save(folder / _slug(way) / "columns.npy", columns)
        (folder / "done").touch()
    return {way: folder / _slug(way) for way in LEAST_ROWS if (folder / _slug(way)).exists()}


def variant(folder: Path, name: str, make) -> Path:
    """A folder beside `folder` with what `make(X, y)` returns for its training rows; made once."""
    target = folder.with_name(name)
    if not (target / "done").exists():
        shutil.rmtree(target, ignore_errors=True)
        save(target / "train", *make(*load(folder / "train")))
        (target / "done").touch()
    return target


def _matrices(shape: str, arguments):
    """(X, y) of training rows and of test rows, of one truth."""
    if arguments.data is not None and shape != "dense":
        return [_read(arguments.data / f"{shape}-small-{part}.npz") for part in ("train", "test")]
    n_all = shapes.SHAPES[shape][1]
    n_rows = max(1, round(n_all * arguments.scale))
    n_test = min(TEST_ROWS, n_rows)
    X, y = shapes.make(shape, (n_rows + n_test) / n_all, arguments.seed)
    return (X[:n_rows], y[:n_rows]), (X[n_rows:], y[n_rows:])


def _read(path: Path):
    with np.load(path) as held:
        X = sparse.csr_matrix((held["data"], held["indices"], held["indptr"]), shape=tuple(held["shape"]))
        return X, held["y"].astype(np.float64)


def _name(shape: str, arguments) -> str:
    if arguments.data is None or shape == "dense":
        return f"{shape}-{arguments.scale:g}-{arguments.seed}"
    return f"{shape}-file-{stamp(arguments.data / f'{shape}-small-train.npz')}"


def stamp(path: Path) -> str:
    """What tells a file's contents from those that it had before."""
    stat = path.stat()
    return f"{stat.st_size}-{stat.st_mtime_ns}"


def _slug(way: str) -> str:
    return {GIVEN: "given", USED: "used", KEPT: "kept"}[way]
