"""Knows how a node's histogram is made of its sums, and shared out to its children; does not know rows, gains or messages.

Sums are in an accumulator (kernels.histograms), packed or in pairs, that holds all bins; or in lists, as they come from
several blocks, which are added up in an accumulator of a few bins, window by window: to go through one of millions of bins
is to wait for memory at each.
"""

from typing import NamedTuple

import numpy as np

from psboost.kernels import eights
from psboost.kernels.ascending import first_from
from psboost.kernels.compile import IN, OUT, boolean, inline, int32, int64, kernel, types, uint64, void
from psboost.kernels.fills import fill
from psboost.kernels.prefetch import prefetch_far
from psboost.kernels.slots import CACHED_SLOTS, HALF, LOW, read, write

_1, _2, _8 = uint64(1), uint64(2), uint64(8)


class NodeHistogram(NamedTuple):
    """The histogram of one node over its living features, features ascending.

        features  int32 (n)       [ 2       | 5   | 9        ]
        starts    int32 (n + 1)   [ 0         3     5          9 ]
        bins      int32           [ 20 22 23 | 51 52 | 90 91 94 95 ]    ids, ascending
        sums      int64           the bins' sums, packed or in pairs, hess > 0
    """

    features: np.ndarray
    starts: np.ndarray
    bins: np.ndarray
    sums: np.ndarray


NODE_HISTOGRAM = types.NamedTuple((OUT[int32], OUT[int32], OUT[int32], OUT[int64]), NodeHistogram)


class NodeLists(NamedTuple):
    """One node in several lists of entries, in the same arrays.

        bins    int32           [ 3 7 9 | 0 7 | ... ]     ascending in a list
        grads   int64
        hesses  int64           > 0
        lists   int64 (3 n)     begin, end, and the bin that the list's are counted from; of each list
    """

    bins: np.ndarray
    grads: np.ndarray
    hesses: np.ndarray
    lists: np.ndarray


NODE_LISTS = types.NamedTuple((OUT[int32], OUT[int64], OUT[int64], OUT[int64]), NodeLists)
# what is known between two windows: features and bins written of the one child and of the other, bins that the one has, bins
# where it has more than the node, and the next of the node's
_FEATURES, _OTHER_FEATURES, _END, _OTHER_END, _TAKEN, _WRONG, _NEXT, _N_STATE = range(8)
# of lists: bins that became present; windows in which a sum was too wide, or a bin not the node's
_NEW, _ODD, _N_ADDED = range(3)
# Where a node has few of the bins of so large an accumulator, each slot is a line of memory to wait for: it is asked for so
# many bins before its turn. In 0.6 to 0.7 of the time at the last levels of rcv1-shaped data.
_FAR_SLOTS, _AHEAD = 4 * CACHED_SLOTS, uint64(96)
# Where a node has many of an accumulator's bins, it is cleared after so many features, whose slots are still in the cache: a
# tree of rcv1-shaped data, 3.2 million bins, takes 0.97 of the time.
_SOME_FEATURES, _MANY = 128, 1 / 4


@inline
def _add_lists(node, first, end, pairs, acc, begins, counts):
    """Adds what the lists hold of bins first .. end to `acc`, whose slot 0 is bin `first`. Before it, they may hold nothing.

    begins  where each list's entries below `end` are over; they were over below `first`  # OUT
    counts  _NEW and _ODD rise; a bin before `first` is odd  # OUT
    """
    n_new, wide = int64(0), int64(0)
    for i in range(len(begins)):
        first_bin = node.lists[3 * i + 2]
        begin, stop = begins[i], first_from(end - first_bin, node.bins, begins[i], node.lists[3 * i + 1])
        begins[i] = stop
        to_slot = first_bin - first
        if begin < stop and node.bins[begin] + to_slot < 0:
            wide = int64(1)
            continue
        for k in range(uint64(begin), uint64(stop)):
            b, grad, hess = uint64(node.bins[k] + to_slot), node.grads[k], node.hesses[k]
            if pairs:
                slot = _2 * b
                n_new += acc[slot + _1] == 0
                acc[slot] += grad
                acc[slot + _1] += hess
            else:
                wide |= (grad + HALF) >> int64(32) | hess >> int64(32)
                n_new += acc[b] & int64(LOW) == 0
                acc[b] += (grad << int64(32)) + hess
    counts[_NEW] += n_new
    counts[_ODD] += wide != 0


