"""Knows the forms in which histograms travel, small or as the paper's CSR arrays; does not know messages or sockets.

Whatever comes over the wire is checked: arrays that no encoder writes are a ProtocolError.
"""

import numpy as np

from psboost.boosting.histogram import Histograms
from psboost.errors import ParameterError, ProtocolError
from psboost.kernels import packing as kernels
from psboost.kernels import pairs
from psboost.wire.streams import (
    StreamReader,
    add_gaps,
    contiguous,
    fold_signs,
    pack_streams,
    take_gaps,
    unfold_signs,
)

_EXACT = 2**53  # float64 holds every integer up to here
_PLAIN, _IN_PAIRS = 0, 64  # forms of sums; above every shift
_FORM_BYTES = 2  # _IN_PAIRS lengthens the first stream by so many at most
_MOST_SLOTS = 1 << 18  # of 4 bytes; more do not stay in a core's cache


def histogram_codecs() -> tuple[str, ...]:
    """The names that encode_histograms knows, the paper's first."""
    return tuple(_CODECS)


def encode_histograms(codec: str, histograms: Histograms, bin_offsets: np.ndarray) -> tuple[np.ndarray, ...]:
    """The arrays that hold `histograms` in the form `codec`.

    `bin_offsets` (int32, n_features + 1): the bins of feature f are bin_offsets[f] .. bin_offsets[f+1].
    "packed": one array of bytes. "csr": sparse matrices (the paper, section 3), sums as float64; a
    ParameterError if a sum is above 2^53.
    """
    encode, _ = _find(codec)
    bins, bin_offsets = histograms.bins, contiguous(bin_offsets, np.int32)
    n_entries = len(bins)
    if (histograms.offsets[0], histograms.offsets[-1]) != (0, n_entries) or not (
        len(histograms.grads) == len(histograms.hesses) == n_entries
    ):
        raise ValueError("offsets, bins, grads and hesses of a histogram must fit each other")
    if n_entries and (int(bins.min()) < 0 or int(bins.max()) >= int(bin_offsets[-1])):
        raise ValueError(f"bins {bins.min()} .. {bins.max()} leave the range 0 .. {bin_offsets[-1]}")
    return encode(histograms, bin_offsets)


def decode_histograms(codec: str, arrays: tuple[np.ndarray, ...], bin_offsets: np.ndarray) -> Histograms:
    """The inverse of encode_histograms; ProtocolError if no encoder writes such arrays."""
    _, decode = _find(codec)
    return decode(arrays, contiguous(bin_offsets, np.int32))


def _find(codec: str) -> tuple:
    if codec not in _CODECS:
        raise ParameterError(f"unknown histogram codec {codec!r}; use one of: {', '.join(_CODECS)}")
    return _CODECS[codec]


def _encode_packed(histograms: Histograms, bin_offsets: np.ndarray) -> tuple[np.ndarray, ...]:
    """Streams: (n_nodes, shift of grads, shift of hesses + form), entries of each node, bin gaps, sums in that form.

    A shift is the number of low bits that are zero in every sum: some losses have a constant hessian.
    """
    offsets = contiguous(histograms.offsets, np.int64)
    grads, hesses = contiguous(histograms.grads, np.int64), contiguous(histograms.hesses, np.int64)
    if len(hesses) and int(hesses.min()) <= 0:
        raise ValueError("every sum_hess must be above 0")
    shifts = _common_zeros(grads), _common_zeros(hesses)
    form, sums = _pack_sums(grads, hesses, shifts)
    sizes = pack_streams(np.array([histograms.n_nodes, shifts[0], shifts[1] + form], np.uint64))
    places = pack_streams(np.diff(offsets).view(np.uint64), take_gaps(offsets, histograms.bins))
    return (np.concatenate((sizes, places, sums)),)


