"""Knows the byte-saving forms of integers, ids, bits and living features; does not know messages or sockets.

Whatever comes over the wire is checked: bytes that no packing function writes are a ProtocolError.
"""

import numpy as np

from psboost.errors import ProtocolError
from psboost.kernels import bitvectors
from psboost.kernels.words import n_words_of
from psboost.wire.streams import (
    StreamReader,
    add_gaps,
    contiguous,
    fold_signs,
    most_words,
    pack_gaps,
    pack_streams,
    unfold_signs,
)

# --- integers and ascending ids


def pack_integers(values: np.ndarray) -> np.ndarray:
    """Any int64 values as bytes; the first byte says whether signs were folded."""
    values = contiguous(values, np.int64)
    signed = len(values) > 0 and int(values.min()) < 0
    if not signed:
        return _prefixed(0, pack_streams(values.view(np.uint64)))
    return _prefixed(1, pack_streams(fold_signs(values, 0)))


def unpack_integers(packed: np.ndarray, n_values: int) -> np.ndarray:
    """The inverse of pack_integers: int64 (n_values)."""
    form, packed = _prefix(packed, "integers")
    reader = StreamReader(packed, "integers")
    codes = reader.take(n_values)
    reader.finish()
    if form == 0:
        return codes.view(np.int64)
    if form != 1:
        raise reader.corrupt(f"form {form}")
    return unfold_signs(codes, 0, reader)


def pack_ascending(ids: np.ndarray) -> np.ndarray:
    """Ids (int32 or int64, >= 0, strictly ascending) as bytes: the gaps between them."""
    return pack_gaps(ids)


def unpack_ascending(packed: np.ndarray, n_ids: int) -> np.ndarray:
    """The inverse of pack_ascending: int64 (n_ids)."""
    reader = StreamReader(packed, "ascending ids")
    gaps = reader.take(n_ids)
    reader.finish()
    return add_gaps(np.array([0, n_ids]), gaps, 2**63, np.int64, reader)


# --- bitvectors: uint64 words, the lowest bit first


def pack_bitvector(words: np.ndarray, n_bits: int) -> tuple[str, np.ndarray]:
    """The form and bytes of the first n_bits bits, in the smallest of three forms, of those that are likely to be that.

    "raw": one bit a bit. "rows": the positions of the zeros. "runs": the positions where a bit differs from
    the one before, which bound the runs of equal bits (RapidScorer); the first bit is compared with 1.
    """
    words = np.ascontiguousarray(words, np.uint64)
    counts = np.empty(2, np.int64)
    bitvectors.count_marks(words, n_bits, counts)
    n_zeros, n_runs = counts.tolist()
    form, n_bytes, best = "raw", (n_bits + 7) // 8, words
    for name, runs, n_marks in (("rows", False, n_zeros), ("runs", True, n_runs)):
        # Denser ones, unless periodic, are larger than raw; and many more runs than zeros are larger than these.
        if 3 * n_marks <= n_bits and not (runs and 2 * n_runs >= 3 * n_zeros):
            packed = np.empty(most_words(1, n_marks), np.uint64)
            size = bitvectors.pack_marks(words, n_bits, runs, n_marks, packed)
            if size < n_bytes:
                form, n_bytes, best = name, size, packed
    packed = best.view(np.uint8)[:n_bytes].copy()
    if form == "raw" and n_bits % 8:
        packed[-1] |= 0xFF << n_bits % 8 & 0xFF
    return form, packed


