"""Knows the forms in which histograms travel, small or as the paper's CSR arrays; does not know messages or sockets.

Whatever comes over the wire is checked: arrays that no encoder writes are a ProtocolError.
"""

import numpy as np

from psboost.boosting.histogram import Entries, Histograms, Spare
from psboost.errors import ParameterError, ProtocolError
from psboost.kernels import histogram_streams
from psboost.kernels import packing as kernels
from psboost.wire.chunks import EXACT
from psboost.wire.streams import StreamReader, contiguous


class Packer:
    """What a sender keeps from message to message: memory to work in, and where pairs were not worth their time.

    To find pairs takes three times as long as the rest of packing. What they save changes little from tree to tree: so
    where a level's were not worth it, the level's next few messages go without.
    """

    # Of the bytes in the form PLAIN. To find pairs takes 1.2 to 1.7 ms for a megabyte of these, and a link of 1 Gbit/s
    # carries up to a fifth of it in that time: what saves less is not worth it.
    _WORTH = 0.8
    _REST = 8  # messages

    def __init__(self):
        self.spare = Spare()
        self._rests: dict[int, int] = {}

    def tries_pairs(self, level: int) -> bool:
        """Whether to try them for the next message of this level."""
        rest = self._rests.get(level, 0)
        self._rests[level] = max(0, rest - 1)
        return rest == 0

    def note(self, level: int, n_bytes: int, n_plain: int) -> None:
        """A message of the level for which they were tried has n_bytes, and would have n_plain without."""
        if n_bytes > self._WORTH * n_plain:
            self._rests[level] = self._REST


def histogram_codecs() -> tuple[str, ...]:
    """The names that encode_histograms knows, the paper's first."""
    return tuple(_CODECS)


def encode_histograms(
    codec: str, histograms: Histograms, bin_offsets: np.ndarray, packer: Packer | None = None, level: int = 0
) -> tuple[np.ndarray, ...]:
    """The arrays that hold `histograms` in the form `codec`.

    `bin_offsets` (int32, n_features + 1): the bins of feature f are bin_offsets[f] .. bin_offsets[f+1].
    `packer`: the sender's, and the `level` of the nodes; None: one for this message alone.
    "packed": one array of bytes. "csr": sparse matrices (the paper, section 3), sums as float64; a
    ParameterError if a sum is above 2^53.
    """
    if codec not in _CODECS:
        raise ParameterError(f"unknown histogram codec {codec!r}; use one of: {', '.join(_CODECS)}")
    encode, _ = _CODECS[codec]
    offsets, bins = contiguous(histograms.offsets, np.int64), contiguous(histograms.bins, np.int32)
    grads, hesses = contiguous(histograms.grads, np.int64), contiguous(histograms.hesses, np.int64)
    if (offsets[0], offsets[-1]) != (0, len(bins)) or not len(grads) == len(hesses) == len(bins):
        raise ValueError("offsets, bins, grads and hesses of a histogram must fit each other")
    return encode(Histograms(offsets, bins, grads, hesses), bin_offsets, Packer() if packer is None else packer, level)


def decode_histograms(
    codec: str, arrays: tuple[np.ndarray, ...], bin_offsets: np.ndarray, entries: Entries | None = None
) -> Histograms:
    """The inverse of encode_histograms; ProtocolError if no encoder writes such arrays.

    entries  behind which they are written, in the same arrays: their offsets count from the first of all; None: they have
             arrays of their own
    """
    if codec not in _CODECS:
        raise ProtocolError(f"unknown histogram codec {codec!r:.20}")
    _, decode = _CODECS[codec]
    return decode(arrays, bin_offsets, Entries() if entries is None else entries)


def _check(histograms: Histograms, bin_offsets: np.ndarray) -> None:
    """ValueError for a bin that is none, or a sum_hess that is not above 0."""
    bins, n_bins = histograms.bins, int(bin_offsets[-1])
    if len(bins) and not 0 <= int(bins.min()) <= int(bins.max()) < n_bins:
        raise ValueError(f"bins {bins.min()} .. {bins.max()} leave the range 0 .. {n_bins}")
    if len(bins) and int(histograms.hesses.min()) <= 0:
        raise ValueError("every sum_hess must be above 0")


