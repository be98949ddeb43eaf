"""Knows how the histograms of a level's nodes are built and written down, one after the other; does not know messages.

They are written over ranges of features, each into a part of the same arrays:

    edges     int64 (n_ranges + 1): range s has features edges[s] .. edges[s + 1], numbered as those of the block are, whose
              first one is `first`; `bin_offsets` are the block's
    features, offsets   the living ones (kernels.open_nodes), of all ranges; positions: which of the open nodes are built
    bins, grads, hesses   entries, OUT; of range s from begins[s] on, up to begins[s + 1]; bins count from the range's first
    ends      int64 (n_ranges, n_nodes + 1): node i's entries are begins[s] + ends[s, i] .. begins[s] + ends[s, i + 1]  # OUT
"""

from psboost.kernels.ascending import first_from
from psboost.kernels.compile import (
    IN,
    IN2,
    OUT,
    OUT2,
    boolean,
    inline,
    int32,
    int64,
    kernel,
    kernel_for,
    uint8,
    uint64,
    void,
)
from psboost.kernels.fills import fill
from psboost.kernels.histograms import build_by_rows, clear, mark_bins, span_size
from psboost.kernels.node_histograms import NODE_HISTOGRAM
from psboost.kernels.open_nodes import add_sums, histogram_of, needs_pairs
from psboost.kernels.packed_rows import WIDTHS, as_slot, grad_and_hess
from psboost.kernels.prefetch import prefetch_far, touch
from psboost.kernels.row_bins import N_NONE, ROWS
from psboost.kernels.slots import CACHED_SLOTS, read, rows_that_fit
from psboost.kernels.tiles import TILINGS, build_by_tiles
from psboost.kernels.words import lowest_one

# sums (int64, a row for each node): grads, hesses and absolute grads of its rows; the greatest absolute grad and hess
SUM_GRAD, SUM_HESS, SUM_SIZE, MOST_GRAD, MOST_HESS, N_SUMS = range(6)
_POSTINGS = int64, IN[int64], IN[int32], TILINGS  # stride, postings, tilings: behind a block's rows' bins
_BLOCK = (*_POSTINGS, IN[int32])  # and bin_offsets
_SOME = 512  # rows
_FAR_AHEAD = uint64(128)  # so many rows ahead gradients are asked for: of few of many rows, in 0.6 of the time
_A_ROW = 3  # to go on to a row takes as long as so many of its values take by tiles
_A_SEARCH = 24  # and to look for one among a node's, as so many
_SLOTS_PER_LINE = 8  # in a cache line
_NEAR_BINS = 1 << 16  # so many slots, the hot ones side by side, are quick to add to
_0, _1, _6, _63, _64 = (uint64(k) for k in (0, 1, 6, 63, 64))


@kernel_for(WIDTHS, signature=lambda width: void(IN[width], OUT[int64]))
def add_rows(packed, sums):
    """Adds to a node's sums (OUT) all rows of `packed`."""
    grads, hesses, sizes = sums[SUM_GRAD], sums[SUM_HESS], sums[SUM_SIZE]
    most_grad, most_hess = sums[MOST_GRAD], sums[MOST_HESS]
    for row in range(uint64(len(packed))):
        grad, hess = grad_and_hess(packed, row)
        size = abs(grad)
        grads, hesses, sizes = grads + grad, hesses + hess, sizes + size
        most_grad, most_hess = max(most_grad, size), max(most_hess, hess)
    sums[SUM_GRAD], sums[SUM_HESS], sums[SUM_SIZE] = grads, hesses, sizes
    sums[MOST_GRAD], sums[MOST_HESS] = most_grad, most_hess


@kernel(void(IN2[int64], OUT2[int64]))
def add_nodes(others, sums):
    """Adds to nodes' sums (OUT) those of others of their rows."""
    for i in range(len(sums)):
        for column in range(N_SUMS):
            own = others[i, column]
            sums[i, column] = sums[i, column] + own if column < MOST_GRAD else max(sums[i, column], own)


