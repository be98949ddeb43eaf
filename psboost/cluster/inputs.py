"""Knows how other processes come to the data: the path of a file, written first where there is none."""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import scipy

from psboost.data import zeros
from psboost.data.matrix import as_csr, as_matrix
from psboost.data.npz import WAS_DENSE
from psboost.data.source import PATHS, TRAINING, Source, open_source
from psboost.errors import DataError


@dataclass(frozen=True)
class DataInput:
    """A data set as a file, and how to read it; `to_dict` and `from_dict` carry it to other processes.

    labels, weights: the paths of those for .npz data that holds none: .npy, or text with one number a line. purpose: as
    open_source takes it.
    """

    path: str
    labels: str | None = None
    weights: str | None = None
    index_base: int = 1
    n_features: int | None = None
    zero_as_missing: zeros.Rule | None = None
    purpose: str = TRAINING

    def open(self) -> Source:
        labels, weights = (None if path is None else _read_numbers(path) for path in (self.labels, self.weights))
        return open_source(
            self.path, labels, weights=weights, index_base=self.index_base, n_features=self.n_features,
            zero_as_missing=self.zero_as_missing, purpose=self.purpose,
        )  # fmt: skip

    def to_dict(self) -> dict:
        return asdict(self)

    @staticmethod
    def from_dict(fields: dict) -> "DataInput":
        return DataInput(**fields)


def _read_numbers(path: str) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False) if path.endswith(".npy") else np.loadtxt(path, ndmin=1)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: cannot be read as labels (.npy, or text with one number a line): {error}") from error


def as_file(folder: str, name: str, data, labels, weights, **how) -> DataInput:
    """`data` as a DataInput: a path as it is, a matrix written to `folder` first, and so what is beside a file. `how`: as in
    DataInput."""
    beside = {"y": labels, "weights": weights}
    given = {key: np.asarray(values, np.float64).reshape(-1) for key, values in beside.items() if values is not None}
    if isinstance(data, PATHS):
        paths = {key: str(Path(folder) / f"{name}.{key}.npy") for key in given}
        for key, values in given.items():
            np.save(paths[key], values)
        return DataInput(str(Path(data).resolve()), paths.get("y"), paths.get("weights"), **how)
    target, matrix = Path(folder) / f"{name}.npz", as_matrix(data)
    if isinstance(matrix, np.ndarray):
        csr = _stored(_as_scipy_holds(matrix), zeros.keeps_zeros(how.get("zero_as_missing")))
        given[WAS_DENSE] = np.ones(1, bool)
    else:
        csr = as_csr(matrix)
    arrays = {"indptr": csr.indptr, "indices": csr.indices, "data": csr.data, "shape": np.array(csr.shape, np.int64)}
    np.savez(target, **arrays, **given)
    return DataInput(str(target), **how)


def _as_scipy_holds(matrix: np.ndarray) -> np.ndarray:
    """The same numbers in a type that a sparse matrix may have."""
    if matrix.dtype == np.float16:
        return matrix.astype(np.float32)
    return matrix.astype(matrix.dtype.newbyteorder("="), copy=False)


def _stored(matrix: np.ndarray, keep_zeros: bool) -> "scipy.sparse.csr_matrix":
    """The matrix as CSR, with every cell stored if zeros are to be kept."""
    if not keep_zeros:
        return scipy.sparse.csr_matrix(matrix)
    n_rows, n_columns = matrix.shape
    indptr = np.arange(n_rows + 1, dtype=np.int64) * n_columns
    return scipy.sparse.csr_matrix((matrix.ravel(), np.tile(np.arange(n_columns), n_rows), indptr), shape=matrix.shape)