def _pack_sums(grads: np.ndarray, hesses: np.ndarray, shifts: tuple[int, int]) -> tuple[int, np.ndarray]:
    """The form that takes fewer bytes, and those.

    _PLAIN: two streams, grads and hesses. _IN_PAIRS (kernels.pairs says what marks are): how many pairs have a rank and how
    many entries are marked 0, grads and hesses of the former by rank, grads and hesses of the latter, marks by class.
    """
    in_pairs, least_bits = _pack_pairs(grads, hesses, shifts)
    if in_pairs is not None and 8 * (len(in_pairs) + _FORM_BYTES) < least_bits:
        return _IN_PAIRS, in_pairs
    plain = pack_streams(*_sum_codes(grads, hesses, shifts))
    if in_pairs is not None and len(in_pairs) + _FORM_BYTES < len(plain):
        return _IN_PAIRS, in_pairs
    return _PLAIN, plain


def _pack_pairs(grads: np.ndarray, hesses: np.ndarray, shifts: tuple[int, int]) -> tuple[np.ndarray | None, int]:
    """The form _IN_PAIRS, None if no pair repeats; and the bits that the form _PLAIN takes at least."""
    n_entries = len(grads)
    numbers, counts = np.empty(n_entries, np.uint32), np.empty(n_entries + 1, np.uint32)
    table = np.empty(2 * n_entries + 2, np.int64)
    slots = np.zeros(min(2 << n_entries.bit_length(), _MOST_SLOTS), np.uint32)
    n_pairs = pairs.number_pairs(grads, hesses, slots, numbers, table, counts)
    if n_pairs == n_entries:
        return None, 0
    counts = counts[: n_pairs + 1]
    kinds, ranks = np.zeros(pairs.N_KINDS, np.int64), np.empty(n_pairs + 1, np.uint32)
    most = min(n_pairs, n_entries - n_pairs)  # a pair with a rank takes two entries
    ranked_grads, ranked_hesses = np.empty(most, np.int64), np.empty(most, np.int64)
    n_ranked = pairs.rank_pairs(counts, table, kinds, ranks, ranked_grads, ranked_hesses)
    n_others = int(kinds[1])
    marks = np.empty(n_entries, np.uint64)
    other_grads, other_hesses = np.empty(n_others + 1, np.int64), np.empty(n_others + 1, np.int64)
    pairs.mark_pairs(grads, hesses, numbers, ranks, marks, other_grads, other_hesses)
    packed = pack_streams(
        np.array([n_ranked, n_others], np.uint64),
        *_sum_codes(ranked_grads[:n_ranked], ranked_hesses[:n_ranked], shifts),
        *_sum_codes(other_grads[:n_others], other_hesses[:n_others], shifts),
        by_class=marks,
    )
    return packed, pairs.count_bits(counts, table, np.uint64(shifts[0]), np.uint64(shifts[1]))


