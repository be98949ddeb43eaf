"""Knows the byte-saving forms of histograms, ids and bits; does not know messages or sockets.

Whatever comes over the wire is checked: bytes that no packing function writes are a ProtocolError.
"""

import numpy as np

from psboost.boosting.histogram import Histograms
from psboost.errors import ParameterError, ProtocolError
from psboost.kernels import packing as kernels

_EXACT = 2**53  # float64 holds every integer up to here


# --- packed streams: one behind the other in one array of bytes


def _pack(*streams: np.ndarray) -> np.ndarray:
    """The uint64 streams as bytes (uint8), each one in blocks of its own."""
    n_bits = sum(71 * len(values) + 32 * (len(values) // kernels.BLOCK + 1) for values in streams)
    words = np.empty(n_bits // 64 + 2, np.uint64)
    words[0] = 0
    position = 0
    for values in streams:
        position = kernels.pack_blocks(values, np.uint64(position), words)
    return words.view(np.uint8)[: int(position) // 8].copy()


class _Reader:
    """Takes streams from packed bytes, in the order in which they were packed."""

    def __init__(self, packed: np.ndarray, what: str):
        packed = np.asarray(packed)
        if packed.dtype != np.uint8 or packed.ndim != 1:
            raise ProtocolError(f"{what}: expected bytes, got {packed.dtype} of shape {packed.shape}")
        # aligned, and a word longer, as the kernel needs it
        self.words = np.zeros(len(packed) // 8 + 2, np.uint64)
        self.words.view(np.uint8)[: len(packed)] = packed
        self.n_bits = np.uint64(8 * len(packed))
        self.position = np.uint64(0)
        self.what = what

    def take(self, n_values: int) -> np.ndarray:
        # a block is a byte at least: this bounds what a corrupt count can make us allocate
        if n_values > kernels.BLOCK * (int(self.n_bits) // 8):
            raise self.corrupt(f"{n_values} values in {int(self.n_bits) // 8} bytes")
        values = np.empty(n_values, np.uint64)
        position = kernels.unpack_blocks(self.words, self.position, self.n_bits, values)
        if position == kernels.CORRUPT:
            raise self.corrupt("blocks that do not fit their bytes")
        self.position = np.uint64(position)
        return values

    def finish(self) -> None:
        if self.position != self.n_bits:
            raise self.corrupt(f"{(int(self.n_bits) - int(self.position)) // 8} bytes too many")

    def corrupt(self, why: str) -> ProtocolError:
        return ProtocolError(f"{self.what}: corrupt bytes ({why}); do both peers run the same version?")


# --- integers and ascending ids


def pack_integers(values: np.ndarray) -> np.ndarray:
    """Any int64 values as bytes; the first byte says whether signs were folded."""
    values = _contiguous(values, np.int64)
    signed = len(values) > 0 and int(values.min()) < 0
    if not signed:
        return _prefixed(0, _pack(values.view(np.uint64)))
    return _prefixed(1, _pack(_fold_signs(values, 0)))


def unpack_integers(packed: np.ndarray, n_values: int) -> np.ndarray:
    """The inverse of pack_integers: int64 (n_values)."""
    form, packed = _prefix(packed, "integers")
    reader = _Reader(packed, "integers")
    codes = reader.take(n_values)
    reader.finish()
    if form == 0:
        return codes.view(np.int64)
    if form != 1:
        raise reader.corrupt(f"form {form}")
    return _unfold_signs(codes, 0, reader)


def pack_ascending(ids: np.ndarray) -> np.ndarray:
    """Ids (int32 or int64, >= 0, strictly ascending) as bytes: the gaps between them."""
    return _pack(_take_gaps(np.array([0, len(ids)]), ids))


def unpack_ascending(packed: np.ndarray, n_ids: int) -> np.ndarray:
    """The inverse of pack_ascending: int64 (n_ids)."""
    reader = _Reader(packed, "ascending ids")
    gaps = reader.take(n_ids)
    reader.finish()
    return _add_gaps(np.array([0, n_ids]), gaps, 2**63, np.int64, reader)


def _take_gaps(offsets: np.ndarray, ids: np.ndarray) -> np.ndarray:
    ids = np.ascontiguousarray(ids)
    if ids.dtype not in (np.int32, np.int64):
        raise TypeError(f"ids must be int32 or int64, not {ids.dtype}")
    gaps = np.empty(len(ids), np.uint64)
    if not kernels.take_gaps(offsets, ids, gaps):
        raise ValueError("ids must ascend strictly, from 0 or above")
    return gaps


def _add_gaps(offsets: np.ndarray, gaps: np.ndarray, limit: int, dtype: type, reader: _Reader) -> np.ndarray:
    ids = np.empty(len(gaps), dtype)
    if not kernels.add_gaps(offsets, gaps, np.uint64(limit), ids):
        raise reader.corrupt(f"an id of {limit} or above")
    return ids


def _fold_signs(values: np.ndarray, shift: int) -> np.ndarray:
    codes = np.empty(len(values), np.uint64)
    kernels.fold_signs(values, np.uint64(shift), codes)
    return codes


def _unfold_signs(codes: np.ndarray, shift: int, reader: _Reader) -> np.ndarray:
    values = np.empty(len(codes), np.int64)
    if not kernels.unfold_signs(codes, np.uint64(shift), values):
        raise reader.corrupt("an integer of more than 64 bits")
    return values


# --- histograms


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
    bins, bin_offsets = histograms.bins, _contiguous(bin_offsets, np.int32)
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
    return decode(arrays, _contiguous(bin_offsets, np.int32))


def _find(codec: str) -> tuple:
    if codec not in _CODECS:
        raise ParameterError(f"unknown histogram codec {codec!r}; use one of: {', '.join(_CODECS)}")
    return _CODECS[codec]


def _encode_packed(histograms: Histograms, bin_offsets: np.ndarray) -> tuple[np.ndarray, ...]:
    """Five streams: (n_nodes, shifts), entries of each node, bin gaps, sum_grads, sum_hesses.

    A shift is the number of low bits that are zero in every sum: some losses have a constant hessian.
    """
    offsets = _contiguous(histograms.offsets, np.int64)
    grads, hesses = _contiguous(histograms.grads, np.int64), _contiguous(histograms.hesses, np.int64)
    grad_shift, hess_shift = _common_zeros(grads), _common_zeros(hesses)
    hess_codes = np.empty(len(hesses), np.uint64)
    if not kernels.lower_counts(hesses, np.uint64(hess_shift), hess_codes):
        raise ValueError("every sum_hess must be above 0")
    return (
        _pack(
            np.array([histograms.n_nodes, grad_shift, hess_shift], np.uint64),
            np.diff(offsets).view(np.uint64),
            _take_gaps(offsets, histograms.bins),
            _fold_signs(grads, grad_shift),
            hess_codes,
        ),
    )


def _decode_packed(arrays: tuple[np.ndarray, ...], bin_offsets: np.ndarray) -> Histograms:
    if len(arrays) != 1:
        raise ProtocolError(f"packed histograms: expected 1 array, got {len(arrays)}")
    reader = _Reader(arrays[0], "packed histograms")
    n_nodes, grad_shift, hess_shift = (int(value) for value in reader.take(3))
    if grad_shift > 63 or hess_shift > 62:
        raise reader.corrupt(f"shifts {grad_shift} and {hess_shift}")
    counts = reader.take(n_nodes)
    n_bins = int(bin_offsets[-1])
    if n_nodes and int(counts.max()) > n_bins:
        raise reader.corrupt(f"{counts.max()} entries in a node of {n_bins} bins")
    offsets = np.zeros(n_nodes + 1, np.int64)
    np.cumsum(counts.view(np.int64), out=offsets[1:])
    n_entries = int(offsets[-1])
    bins = _add_gaps(offsets, reader.take(n_entries), n_bins, np.int32, reader)
    grads = _unfold_signs(reader.take(n_entries), grad_shift, reader)
    hesses = np.empty(n_entries, np.int64)
    if not kernels.raise_counts(reader.take(n_entries), np.uint64(hess_shift), hesses):
        raise reader.corrupt("a sum_hess of more than 63 bits")
    reader.finish()
    return Histograms(offsets, bins, grads, hesses)


def _common_zeros(values: np.ndarray) -> int:
    """How many low bits are zero in all values (0 if all values are zero)."""
    bits = int(np.bitwise_or.reduce(values)) if len(values) else 0
    return (bits & -bits).bit_length() - 1 if bits else 0


def _encode_csr(histograms: Histograms, bin_offsets: np.ndarray) -> tuple[np.ndarray, ...]:
    """node_rows, features, row_pointers, columns (int32; see split_features) and values (float64, n x 2)."""
    bins, n_entries = _contiguous(histograms.bins, np.int32), len(histograms.bins)
    values = np.empty((n_entries, 2), np.float64)
    for column, sums in enumerate((histograms.grads, histograms.hesses)):
        if n_entries and (int(sums.min()) < -_EXACT or int(sums.max()) > _EXACT):
            raise ParameterError("a sum above 2^53 does not fit the histogram codec 'csr'; use 'packed'")
        values[:, column] = sums
    node_rows = np.empty(histograms.n_nodes + 1, np.int32)
    features, columns = np.empty(n_entries, np.int32), np.empty(n_entries, np.int32)
    pointers = np.empty(n_entries + 1, np.int32)
    offsets = _contiguous(histograms.offsets, np.int64)
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
    matrix = (_contiguous(array, np.int32) for array in arrays[:4])
    if not kernels.join_features(*matrix, bin_offsets, offsets, bins):
        raise ProtocolError("csr histograms: rows or columns that do not ascend, or leave the features")
    return Histograms(offsets, bins, values[:, 0].astype(np.int64), values[:, 1].astype(np.int64))


_CODECS = {"csr": (_encode_csr, _decode_csr), "packed": (_encode_packed, _decode_packed)}


# --- bitvectors: uint64 words, the lowest bit first


def pack_bitvector(words: np.ndarray, n_bits: int) -> tuple[str, np.ndarray]:
    """The form and bytes of the first n_bits bits, in the smallest of three forms.

    "raw": one bit a bit. "rows": the positions of the zeros. "runs": the positions where a bit differs from
    the one before, which bound the runs of equal bits (RapidScorer); the first bit is compared with 1.
    """
    ones = _with_padding(words[: _n_words(n_bits)].astype(np.uint64), n_bits)
    best = "raw", ones.view(np.uint8)[: (n_bits + 7) // 8].copy()
    for form, marks in (("rows", ~ones), ("runs", ~_with_padding(~_mark_changes(ones), n_bits))):
        n_marks = kernels.count_ones(marks)
        if 3 * n_marks <= n_bits:  # denser ones, unless periodic, are larger than raw
            positions = np.empty(n_marks, np.int64)
            kernels.find_ones(marks, positions)
            packed = _pack(np.array([n_marks], np.uint64), _take_gaps(np.array([0, n_marks]), positions))
            if len(packed) < len(best[1]):
                best = form, packed
    return best


def unpack_bitvector(form: str, packed: np.ndarray, n_bits: int) -> np.ndarray:
    """The inverse of pack_bitvector: uint64 words, writable; bits after the last are 1, neutral to AND."""
    if n_bits < 0:
        raise ProtocolError(f"bitvector: {n_bits} bits")
    words = np.zeros(_n_words(n_bits), np.uint64)
    reader = _Reader(packed, f"bitvector in the form {form!r}")
    if form == "raw":
        if len(packed) != (n_bits + 7) // 8:
            raise reader.corrupt(f"{len(packed)} bytes for {n_bits} bits")
        words.view(np.uint8)[: len(packed)] = packed
        return _with_padding(words, n_bits)
    if form not in ("rows", "runs"):
        raise reader.corrupt("unknown form")
    (n_marks,) = reader.take(1)
    gaps = reader.take(int(n_marks))
    reader.finish()
    kernels.set_ones(_add_gaps(np.array([0, len(gaps)]), gaps, n_bits, np.int64, reader), words)
    if form == "runs":
        words = _join_changes(words)
    return _with_padding(~words, n_bits)


def _n_words(n_bits: int) -> int:
    return (n_bits + 63) // 64


def _with_padding(words: np.ndarray, n_bits: int) -> np.ndarray:
    """`words` itself, with the bits from n_bits on set."""
    if n_bits % 64:
        words[-1] |= np.uint64(2**64 - 2 ** (n_bits % 64))
    return words


def _mark_changes(words: np.ndarray) -> np.ndarray:
    """A one wherever a bit differs from the one before it, which is 1 for the first."""
    before = words << np.uint64(1)
    before[1:] |= words[:-1] >> np.uint64(63)
    before[:1] |= np.uint64(1)
    return words ^ before


def _join_changes(marks: np.ndarray) -> np.ndarray:
    """A one wherever the number of ones up to and with the bit is odd."""
    odd = marks
    for shift in (1, 2, 4, 8, 16, 32):
        odd = odd ^ (odd << np.uint64(shift))
    odd_words = np.bitwise_xor.accumulate(odd >> np.uint64(63))
    odd[1:] ^= np.where(odd_words[:-1] != 0, np.uint64(2**64 - 1), np.uint64(0))
    return odd


# --- living features: flags by falling popularity, so ones first, then a mixture, then zeros

_BITVECTOR_FORMS = ("raw", "rows", "runs")
_TRIMMED = len(_BITVECTOR_FORMS)


def pack_living(flags: np.ndarray) -> np.ndarray:
    """Flags (uint8, 0 or 1) as bytes, one bit each or less; the first byte names the form.

    The form is one of pack_bitvector, or "trimmed": raw bits without the ones in front and the zeros behind.
    """
    flags = np.asarray(flags) != 0
    n_flags = len(flags)
    bits = np.packbits(flags, bitorder="little")
    words = np.zeros(_n_words(n_flags), np.uint64)
    words.view(np.uint8)[: len(bits)] = bits
    form, packed = pack_bitvector(words, n_flags)
    best = _prefixed(_BITVECTOR_FORMS.index(form), packed)
    n_first = int(np.argmin(flags)) if not flags.all() else n_flags
    n_mixed = n_flags - n_first - int(np.argmax(flags[n_first:][::-1])) if flags[n_first:].any() else 0
    mixed = np.packbits(flags[n_first : n_first + n_mixed], bitorder="little")
    if 1 + len(mixed) < len(best):
        trimmed = np.concatenate((_pack(np.array([n_first, n_mixed], np.uint64)), mixed))
        if 1 + len(trimmed) < len(best):
            best = _prefixed(_TRIMMED, trimmed)
    return best


def unpack_living(packed: np.ndarray, n_flags: int) -> np.ndarray:
    """The inverse of pack_living: uint8 (n_flags)."""
    form, packed = _prefix(packed, "living features")
    if form < len(_BITVECTOR_FORMS):
        words = unpack_bitvector(_BITVECTOR_FORMS[form], packed, n_flags)
        return np.unpackbits(words.view(np.uint8), bitorder="little", count=n_flags)
    reader = _Reader(packed, "living features")
    if form != _TRIMMED:
        raise reader.corrupt(f"form {form}")
    n_first, n_mixed = (int(value) for value in reader.take(2))
    mixed = packed[int(reader.position) // 8 :]
    if n_first + n_mixed > n_flags or len(mixed) != (n_mixed + 7) // 8:
        raise reader.corrupt(f"{n_first} + {n_mixed} of {n_flags} flags")
    flags = np.zeros(n_flags, np.uint8)
    flags[:n_first] = 1
    flags[n_first : n_first + n_mixed] = np.unpackbits(mixed, bitorder="little", count=n_mixed)
    return flags


def _prefixed(form: int, packed: np.ndarray) -> np.ndarray:
    return np.concatenate((np.array([form], np.uint8), packed))


def _prefix(packed: np.ndarray, what: str) -> tuple[int, np.ndarray]:
    packed = np.asarray(packed)
    if packed.dtype != np.uint8 or packed.ndim != 1 or len(packed) == 0:
        raise ProtocolError(f"{what}: expected bytes, got {packed.dtype} of shape {packed.shape}")
    return int(packed[0]), packed[1:]


def _contiguous(array: np.ndarray, dtype: type) -> np.ndarray:
    return np.require(array, dtype, ["C", "A"])