@inline
def _clear_lists(node, first, pairs, begins, ends, acc):
    """Sets the slots of what the lists hold from `begins` to `ends` to 0 again."""
    for i in range(len(begins)):
        to_slot = node.lists[3 * i + 2] - first
        if begins[i] < ends[i] and node.bins[begins[i]] + to_slot >= 0:
            for k in range(uint64(begins[i]), uint64(ends[i])):
                b = uint64(node.bins[k] + to_slot)
                if pairs:
                    acc[_2 * b] = 0
                    acc[_2 * b + _1] = 0
                else:
                    acc[b] = 0


@inline
def _take_features(bin_offsets, begin_feature, end_feature, acc, first, pairs, least, node, state):
    """`take` of some features; `acc` begins with bin `first`. `state` (OUT): _FEATURES and _END."""
    n_living, at = uint64(state[_FEATURES]), uint64(state[_END])
    for feature in range(uint64(begin_feature), uint64(end_feature)):
        begin, stored = at, int64(0)
        for b in range(uint64(bin_offsets[feature]), uint64(bin_offsets[feature + _1])):
            grad, hess = read(acc, pairs, int64(b) - first)
            # Written without a test, and moved on from if it is present; so is the feature, if it lives.
            node.bins[at] = b
            write(grad, hess, pairs, at, node.sums)
            stored += hess
            at += uint64(hess != 0)
        lives = uint64(stored >= least)
        at = begin + lives * (at - begin)
        node.features[n_living], node.starts[n_living + _1] = feature, at
        n_living += lives
    state[_FEATURES], state[_END] = n_living, at


@kernel(int64(IN[int32], IN[int64], boolean, int64, NODE_HISTOGRAM))
def take(bin_offsets, acc, pairs, least, node):
    """Writes to `node` what is present of all features whose hesses come to `least`; returns how many features."""
    state = np.zeros(_N_STATE, np.int64)
    node.starts[0] = 0
    _take_features(bin_offsets, 0, len(bin_offsets) - 1, acc, 0, pairs, least, node, state)
    return state[_FEATURES]


@kernel(int64(IN[int32], NODE_LISTS, boolean, OUT[int64], int64, NODE_HISTOGRAM))
def take_lists(bin_offsets, lists, pairs, acc, least, node):
    """`take` of what the lists come to; -1 if one holds a sum that is too wide, or another bin.

    acc  slots for as many bins as a window is to have, and one feature has at most: all 0, as they will be again  # OUT
    """
    state, counts, begins = np.zeros(_N_STATE, np.int64), np.zeros(_N_ADDED, np.int64), lists.lists[::3].copy()
    window, done = len(acc) >> int64(pairs), int64(0)
    node.starts[0] = 0
    while done < len(bin_offsets) - 1:
        first, end_feature = int64(bin_offsets[done]), done + 1
        while end_feature < len(bin_offsets) - 1 and bin_offsets[end_feature + 1] - first <= window:
            end_feature += 1
        end = int64(bin_offsets[end_feature])
        _add_lists(lists, first, end, pairs, acc, begins, counts)
        _take_features(bin_offsets, done, end_feature, acc, first, pairs, least, node, state)
        acc[: (end - first) << int64(pairs)] = 0
        done = end_feature
    for i in range(len(begins)):
        counts[_ODD] += begins[i] < lists.lists[3 * i + 1]
    return state[_FEATURES] if counts[_ODD] == 0 else int64(-1)