@kernel_for(WIDTHS, signature=lambda width: void(IN[int32], OUT2[int64], IN[width], OUT[width], OUT2[int64]))
def list_gradients(rows, spans, packed, listed, sums):
    """Writes the packed rows of several nodes to `listed`, in the order of `rows`, and what each node's come to to `sums`.

    packed        of all rows
    spans         node i's rows are rows[spans[i, 0] : spans[i, 1]]; its packed ones have the same places in `listed`
    listed, sums  # OUT
    """
    for i in range(len(spans)):
        sums[i] = 0
        end = uint64(spans[i, 1])
        for begin in range(uint64(spans[i, 0]), end, uint64(_SOME)):
            some = listed[begin : min(begin + uint64(_SOME), end)]
            for k in range(uint64(len(some))):
                at = begin + k
                if at + _FAR_AHEAD < end:
                    prefetch_far(packed, uint64(rows[at + _FAR_AHEAD]))
                some[k] = packed[uint64(rows[at])]
            add_rows(some, sums[i])  # which is vectorised, where they are side by side


@inline
def _extract(features, low, high, first, bin_offsets, single, acc, pairs, first_bin, at, bins, grads, hesses):
    """Writes the present bins of features[low:high] from position `at` on; returns the end. There must be room for one more:
    each is written without a test, and moved on from if present.

    single  whether each feature has one bin, as those of one-hot data have: its own number, which is not looked up
    """
    at = uint64(at)
    if single and not pairs:
        for k in range(uint64(low), uint64(high)):
            b = int64(features[k]) - first
            grad, hess = read(acc, False, b)
            bins[at], grads[at], hesses[at] = b - first_bin, grad, hess
            at += uint64(hess != 0)
        return int64(at)
    for k in range(low, high):
        f = uint64(int64(features[k]) - first)
        for b in range(uint64(bin_offsets[f]), uint64(bin_offsets[f + _1])):
            grad, hess = read(acc, pairs, b)
            bins[at], grads[at], hesses[at] = int64(b) - first_bin, grad, hess
            at += uint64(hess != 0)
    return int64(at)


@inline
def _extract_marked(features, low, high, first, bin_offsets, acc, pairs, marks, first_bin, at, bins, grads, hesses):
    """The same by marks of the bins that may be present."""
    at = uint64(at)
    for k in range(low, high):
        f = uint64(int64(features[k]) - first)
        begin, end = uint64(bin_offsets[f]), uint64(bin_offsets[f + _1])
        while begin < end:
            word = marks[begin >> _6] >> (begin & _63)
            n_left = end - begin
            if n_left < _64:
                word &= (_1 << n_left) - _1
            while word != _0:
                b = begin + lowest_one(word)
                grad, hess = read(acc, pairs, b)
                bins[at], grads[at], hesses[at] = int64(b) - first_bin, grad, hess
                at += uint64(hess != 0)
                word &= word - _1
            begin += _64 - (begin & _63)
    return int64(at)


@inline
def extract_node(
    features, low, end, edges, first, bin_offsets, single, acc, pairs, marks, marked, i, bins, grads, hesses, begins, ends
):
    """Writes what `acc` has of node i, whose living features are features[low:end]."""
    low = first_from(edges[0], features, low, end)
    for s in range(len(edges) - 1):
        high = first_from(edges[s + 1], features, low, end)
        first_bin, at = int64(bin_offsets[edges[s] - first]), begins[s] + ends[s, i]
        if marked:
            at = _extract_marked(
                features, low, high, first, bin_offsets, acc, pairs, marks, first_bin, at, bins, grads, hesses
            )
        else:
            at = _extract(features, low, high, first, bin_offsets, single, acc, pairs, first_bin, at, bins, grads, hesses)
        ends[s, i + 1] = at - begins[s]
        low = high


@inline
def has_room(edges, first, bin_offsets, most, i, begins, ends):
    """Whether there is room for node i, of which `most` bins are present at most."""
    for s in range(len(edges) - 1):
        n_bins = int64(bin_offsets[edges[s + 1] - first]) - int64(bin_offsets[edges[s] - first])
        if ends[s, i] + min(most, n_bins) >= begins[s + 1] - begins[s]:
            return False
    return True


