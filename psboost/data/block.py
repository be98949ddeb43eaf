"""Knows the bins of one worker's rows and features; does not know values, user feature numbers or trees."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from psboost.data import zeros
from psboost.data.aligned import aligned_empty
from psboost.data.columns import MAX_INT32, AnyColumns, Columns, SortedColumns
from psboost.data.cut_points import CutPoints
from psboost.errors import DataError
from psboost.kernels import binning as kernels
from psboost.kernels import dense as dense_kernels
from psboost.kernels import routing as routing_kernels
from psboost.kernels import tiles as tile_kernels
from psboost.kernels.columns import count_occurrences
from psboost.kernels.node_builds import prefers_bins
from psboost.kernels.row_bins import N_NONE, STRIDES
from psboost.kernels.tiles import Tiles
from psboost.kernels.words import n_words_of

MAX_CELL = np.iinfo(np.uint16).max
NARROW_BINS = (1 << 16) - N_NONE  # so many bins, and the numbers of none, fit uint16
_EMPTIEST = 2.5  # times as much memory as their bins take, padded rows may
# Rows of a tile, whose gradients take 32 and 128 KB; and how many of them a bin has on average if it is in such tiles: with
# fewer, to go from tile to tile would take longer than what is saved.
TILINGS = (1 << 13, 40), (1 << 15, 16)
LEAST_TILES = 4  # the gradients of fewer rows are near anyway
FREQUENT = 16  # with bitmaps of less frequent bins too, binning takes longer, and trees hardly less
DENSE_FILL = 0.4  # where more of the cells are stored, going through all of them is quicker than finding those that are


class Bitmaps(NamedTuple):
    """The rows of frequent bins once more, a bit for each row of all: kernels.routing has both arrays."""

    of_bins: np.ndarray
    words: np.ndarray


class Members(NamedTuple):
    """Which of a chunk of all rows each open node has: those of a large one are bits, of a small one a list.

    words  uint64 (n_places, n_words), of all rows: bit r % 64 of word r // 64 says whether row r is a member
    rows   int32: those of the lists, ascending in each
    held   int64 (n_nodes, N_HELD): where the rows of each node are, as kernels.members has it
    """

    words: np.ndarray
    rows: np.ndarray
    held: np.ndarray


@dataclass(frozen=True)
class Block(ABC):
    """One worker's block: which bin each row's cells fall in.

    bin_offsets  int32 (n_features + 1): bins of feature f are bin_offsets[f] .. bin_offsets[f+1]: first the numeric
                 ones, then, where training rows hold NaN, the missing bin
    n_cuts       int32 (n_features): numeric bins
    """

    n_rows: int
    bin_offsets: np.ndarray
    n_cuts: np.ndarray

    @property
    def n_features(self) -> int:
        return len(self.n_cuts)

    @property
    def n_bins(self) -> int:
        return int(self.bin_offsets[-1])

    @property
    @abstractmethod
    def variant(self) -> str:
        """Which kernels are for it (kernels.prepare.VARIANTS)."""

    @property
    @abstractmethod
    def held(self) -> tuple:
        """What kernels.levels keeps of it to route rows by."""

    @abstractmethod
    def clear_bits(
        self, splits: np.ndarray, shard: int, first: int, rows: slice, members: Members, bits: np.ndarray
    ) -> bool:
        """Clears the bit of each row of the chunk `rows`, in whole words, which `members` are of, that leaves its node's
        default child by one of those of `splits` that are by the block's features. False if one is by a bin that the feature
        does not have.

        splits  int32 (n, N_SPLIT): kernels.splits
        first   the block's first feature among those of the feature shard
        bits    uint64: a bitvector of the block's rows  # OUT
        """


@dataclass(frozen=True)
class SparseBlock(Block):
    """A block as bin ids by row, and rows by bin id (postings).

    indptr           int64 (n_rows + 1): row r's bins are indptr[r] .. indptr[r+1]; int32 if bins are uint16
    bins             int32 (n): ascending within a row; uint16 where that holds them
    stride           of padded rows (kernels.row_bins), else 0
    posting_offsets  int64 (n_bins + 1): bin b's rows are posting_offsets[b] .. posting_offsets[b+1]; those of
                     all bins of a feature lie together: the rows that leave a split's default are one slice
    posting_rows     int32 (n): rows_ascend: ascending within a bin; else, of SortedColumns, in order of value
    bitmaps          of bins that more than 1 in FREQUENT rows have: half of the memory that these bins' rows take, at most
    tilings          the rows of frequent bins once more, by tiles, which are a third quicker to go through, small ones
                     first; no bins where rows of bins are quicker still
    """

    indptr: np.ndarray
    bins: np.ndarray
    stride: int
    posting_offsets: np.ndarray
    posting_rows: np.ndarray
    rows_ascend: bool
    bitmaps: Bitmaps
    tilings: tuple[Tiles, ...]

    @property
    def variant(self):
        return "narrow rows" if self.bins.dtype == np.uint16 else "wide rows"

    @property
    def held(self):
        return self.rows_ascend, *self.bitmaps, self.n_cuts

    def clear_bits(self, splits, shard, first, rows, members, bits):
        return routing_kernels.clear_by_splits(
            self.indptr, self.bins, self.stride, self.posting_offsets, self.posting_rows, self.rows_ascend, *self.bitmaps,
            self.bin_offsets, self.n_cuts, splits, shard, first, rows.start, rows.stop, *members, bits,
        )  # fmt: skip


@dataclass(frozen=True)
class DenseBlock(Block):
    """A block as one small number for each cell, row after row (kernels.dense).

    cells    uint8 or uint16 (n_rows * n_features): the bin, counted within the feature. Of a cell that is not stored it is
             the number of the feature's bins; or the bin of 0, where such a cell is 0 and uint8 holds all bins but no more
    columns  the same, (n_features, n_rows): rows are routed by one feature of all, and read only its cells
    stride   more than the greatest cell
    """

    cells: np.ndarray
    columns: np.ndarray
    stride: int

    @property
    def variant(self):
        return "dense"

    @property
    def held(self):
        return self.columns, self.n_cuts

    def clear_bits(self, splits, shard, first, rows, members, bits):
        return dense_kernels.clear_by_splits_dense(
            self.columns, self.bin_offsets, self.n_cuts, splits, shard, first, rows.start, rows.stop, *members, bits
        )


def build_block(
    columns: AnyColumns, cut_points: CutPoints, zero_as_missing: zeros.Rule, begin: int = 0, dense: bool | None = None,
    overwrite: bool = False,
) -> Block:  # fmt: skip
    """The block of the features of `columns` from `begin` on that `cut_points` has.

    dense      whether it is a dense block; None for the quicker form
    overwrite  whether the memory of these features' values may become the block's: they are then lost

    Values of features without cut points are left out. NaN without a missing bin (no training row holds
    one) is left out where cells that are not stored are missing; else it goes to the last numeric bin, right of
    every split.
    """
    n_known = len(cut_points.offsets) - 1
    if begin + n_known > columns.n_features:
        raise DataError(f"cut points of {n_known} features for a block of {columns.n_features - begin} features")
    shared = {
        "n_rows": columns.n_rows,
        "bin_offsets": bin_offsets_of(cut_points),
        "n_cuts": np.diff(cut_points.offsets).astype(np.int32),
    }
    pieces = _pieces(columns, cut_points, begin)
    if dense is None:
        few_bins = np.diff(shared["bin_offsets"]).max(initial=0) < MAX_CELL
        dense = few_bins and columns.n_stored(begin, begin + n_known) > DENSE_FILL * columns.n_rows * n_known
    keep_nan = zeros.keeps_nan(zero_as_missing)
    if not dense:
        return _sparse_block(pieces, keep_nan, shared, overwrite)
    is_missing = zeros.unstored_is_missing(zero_as_missing)
    zero_bins = np.full(n_known, -1, np.int32) if is_missing else bins_of(cut_points, 0.0)
    return _dense_block(pieces, keep_nan, zero_bins, shared)


def _pieces(columns: AnyColumns, cut_points: CutPoints, first: int) -> Iterator[tuple[int, Columns, CutPoints]]:
    """Some features after the others: the first one, numbered from 0, what is stored of them, and their cut points."""
    for begin, end in columns.groups(first, first + len(cut_points.has_missing)):
        yield begin - first, columns.part(begin, end), cut_points.part(begin - first, end - first)


def _sparse_block(
    pieces: Iterator[tuple[int, Columns, CutPoints]], keep_nan: bool, shared: dict, overwrite: bool
) -> SparseBlock:
    n_rows, n_bins, rows_ascend = shared["n_rows"], int(shared["bin_offsets"][-1]), True
    posting_offsets, parts, n_kept = np.zeros(n_bins + 1, np.int64), [np.empty(0, np.int32)], 0
    for first, part, points in pieces:
        offsets, rows = _postings(part, points, keep_nan, overwrite)
        at = int(shared["bin_offsets"][first])
        posting_offsets[at + 1 : at + len(offsets)] = n_kept + offsets[1:]
        parts.append(rows)
        n_kept += len(rows)
        rows_ascend &= not isinstance(part, SortedColumns)
        del part  # before the next one is made
    posting_rows = parts[1] if len(parts) == 2 else np.concatenate(parts)
    indptr, bins, stride = _rows_of_bins(posting_offsets, posting_rows, n_rows)
    in_tiles = rows_ascend and prefers_bins(n_rows, n_rows, n_kept, n_bins, stride)
    return SparseBlock(
        **shared, indptr=indptr, bins=bins, stride=stride, posting_offsets=posting_offsets, posting_rows=posting_rows,
        rows_ascend=rows_ascend, bitmaps=_bitmaps_of(posting_offsets, posting_rows, n_rows),
        tilings=tilings_of(posting_offsets, posting_rows, n_rows, in_tiles),
    )  # fmt: skip


def _rows_of_bins(
    posting_offsets: np.ndarray, posting_rows: np.ndarray, n_rows: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """indptr, bins and stride of a SparseBlock. Rows are padded where all are short and few are much shorter."""
    n_bins, n_kept = len(posting_offsets) - 1, len(posting_rows)
    narrow = n_bins <= NARROW_BINS and n_kept <= MAX_INT32
    most_places = min(_EMPTIEST * n_kept, MAX_INT32 if narrow else np.inf)
    indptr_dtype, bins_dtype = (np.int32, np.uint16) if narrow else (np.int64, np.int32)
    lengths = np.zeros(n_rows, np.int32)
    count_occurrences(posting_rows, lengths)
    most = int(lengths.max(initial=0))
    for stride in STRIDES:
        if most <= stride and stride * n_rows <= most_places:
            indptr = np.arange(0, stride * n_rows + 1, stride, indptr_dtype)
            bins, cursors = aligned_empty(stride * n_rows, bins_dtype), indptr[:-1].copy()
            kernels.scatter_bins(posting_offsets, posting_rows, cursors, bins)
            kernels.pad_rows(stride, n_bins, cursors, bins)
            return indptr, bins, stride
    indptr = np.zeros(1 + n_rows + 1, indptr_dtype)
    np.cumsum(lengths, dtype=indptr_dtype, out=indptr[2:])
    bins = np.empty(n_kept, bins_dtype)
    kernels.scatter_bins(posting_offsets, posting_rows, indptr[1:-1], bins)  # which moves where each row begins to its end
    return indptr[:-1], bins, 0


def _postings(part: Columns, points: CutPoints, keep_nan: bool, overwrite: bool) -> tuple[np.ndarray, np.ndarray]:
    """posting_offsets and posting_rows of these columns alone, which may take the memory of their values (`overwrite`)."""
    of_part = bin_offsets_of(points)
    offsets = np.zeros(int(of_part[-1]) + 1, np.int64)
    if part.value is not None:
        bins, lengths = bins_of(points, part.value), np.diff(part.offsets)
        has_bin = bins >= 0
        if not lengths[~has_bin].any():  # else some rows are in no bin
            offsets[1 + (of_part[:-1] + bins)[has_bin]] = lengths[has_bin]
            return np.cumsum(offsets, out=offsets), part.rows
    values = np.require(part.values, None, ["C", "W"])
    rows = values.view(np.int32) if overwrite else np.empty(len(part.rows), np.int32)
    run = kernels.bin_sorted if isinstance(part, SortedColumns) else kernels.bin_columns
    n_kept = run(part.offsets, part.rows, values, points.offsets, points.cuts, of_part, keep_nan, offsets, rows)
    return offsets, rows[:n_kept]


def _bitmaps_of(posting_offsets: np.ndarray, posting_rows: np.ndarray, n_rows: int) -> Bitmaps:
    bins = np.flatnonzero(np.diff(posting_offsets) > n_rows / FREQUENT).astype(np.int32)
    of_bins = np.full(len(posting_offsets) - 1, -1, np.int32)
    of_bins[bins] = np.arange(len(bins))
    words = np.zeros((len(bins), n_words_of(n_rows)), np.uint64)
    routing_kernels.fill_bitmaps(posting_offsets, posting_rows, bins, words)
    return Bitmaps(of_bins, words)


def tilings_of(
    posting_offsets: np.ndarray, posting_rows: np.ndarray, n_rows: int, rows_ascend: bool,
    sizes: Sequence[tuple[int, int]] | None = None,
) -> tuple[Tiles, ...]:  # fmt: skip
    """The rows of postings by tiles of several sizes, small ones first: a bin is in the first in which it is frequent. There
    are no bins in tiles so large that a few of them have all rows, nor in any if the rows do not ascend in each bin.

    sizes  of each tiling: the rows of a tile, and how many of them a frequent bin has on average, or more; None: TILINGS
    """
    made, n_of_bins, most = [], np.diff(posting_offsets), MAX_INT32
    for size, frequent in TILINGS if sizes is None else sizes:
        n_tiles = -(-n_rows // size) if rows_ascend else 0
        least = min(most, 1 + frequent * n_tiles) if n_tiles >= LEAST_TILES else most
        bins = np.flatnonzero((least <= n_of_bins) & (n_of_bins < most)).astype(np.int32)
        counts, rows = np.empty(n_tiles * len(bins), np.uint16), np.empty(n_of_bins[bins].sum(), np.uint16)
        tile_kernels.count_rows_of_tiles(posting_offsets, posting_rows, size, bins, counts)
        begins = np.cumsum(counts, dtype=np.int64) - counts
        tile_kernels.fill_tiles(posting_offsets, posting_rows, size, bins, counts, begins, rows)
        made.append(Tiles(size, least, bins, counts, rows))
        most = least
    return tuple(made)


def _dense_block(
    pieces: Iterator[tuple[int, Columns, CutPoints]], keep_nan: bool, zero_bins: np.ndarray, shared: dict
) -> DenseBlock:
    """zero_bins: of each feature, the bin, counted within it, of cells that are not stored; -1 where they have none."""
    n_rows, bin_offsets = shared["n_rows"], shared["bin_offsets"]
    columns, stride = np.empty((len(bin_offsets) - 1, n_rows), np.uint8), 1
    for first, part, points in pieces:
        of_part, counts = bin_offsets_of(points), np.empty(len(points.has_missing), np.int64)
        n_bins, of_zeros = np.diff(of_part), zero_bins[first : first + len(counts)]
        blanks = np.where((n_bins == 1 + np.iinfo(np.uint8).max) & (of_zeros >= 0), of_zeros, n_bins)
        values = np.ascontiguousarray(part.values)
        held = part.offsets, part.rows, values, points.offsets, points.cuts, of_part, keep_nan, blanks, first
        dense_kernels.fill_columns(*held, columns, counts)
        stride = max(stride, int(np.maximum(n_bins, (blanks + 1) * (counts < n_rows)).max(initial=0)))
        if stride > 1 + np.iinfo(columns.dtype).max:
            columns = columns.astype(np.uint16)
            dense_kernels.fill_columns(*held, columns, counts)
        del part, held  # before the next one is made
    cells = np.empty(columns.size, columns.dtype)
    dense_kernels.interleave(columns, cells)
    return DenseBlock(**shared, cells=cells, columns=columns, stride=stride)


def bin_offsets_of(cut_points: CutPoints) -> np.ndarray:
    """int32 (n_features + 1): the bin ids of each feature. Raises DataError if int32 cannot hold them."""
    offsets = np.zeros(len(cut_points.offsets), np.int64)
    np.cumsum(np.diff(cut_points.offsets) + cut_points.has_missing, out=offsets[1:])
    if offsets[-1] >= MAX_INT32:
        raise DataError(f"{offsets[-1]} bins at one worker or server: use more feature shards or a lower max_bin")
    return offsets.astype(np.int32)


def bins_of(cut_points: CutPoints, value: float) -> np.ndarray:
    """int32 (n_features): the bin, counted within the feature, of a number; -1 for a feature without cuts."""
    bins = np.empty(len(cut_points.offsets) - 1, np.int32)
    kernels.find_bins_of(cut_points.offsets, cut_points.cuts, np.float32(value), bins)
    return bins