@inline
def _share_packed(begin, end, acc, first, at, rest, node, child):
    """share_out's work on one feature, all sums packed: the halves need not be taken apart. Returns the new ends
    at and rest, the children's sums of hess, and the number of bins where the child has more than the node."""
    n_eights, child_stored, rest_stored = int64(end - begin) >> int64(3) if eights.CAN else int64(0), int64(0), int64(0)
    if n_eights > 0:
        child_end, rest_end, child_stored, rest_stored = eights.share_eights(
            int64(begin), n_eights, first, node.bins, node.sums, acc, int64(at), int64(rest), child.bins, child.sums
        )
        at, rest = uint64(child_end), uint64(rest_end)
    for k in range(begin + uint64(8 * n_eights), end):
        b = node.bins[k]
        value = acc[uint64(b - first)]
        other = node.sums[k] - value
        child.bins[at], child.sums[at] = b, value
        node.bins[rest], node.sums[rest] = b, other
        at += uint64(value != 0)
        rest += uint64(other != 0)
        child_stored += value & int64(LOW)
        rest_stored += other & int64(LOW)
    # The node's own come to less than 2^32. A child that has more in a bin leaves the rest 2^32 - what it has more.
    return at, rest, child_stored, rest_stored, (child_stored + rest_stored) >> int64(32)


@inline
def _share_one(k, acc, first, forms, at, rest, node, child):
    """The same on a feature of one bin, k, in any forms. Where data are wide, most have one: a loop would take longer."""
    b = node.bins[k]
    grad, hess = read(acc, forms[1], b - first)
    node_grad, node_hess = read(node.sums, forms[0], k)
    other = node_hess - hess
    child.bins[at] = b
    write(grad, hess, forms[1], at, child.sums)
    node.bins[rest] = b
    write(node_grad - grad, other, forms[2], rest, node.sums)
    return at + uint64(hess != 0), rest + uint64(other != 0), hess, other, int64(other < 0)


@inline
def _share_pairs(begin, end, acc, first, forms, at, rest, node, child):
    """The same on a feature of several bins."""
    child_stored, rest_stored, n_wrong = int64(0), int64(0), int64(0)
    for k in range(begin, end):
        at, rest, hess, other, wrong = _share_one(k, acc, first, forms, at, rest, node, child)
        child_stored += hess
        rest_stored += other
        n_wrong += wrong
    return at, rest, child_stored, rest_stored, n_wrong


@inline
def _share_features(node, begin_feature, end_feature, acc, first, forms, least, child, state):
    """`share_out` of some of the node's features; `acc` begins with bin `first`. `state`  # OUT"""
    n_child, n_rest = uint64(state[_FEATURES]), uint64(state[_OTHER_FEATURES])
    at, rest, begin = uint64(state[_END]), uint64(state[_OTHER_END]), uint64(state[_NEXT])
    n_taken, n_wrong, i = uint64(0), int64(0), uint64(begin_feature)
    asked, far_apart = begin, len(acc) >= max(_FAR_SLOTS, 4 * len(node.bins))
    by_eights = not forms[0] or (forms[2] and not forms[1])
    while i < uint64(end_feature):
        if far_apart:
            to_ask = min(uint64(node.starts[i + _1]) + _AHEAD, uint64(len(node.bins)))
            for k in range(asked, to_ask):
                prefetch_far(acc, uint64(node.bins[k] - first) << uint64(forms[1]))
            asked = to_ask
        if by_eights and i + _8 <= uint64(end_feature) and uint64(node.starts[i + _8]) - begin == _8:
            if forms[0]:
                ends = eights.share_singles(
                    True, i, begin, first, least, node.features, node.starts, node.bins, node.sums, acc, n_child, n_rest, at,
                    rest, child.features, child.starts, child.bins, child.sums,
                )  # fmt: skip
            else:
                ends = eights.share_singles(
                    False, i, begin, first, least, node.features, node.starts, node.bins, node.sums, acc, n_child, n_rest,
                    at, rest, child.features, child.starts, child.bins, child.sums,
                )  # fmt: skip
            n_child, n_rest, at, rest = uint64(ends[0]), uint64(ends[1]), uint64(ends[2]), uint64(ends[3])
            n_taken += uint64(ends[4])
            n_wrong += ends[5]
            begin += _8
            i += _8
            continue
        feature, end, child_begin, rest_begin = node.features[i], uint64(node.starts[i + _1]), at, rest
        if end - begin == _1:
            at, rest, stored, rest_stored, wrong = _share_one(begin, acc, first, forms, at, rest, node, child)
        elif forms[0]:
            at, rest, stored, rest_stored, wrong = _share_pairs(begin, end, acc, first, forms, at, rest, node, child)
        else:
            at, rest, stored, rest_stored, wrong = _share_packed(begin, end, acc, first, at, rest, node, child)
        n_taken += at - child_begin
        n_wrong += wrong
        # Features are written as bins are, without a test, and moved on from if they live; over what was read before.
        lives, rest_lives = uint64(stored >= least), uint64(rest_stored >= least)
        at, rest = child_begin + lives * (at - child_begin), rest_begin + rest_lives * (rest - rest_begin)
        child.features[n_child], child.starts[n_child + _1] = feature, at
        node.features[n_rest], node.starts[n_rest + _1] = feature, rest
        n_child += lives
        n_rest += rest_lives
        begin = end
        i += _1
    state[_FEATURES], state[_OTHER_FEATURES], state[_END], state[_OTHER_END] = n_child, n_rest, at, rest
    state[_TAKEN] += int64(n_taken)
    state[_WRONG] += n_wrong
    state[_NEXT] = begin