def _sum_codes(grads: np.ndarray, hesses: np.ndarray, shifts: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    hess_codes = np.empty(len(hesses), np.uint64)
    kernels.lower_counts(hesses, np.uint64(shifts[1]), hess_codes)
    return fold_signs(grads, shifts[0]), hess_codes


def _decode_packed(arrays: tuple[np.ndarray, ...], bin_offsets: np.ndarray) -> Histograms:
    if len(arrays) != 1:
        raise ProtocolError(f"packed histograms: expected 1 array, got {len(arrays)}")
    reader = StreamReader(arrays[0], "packed histograms")
    n_nodes, grad_shift, hess_shift = (int(value) for value in reader.take(3))
    form, hess_shift = hess_shift & _IN_PAIRS, hess_shift & ~_IN_PAIRS
    if grad_shift > 63 or hess_shift > 62:
        raise reader.corrupt(f"shifts {grad_shift} and {hess_shift}")
    counts = reader.take(n_nodes)
    n_bins = int(bin_offsets[-1])
    if n_nodes and int(counts.max()) > n_bins:
        raise reader.corrupt(f"{counts.max()} entries in a node of {n_bins} bins")
    offsets = np.zeros(n_nodes + 1, np.int64)
    np.cumsum(counts.view(np.int64), out=offsets[1:])
    n_entries = int(offsets[-1])
    bins = add_gaps(offsets, reader.take(n_entries), n_bins, np.int32, reader)
    if form == _IN_PAIRS:
        n_ranked, n_others = (int(value) for value in reader.take(2))
        ranked = _take_sums(reader, n_ranked, grad_shift, hess_shift)
        others = _take_sums(reader, n_others, grad_shift, hess_shift)
        grads, hesses = np.empty(n_entries, np.int64), np.empty(n_entries, np.int64)
        if not pairs.join_pairs(reader.take_by_class(n_entries), *ranked, *others, grads, hesses):
            raise reader.corrupt("marks that do not fit the pairs")
    else:
        grads, hesses = _take_sums(reader, n_entries, grad_shift, hess_shift)
    reader.finish()
    return Histograms(offsets, bins, grads, hesses)


def _take_sums(reader: StreamReader, n_sums: int, grad_shift: int, hess_shift: int) -> tuple[np.ndarray, np.ndarray]:
    """The grads and hesses of two streams."""
    grads = unfold_signs(reader.take(n_sums), grad_shift, reader)
    hesses = np.empty(n_sums, np.int64)
    if not kernels.raise_counts(reader.take(n_sums), np.uint64(hess_shift), hesses):
        raise reader.corrupt("a sum_hess of more than 63 bits")
    return grads, hesses


def _common_zeros(values: np.ndarray) -> int:
    """How many low bits are zero in all values (0 if all values are zero)."""
    bits = int(np.bitwise_or.reduce(values)) if len(values) else 0
    return (bits & -bits).bit_length() - 1 if bits else 0


def _encode_csr(histograms: Histograms, bin_offsets: np.ndarray) -> tuple[np.ndarray, ...]:
    """node_rows, features, row_pointers, columns (int32; see split_features) and values (float64, n x 2)."""
    bins, n_entries = contiguous(histograms.bins, np.int32), len(histograms.bins)
    values = np.empty((n_entries, 2), np.float64)
    for column, sums in enumerate((histograms.grads, histograms.hesses)):
        if n_entries and (int(sums.min()) < -_EXACT or int(sums.max()) > _EXACT):
            raise ParameterError("a sum above 2^53 does not fit the histogram codec 'csr'; use 'packed'")
        values[:, column] = sums
    node_rows = np.empty(histograms.n_nodes + 1, np.int32)
    features, columns = np.empty(n_entries, np.int32), np.empty(n_entries, np.int32)
    pointers = np.empty(n_entries + 1, np.int32)
    offsets = contiguous(histograms.offsets, np.int64)
    n_rows = kernels.split_features(offsets, bins, bin_offsets, node_rows, features, pointers, columns)
    return node_rows, features[:n_rows].copy(), pointers[: n_rows + 1].copy(), columns, values


def _decode_csr(arrays: tuple[np.ndarray, ...], bin_offsets: np.ndarray) -> Histograms:
    if len(arrays) != 5:
        raise ProtocolError(f"csr histograms: expected 5 arrays, got {len(arrays)}")
    node_rows, features, pointers, columns, values = arrays
    n_entries = len(columns)
    if (
        any(array.dtype != np.int32 or array.ndim != 1 for array in arrays[:4])
        or values.dtype != np.float64
        or values.shape != (n_entries, 2)
        or len(node_rows) == 0
        or len(pointers) != len(features) + 1
    ):
        shapes = ", ".join(f"{array.dtype}{array.shape}" for array in arrays)
        raise ProtocolError(f"csr histograms: arrays that do not fit each other: {shapes}")
    whole = np.all(np.abs(values) <= _EXACT) and np.all(values == np.rint(values))
    if not whole or not np.all(values[:, 1] > 0):
        raise ProtocolError("csr histograms: a sum that is not a whole number up to 2^53, or a sum_hess of 0")
    offsets, bins = np.empty(len(node_rows), np.int64), np.empty(n_entries, np.int32)
    matrix = (contiguous(array, np.int32) for array in arrays[:4])
    if not kernels.join_features(*matrix, bin_offsets, offsets, bins):
        raise ProtocolError("csr histograms: rows or columns that do not ascend, or leave the features")
    return Histograms(offsets, bins, values[:, 0].astype(np.int64), values[:, 1].astype(np.int64))


_CODECS = {"csr": (_encode_csr, _decode_csr), "packed": (_encode_packed, _decode_packed)}
