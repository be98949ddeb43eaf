"""Knows how other processes come to the data: the path of a file, written first where there is none."""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import scipy

from psboost.data import zeros
from psboost.data.matrix import as_matrix, is_sparse
from psboost.data.source import Source, open_source
from psboost.errors import DataError


@dataclass(frozen=True)
class DataInput:
    """A data set as a file, and how to read it; `to_dict` and `from_dict` carry it to other processes.

    labels: the path of labels for .npz data that holds none: .npy, or text with one number a line.
    """

    path: str
    labels: str | None = None
    index_base: int = 1
    n_features: int | None = None
    zero_as_missing: zeros.Rule | None = None

    def open(self) -> Source:
        labels = None if self.labels is None else _read_labels(self.labels)
        return open_source(
            self.path, labels, index_base=self.index_base, n_features=self.n_features,
            zero_as_missing=self.zero_as_missing,
        )  # fmt: skip

    def to_dict(self) -> dict:
        return asdict(self)

    @staticmethod
    def from_dict(fields: dict) -> "DataInput":
        return DataInput(**fields)


def _read_labels(path: str) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False) if path.endswith(".npy") else np.loadtxt(path, ndmin=1)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as labels (.npy, or text with one number a line): {error}") from error


def as_file(folder: str, name: str, data, labels, weights, **how) -> DataInput:
    """`data` as a DataInput: a path as it is, a matrix written to `folder` first. `how`: as in DataInput."""
    if isinstance(data, str | Path) and labels is None and weights is None:
        return DataInput(str(Path(data).resolve()), **how)
    if isinstance(data, str | Path):
        raise DataError(f"{data}: labels or weights beside a file: put them into an .npz, as y and weights")
    target = Path(folder) / f"{name}.npz"
    if is_sparse(data):
        csr = scipy.sparse.csr_matrix(data)
    else:
        csr = _stored(_as_scipy_holds(as_matrix(data)), zeros.keeps_zeros(how.get("zero_as_missing")))
    arrays = {"indptr": csr.indptr, "indices": csr.indices, "data": csr.data, "shape": np.array(csr.shape, np.int64)}
    if labels is not None:
        arrays["y"] = np.asarray(labels, np.float64)
    if weights is not None:
        arrays["weights"] = np.asarray(weights, np.float64)
    np.savez(target, **arrays)
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