@kernel(void(NODE_HISTOGRAM, OUT[int64], IN[boolean], int64, boolean, NODE_HISTOGRAM, OUT[int64]))
def share_out(node, acc, forms, least, clears, child, counts):
    """Shares a node's histogram out to two children: `acc` holds one's sums, the other has the rest (node - child).

    The one is written to `child`; the other takes the node's own place, which it cannot outgrow: each is written
    without a test, and moved on from if it is present. Features whose hesses do not come to `least` are left out.

    node    the node's histogram, then the other child's                                    # OUT
    forms   whether the sums of the node, of the child (and acc), of the other are pairs: the last two
            only where the first are
    clears  whether `acc` is to be all 0 then  # OUT
    child   room for as much as the node holds                                              # OUT
    counts  features of the child and of the other; bins where the child has more than the node  # OUT
    """
    state, done, cleared, n_features = np.zeros(_N_STATE, np.int64), 0, int64(0), len(node.features)
    at_once = _SOME_FEATURES if clears and len(node.bins) >= _MANY * len(acc) else n_features
    child.starts[0] = 0
    while done < n_features:
        end_feature = min(done + at_once, n_features)
        _share_features(node, done, end_feature, acc, 0, forms, least, child, state)
        done = end_feature
        if clears and done < n_features:
            end = int64(node.bins[state[_NEXT]]) << int64(forms[1])
            fill(acc[cleared:end], 0)
            cleared = end
    if clears:
        fill(acc[cleared:], 0)
    counts[0], counts[1], counts[2] = state[_FEATURES], state[_OTHER_FEATURES], state[_WRONG]


@kernel(void(NODE_HISTOGRAM, NODE_LISTS, IN[boolean], OUT[int64], int64, NODE_HISTOGRAM, OUT[int64]))
def share_out_lists(node, lists, forms, acc, least, child, counts):
    """`share_out` where the one child is what the lists come to.

    Bins that are not the node's, and sums that are too wide, are also counted in counts[2].

    acc  as take_lists wants it  # OUT
    """
    state, added, begins = np.zeros(_N_STATE, np.int64), np.zeros(_N_ADDED, np.int64), lists.lists[::3].copy()
    n_features, window, done = len(node.features), len(acc) >> int64(forms[1]), int64(0)
    child.starts[0] = 0
    while done < n_features:
        first, end_feature = int64(node.bins[state[_NEXT]]), done + 1
        while end_feature < n_features and node.bins[node.starts[end_feature + 1] - 1] - first < window:
            end_feature += 1
        end = int64(node.bins[node.starts[end_feature] - 1]) + 1
        before = begins.copy()
        _add_lists(lists, first, end, forms[1], acc, begins, added)
        _share_features(node, done, end_feature, acc, first, forms, least, child, state)
        _clear_lists(lists, first, forms[1], before, begins, acc)
        done = end_feature
    for i in range(len(begins)):
        added[_ODD] += begins[i] < lists.lists[3 * i + 1]
    counts[0], counts[1] = state[_FEATURES], state[_OTHER_FEATURES]
    counts[2] = state[_WRONG] + added[_ODD] + int64(added[_NEW] != state[_TAKEN])