def _encode_packed(histograms: Histograms, bin_offsets: np.ndarray, packer: Packer, level: int) -> tuple[np.ndarray, ...]:
    """Streams: (n_nodes, shift of grads, shift of hesses + form), entries of each node, bin gaps, sums in that form.

    A shift is the number of low bits that are zero in every sum: some losses have a constant hessian. The form is the one
    that takes fewer bytes. PLAIN: two streams, grads and hesses. IN_PAIRS (kernels.pairs says what marks are): how many
    pairs have a rank and how many entries are marked 0, marks by class, grads and hesses of the former by rank, grads and
    hesses of the latter.
    """
    words = packer.spare.words(int(histogram_streams.spare_words(histograms.n_nodes, len(histograms.bins))))
    try_pairs = packer.tries_pairs(level)
    n_first, begin, n_second, n_plain = histogram_streams.pack_histograms(
        histograms.offsets, histograms.bins, histograms.grads, histograms.hesses, int(bin_offsets[-1]), try_pairs, words,
    )  # fmt: skip
    if n_first < 0:
        _check(histograms, bin_offsets)
        raise ValueError("bins must ascend strictly within a node")
    if try_pairs:
        packer.note(level, n_first + n_second, n_first + n_plain)
    held, packed = words.view(np.uint8), np.empty(n_first + n_second, np.uint8)
    packed[:n_first], packed[n_first:] = held[:n_first], held[begin : begin + n_second]
    return (packed,)


def _decode_packed(arrays: tuple[np.ndarray, ...], bin_offsets: np.ndarray, entries: Entries) -> Histograms:
    if len(arrays) != 1:
        raise ProtocolError(f"packed histograms: expected 1 array, got {len(arrays)}")
    reader = StreamReader(arrays[0], "packed histograms", entries.packed.words)
    words, end, n_bins, head = reader.words, reader.n_bits, int(bin_offsets[-1]), np.empty(3, np.uint64)
    position = histogram_streams.unpack_head(words, end, head)
    if position == kernels.CORRUPT:
        raise reader.misfit()
    offsets = np.empty(int(head[0]) + 1, np.int64)
    position = histogram_streams.unpack_sizes(words, position, end, n_bins, offsets)
    if position == kernels.CORRUPT:
        raise reader.misfit()
    begin, n_entries = entries.end, int(offsets[-1])
    room = [held[begin : begin + n_entries] for held in entries.room(begin, n_entries)]
    spare = entries.spare.words(histogram_streams.SPARE * n_entries)
    if not histogram_streams.unpack_entries(words, position, end, head, n_bins, offsets, spare, *room):
        raise reader.misfit()
    return entries.histograms(begin + offsets)


def _encode_csr(histograms: Histograms, bin_offsets: np.ndarray, packer: Packer, level: int) -> tuple[np.ndarray, ...]:
    """node_rows, features, row_pointers, columns (int32; see split_features) and values (float64, n x 2)."""
    _check(histograms, bin_offsets)
    n_entries = len(histograms.bins)
    values = np.empty((n_entries, 2), np.float64)
    for column, sums in enumerate((histograms.grads, histograms.hesses)):
        if n_entries and (int(sums.min()) < -EXACT or int(sums.max()) > EXACT):
            raise ParameterError("a sum above 2^53 does not fit the histogram codec 'csr'; use 'packed'")
        values[:, column] = sums
    node_rows = np.empty(histograms.n_nodes + 1, np.int32)
    features, columns = np.empty(n_entries, np.int32), np.empty(n_entries, np.int32)
    pointers = np.empty(n_entries + 1, np.int32)
    bin_offsets = contiguous(bin_offsets, np.int32)
    n_rows = kernels.split_features(
        histograms.offsets, histograms.bins, bin_offsets, node_rows, features, pointers, columns
    )
    return node_rows, features[:n_rows].copy(), pointers[: n_rows + 1].copy(), columns, values


def _decode_csr(arrays: tuple[np.ndarray, ...], bin_offsets: np.ndarray, entries: Entries) -> Histograms:
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
    whole = np.all(np.abs(values) <= EXACT) and np.all(values == np.rint(values))
    if not whole or not np.all(values[:, 1] > 0):
        raise ProtocolError("csr histograms: a sum that is not a whole number up to 2^53, or a sum_hess of 0")
    offsets, bins = np.empty(len(node_rows), np.int64), np.empty(n_entries, np.int32)
    matrix = (contiguous(array, np.int32) for array in arrays[:4])
    if not kernels.join_features(*matrix, contiguous(bin_offsets, np.int32), offsets, bins):
        raise ProtocolError("csr histograms: rows or columns that do not ascend, or leave the features")
    begin = entries.end
    for held, values_of in zip(entries.room(begin, n_entries), (bins, values[:, 0], values[:, 1]), strict=True):
        held[begin : begin + n_entries] = values_of
    return entries.histograms(begin + offsets)


_CODECS = {"csr": (_encode_csr, _decode_csr), "packed": (_encode_packed, _decode_packed)}