@kernel(boolean(int64, int64, int64, int64, int64))
def prefers_bins(n_own, n_rows, n_stored, n_bins, stride):
    """Whether n_own of n_rows rows, which store n_stored values, are added up in less time by all bins' rows than by the
    rows' bins: the first reads what all rows add, which mostly is in the cache, in about 0.5 ns a value, 1.5 ns where bins
    have few rows; the second adds to slots all over the accumulator, in 0.4 ns if these are near, in 0.7 if there are some
    hundred thousand of them, and in 2.5 ns if there are millions. To go on to a row takes as long as some values, a padded
    row as 10, 6 or 4, by its stride.
    """
    if stride > 0:
        return (2 + stride // 2) * n_own >= n_stored
    if n_bins <= _NEAR_BINS:
        return _A_ROW * n_own + 4 * (n_own * n_stored // max(1, n_rows)) // 5 >= n_stored
    return 4 * n_own >= 3 * n_rows


@kernel_for(
    ROWS, WIDTHS,
    signature=lambda indptr, bins, width: int64(
        IN[indptr], IN[bins], *_POSTINGS, IN[int32], IN[int64], IN[int64], IN[width], OUT[width], OUT[int64]
    ),
)  # fmt: skip
def build_node(indptr, row_bins, stride, posting_offsets, posting_rows, tilings, rows, span, sums, packed, values, acc):
    """The sums of a node over all bins; returns how many slots may be filled now, about.

    span          where the node's `rows` begin and end, for each chunk of all rows
    sums, packed  what they come to, which says whether theirs are in pairs, and each of them (list_gradients)
    values        as build_nodes takes them
    acc           kernels.histograms, of the form that it has then: all 0  # OUT
    """
    n_rows, n_stored, n_bins, n_own = len(indptr) - 1, len(posting_rows), len(posting_offsets) - 1, span_size(span)
    pairs = needs_pairs(sums[SUM_SIZE], sums[SUM_HESS])
    by_bins = prefers_bins(n_own, n_rows, n_stored, n_bins, stride)
    n_fit = rows_that_fit(sums[MOST_GRAD], sums[MOST_HESS])
    if by_bins and n_own == n_rows and len(span) == 2:  # all of the block's rows, in order, as a root's are
        build_by_tiles(posting_offsets, posting_rows, tilings, packed[span[0] : span[1]], pairs, acc)
    elif by_bins:
        for c in range(0, len(span), 2):
            for k in range(uint64(span[c]), uint64(span[c + 1])):
                values[uint64(rows[k])] = packed[k]
        build_by_tiles(posting_offsets, posting_rows, tilings, values, pairs, acc)
        for c in range(0, len(span), 2):
            for row in rows[span[c] : span[c + 1]]:
                values[uint64(row)] = 0
    else:
        n_filled = n_own * n_stored // max(1, n_rows)
        if n_bins <= CACHED_SLOTS and n_filled >= n_bins // _SLOTS_PER_LINE:
            # What the rows before it or somebody else pushed out of the cache comes back in order: to wait for each slot
            # where a row first adds to it takes as long as all the adding.
            for slot in range(_0, uint64(len(acc)), uint64(_SLOTS_PER_LINE)):
                touch(acc, slot)
        build_by_rows(indptr, row_bins, stride, posting_offsets, rows, span, packed, pairs, n_fit, acc)
    return n_bins if by_bins else n_filled


@inline
def _is_searched_sooner(living, posting_offsets, n_own, n_values):
    """Whether to look for the rows of these bins among a node's n_own rows, which hold n_values values, takes less time than
    to add up the node's rows."""
    n_searches, most = int64(0), (_A_ROW * n_own + n_values) // _A_SEARCH
    for k in range(uint64(len(living))):
        b = uint64(living[k])
        n_searches += posting_offsets[b + _1] - posting_offsets[b]
        if n_searches > most:
            return False
    return True


@inline
def _search_rows(living, posting_offsets, posting_rows, rows, span, packed, acc):
    """Adds to the slots of these bins what a node's rows come to, looking for each of a bin's rows among the node's."""
    for k in range(uint64(len(living))):
        b = uint64(living[k])
        for at in range(uint64(posting_offsets[b]), uint64(posting_offsets[b + _1])):
            row = posting_rows[at]
            for c in range(0, len(span), 2):
                place = first_from(row, rows, span[c], span[c + 1])
                if place < span[c + 1] and rows[place] == row:
                    acc[b] += as_slot(packed, uint64(place))


@inline
def _clear_marked(marks, pairs, acc):
    """Sets the slots of all marked bins to 0, and the marks."""
    for w in range(uint64(len(marks))):
        word = marks[w]
        while word != _0:
            b = _64 * w + lowest_one(word)
            if pairs:
                acc[_1 + b + b] = 0
                b += b
            acc[b] = 0
            word &= word - _1
        marks[w] = _0


@kernel_for(
    ROWS, WIDTHS,
    signature=lambda indptr, bins, width: int64(
        IN[indptr], IN[bins], *_BLOCK, IN[int32], OUT2[int64], OUT2[int64], IN[width], OUT[width], IN[int32],
        IN[int64], IN[int64], IN[int64], int64, int64, boolean, int64, OUT[uint64], OUT[int64], OUT[int32], OUT[int64],
        OUT[int64], IN[int64], OUT2[int64],
    ),
)  # fmt: skip
def build_nodes(
    indptr, row_bins, stride, posting_offsets, posting_rows, tilings, bin_offsets, rows, spans, sums, packed, values,
    features, offsets, positions, edges, first, most_stored, single, i, marks, acc, bins, grads, hesses, begins, ends,
):  # fmt: skip
    """Builds node i and all that follow from the rows or postings of a sparse block, and writes them down; returns the first
    for which there might be no room.

    spans, sums  of each node, as build_node takes them
    values       room for a packed row for each of the block's: all 0, as they will be again  # OUT
    most_stored  how many bins a row has at most
    single       whether each feature has one bin
    marks        a bit for each bin: all 0, as they will be again  # OUT
    acc          kernels.histograms, as long as pairs need it: all 0, as it will be again  # OUT
    """
    n_bins = int64(bin_offsets[-1])
    while i < len(spans):
        if not has_room(edges, first, bin_offsets, span_size(spans[i]) * most_stored, i, begins, ends):
            return i
        pairs = needs_pairs(sums[i, SUM_SIZE], sums[i, SUM_HESS])
        slots = acc[: (n_bins + N_NONE) << int64(pairs)]
        n_filled = build_node(
            indptr, row_bins, stride, posting_offsets, posting_rows, tilings, rows, spans[i], sums[i], packed, values, slots
        )
        marked = 2 * n_filled < n_bins
        if marked:
            for c in range(0, spans.shape[1], 2):
                mark_bins(indptr, row_bins, stride, n_bins, rows[spans[i, c] : spans[i, c + 1]], marks)
        low, end = offsets[positions[i] // 2], offsets[positions[i] // 2 + 1]
        extract_node(
            features, low, end, edges, first, bin_offsets, single, slots, pairs, marks, marked, i, bins, grads, hesses,
            begins, ends,
        )  # fmt: skip
        if marked:
            _clear_marked(marks, pairs, slots)
        else:
            fill(slots, 0)
        i += 1
    return int64(i)


@kernel_for(
    ROWS, WIDTHS,
    signature=lambda indptr, bins, width: int64(
        IN[indptr], IN[bins], *_BLOCK, IN[int32], OUT2[int64], OUT2[int64], IN[width], OUT[width], OUT[int64],
        NODE_HISTOGRAM, OUT[int64], OUT2[int64], IN[uint8], int64, int64, OUT2[int64],
    ),
)  # fmt: skip
def share_nodes(
    indptr, row_bins, stride, posting_offsets, posting_rows, tilings, bin_offsets, rows, spans, sums, packed, values, acc,
    memory, used, parents, built_left, k, least, nodes,
):  # fmt: skip
    """Builds the child of split k that is to be built, and those of all that follow, as build_nodes does or by the rows of
    its parent's bins, if they are few, and shares their parents' histograms out (kernels.open_nodes.add_sums); returns the
    split to go on with, or MISFIT."""
    n_rows, n_stored, n_bins = max(1, len(indptr) - 1), len(posting_rows), int64(bin_offsets[-1])
    for i in range(k, len(spans)):
        pairs = needs_pairs(sums[i, SUM_SIZE], sums[i, SUM_HESS])
        slots = acc[: (n_bins + N_NONE) << int64(pairs)]
        n_own, living, clears = span_size(spans[i]), histogram_of(memory, parents[i]).bins, False
        is_searched = not pairs and _is_searched_sooner(living, posting_offsets, n_own, n_own * n_stored // n_rows)
        if is_searched:
            living = living.copy()  # the children take their place
            _search_rows(living, posting_offsets, posting_rows, rows, spans[i], packed, slots)
        else:
            n_filled = build_node(
                indptr, row_bins, stride, posting_offsets, posting_rows, tilings, rows, spans[i], sums[i], packed, values,
                slots,
            )  # fmt: skip
            clears = 16 * n_filled >= n_bins
        done = add_sums(memory, used, parents, built_left, i, slots, sums[i], least, clears, nodes)
        if is_searched:
            for b in living:
                slots[uint64(b)] = 0
        elif not clears:
            for c in range(0, spans.shape[1], 2):
                clear(indptr, row_bins, stride, rows[spans[i, c] : spans[i, c + 1]], 1 + int64(pairs), slots)
        if done != i + 1:
            fill(slots, 0)
            return done
    return int64(len(spans))