def unpack_bitvector(form: str, packed: np.ndarray, n_bits: int) -> np.ndarray:
    """The inverse of pack_bitvector: uint64 words, writable; bits after the last are 1, neutral to AND."""
    if n_bits < 0:
        raise ProtocolError(f"bitvector: {n_bits} bits")
    words = np.zeros(n_words_of(n_bits), np.uint64)
    reader = StreamReader(packed, f"bitvector in the form {form!r}")
    if form == "raw":
        if len(packed) != (n_bits + 7) // 8:
            raise reader.corrupt(f"{len(packed)} bytes for {n_bits} bits")
        words.view(np.uint8)[: len(packed)] = packed
        return _with_padding(words, n_bits)
    if form not in ("rows", "runs"):
        raise reader.corrupt("unknown form")
    if not bitvectors.unpack_marks(reader.words, reader.n_bits, n_bits, form == "runs", words):
        raise reader.misfit()
    return words


def _with_padding(words: np.ndarray, n_bits: int) -> np.ndarray:
    """`words` itself, with the bits from n_bits on set."""
    if n_bits % 64:
        words[-1] |= np.uint64(2**64 - 2 ** (n_bits % 64))
    return words


# --- living features: flags by falling popularity, so ones first, then a mixture, then zeros

_BITVECTOR_FORMS = ("raw", "rows", "runs")
_TRIMMED, _ALL = len(_BITVECTOR_FORMS), np.uint64(2**64 - 1)


def pack_living(words: np.ndarray, n_flags: int) -> np.ndarray:
    """The first n_flags bits of uint64 words, all others 0, as bytes, one bit each or less; the first byte names the form.

    That is one of pack_bitvector, or "trimmed": raw bits without the ones in front and the zeros behind.
    """
    form, packed = pack_bitvector(words, n_flags)
    best = _prefixed(_BITVECTOR_FORMS.index(form), packed)
    bounds = np.empty(2, np.int64)
    bitvectors.find_mixture(words, n_flags, bounds)
    n_first, n_mixed = int(bounds[0]), int(bounds[1] - bounds[0])
    n_bytes = (n_mixed + 7) // 8
    if 1 + n_bytes < len(best):
        mixed = np.empty(n_words_of(n_mixed), np.uint64)
        bitvectors.take_bits(words, n_first, n_mixed, mixed)
        trimmed = np.concatenate((pack_streams(np.array([n_first, n_mixed], np.uint64)), mixed.view(np.uint8)[:n_bytes]))
        if 1 + len(trimmed) < len(best):
            best = _prefixed(_TRIMMED, trimmed)
    return best


def unpack_living(packed: np.ndarray, n_flags: int) -> np.ndarray:
    """The inverse of pack_living: uint64 words; bits after the last one may be anything."""
    form, packed = _prefix(packed, "living features")
    if form < len(_BITVECTOR_FORMS):
        return unpack_bitvector(_BITVECTOR_FORMS[form], packed, n_flags)
    reader = StreamReader(packed, "living features")
    if form != _TRIMMED:
        raise reader.corrupt(f"form {form}")
    n_first, n_mixed = (int(value) for value in reader.take(2))
    mixed = packed[int(reader.position) // 8 :]
    if n_first + n_mixed > n_flags or len(mixed) != (n_mixed + 7) // 8:
        raise reader.corrupt(f"{n_first} + {n_mixed} of {n_flags} flags")
    bits = np.zeros(n_words_of(n_mixed), np.uint64)
    bits.view(np.uint8)[: len(mixed)] = mixed
    if n_mixed % 64:
        bits[-1] &= ~(_ALL << np.uint64(n_mixed % 64))
    words = np.empty(n_words_of(n_flags), np.uint64)
    bitvectors.place_bits(bits, n_first, words)
    return words


def _prefixed(form: int, packed: np.ndarray) -> np.ndarray:
    return np.concatenate((np.array([form], np.uint8), packed))


def _prefix(packed: np.ndarray, what: str) -> tuple[int, np.ndarray]:
    packed = np.asarray(packed)
    if packed.dtype != np.uint8 or packed.ndim != 1 or len(packed) == 0:
        raise ProtocolError(f"{what}: expected bytes, got {packed.dtype} of shape {packed.shape}")
    return int(packed[0]), packed[1:]
