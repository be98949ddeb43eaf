"""Knows streams of integers, gaps and folded signs, packed in bytes; does not know what the integers are.

Streams lie one behind the other in one array of bytes. A reader's bytes come from outside, so they are checked:
those that no packing function writes are a ProtocolError.
"""

from collections.abc import Callable

import numpy as np

from psboost.errors import ProtocolError
from psboost.kernels import packing as kernels


def most_words(*lengths: int) -> int:
    """How many words streams of so many values take at most."""
    return sum([71 * length + 32 * (length // kernels.BLOCK + 1) for length in lengths]) // 64 + 2


def pack_streams(*streams: np.ndarray) -> np.ndarray:
    """The uint64 streams as bytes (uint8), each one in blocks of its own."""
    words = np.empty(most_words(*map(len, streams)), np.uint64)
    words[0] = 0
    position = 0
    for values in streams:
        position = kernels.pack_blocks(values, np.uint64(position), words)
    return words.view(np.uint8)[: int(position) // 8].copy()


class StreamReader:
    """Takes streams from packed bytes, in the order in which they were packed."""

    def __init__(self, packed: np.ndarray, what: str, room: Callable[[int], np.ndarray] | None = None):
        """`room(n)` gives n words or more that the bytes may be copied to; None: new ones."""
        packed = np.asarray(packed)
        if packed.dtype != np.uint8 or packed.ndim != 1:
            raise ProtocolError(f"{what}: expected bytes, got {packed.dtype} of shape {packed.shape}")
        # aligned, and a word longer, as the kernel needs it
        n_words = len(packed) // 8 + 2
        self.words = np.empty(n_words, np.uint64) if room is None else room(n_words)[:n_words]
        self.words[-2:] = 0
        self.words.view(np.uint8)[: len(packed)] = packed
        self.n_bits = np.uint64(8 * len(packed))
        self.position = np.uint64(0)
        self.what = what

    def take(self, n_values: int) -> np.ndarray:
        # a block is a byte at least: this bounds what a corrupt count can make us allocate
        if not 0 <= n_values <= kernels.BLOCK * (int(self.n_bits) // 8):
            raise self.corrupt(f"{n_values} values in {int(self.n_bits) // 8} bytes")
        values = np.empty(n_values, np.uint64)
        position = kernels.unpack_blocks(self.words, self.position, self.n_bits, values)
        if position == kernels.CORRUPT:
            raise self.corrupt("values that do not fit their bytes")
        self.position = np.uint64(position)
        return values

    def finish(self) -> None:
        if self.position != self.n_bits:
            raise self.corrupt(f"{(int(self.n_bits) - int(self.position)) // 8} bytes too many")

    def misfit(self) -> ProtocolError:
        """For values that a kernel could not take."""
        return self.corrupt(f"values in {int(self.n_bits) // 8} bytes that nothing packs so")

    def corrupt(self, why: str) -> ProtocolError:
        return ProtocolError(f"{self.what}: corrupt bytes ({why}); do both peers run the same version?")


def pack_gaps(ids: np.ndarray) -> np.ndarray:
    """The gaps between ids that ascend strictly, as bytes (uint8): a stream in blocks."""
    ids = np.ascontiguousarray(ids)
    if ids.dtype not in (np.int32, np.int64):
        raise TypeError(f"ids must be int32 or int64, not {ids.dtype}")
    words = np.empty(most_words(len(ids)), np.uint64)
    words[0] = 0
    position = kernels.pack_gaps(np.array([0, len(ids)]), ids, np.uint64(0), words)
    if position == kernels.CORRUPT:
        raise ValueError("ids must ascend strictly, from 0 or above")
    return words.view(np.uint8)[: int(position) // 8].copy()


def add_gaps(offsets: np.ndarray, gaps: np.ndarray, limit: int, dtype: type, reader: StreamReader) -> np.ndarray:
    """The ids that skip these gaps; `reader` says what is wrong with an id of `limit` or above."""
    ids = np.empty(len(gaps), dtype)
    if not kernels.add_gaps(offsets, gaps, np.uint64(limit), ids):
        raise reader.corrupt(f"an id of {limit} or above")
    return ids


def fold_signs(values: np.ndarray, shift: int) -> np.ndarray:
    """int64 values as uint64 codes, without their `shift` low bits (zero in all): 0, -1, 1, -2, ... are 0, 1, 2, 3, ..."""
    codes = np.empty(len(values), np.uint64)
    kernels.fold_signs(values, np.uint64(shift), codes)
    return codes


def unfold_signs(codes: np.ndarray, shift: int, reader: StreamReader) -> np.ndarray:
    """The inverse of fold_signs; `reader` says what is wrong with an integer of more than 64 bits."""
    values = np.empty(len(codes), np.int64)
    if not kernels.unfold_signs(codes, np.uint64(shift), values):
        raise reader.corrupt("an integer of more than 64 bits")
    return values


def contiguous(array: np.ndarray, dtype: type) -> np.ndarray:
    """`array` itself if it has this dtype and is contiguous and aligned, else a copy that is."""
    flags = array.flags
    return array if array.dtype == dtype and flags.c_contiguous and flags.aligned else np.require(array, dtype, ["C", "A"])
