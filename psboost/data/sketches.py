"""Knows how the values of features are summarised, merged and cut; does not know sockets, roles or bins of rows.

A feature of few distinct values is held as exact runs (value, count); only one of many pays for a sketch: a weighted summary
(data.weighted), which is the same for the same rows, or KLL, which takes 1 KB or more however little it holds, is random and
takes no weights. This is the only file that imports datasketches.
"""

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from datasketches import kll_floats_sketch

from psboost.data import zeros
from psboost.data.columns import GROUP_CELLS, MAX_INT32, AnyColumns, Columns, SortedColumns
from psboost.data.cut_points import CutPoints
from psboost.data.runs import UINTS, Runs, ascends_in, count_runs, narrow, require, total, values_ascend
from psboost.data.weighted import Summaries, sketch, weigh, weights_before
from psboost.errors import DataError, ParameterError, ProtocolError
from psboost.kernels import binning as kernels
from psboost.kernels.columns import find_runs, prefix_ends

KINDS = ("kll", "exact", "weighted")  # as messages number them
RUNS_PER_BIN = 16  # exact runs are kept up to so many for each of max_bin: twice the size of a KLL sketch
ENTRIES_PER_BIN = 8  # that a weighted summary keeps, as many as XGBoost's (WQSketch::kFactor): ranks are right to 1/4 bin
_MAX_K = 65535  # datasketches' bound


@dataclass(frozen=True)
class Sketches:
    """The values of a range of features, as far as somebody knows them; immutable, and mergeable.

    weight     of all rows summarised: their number but for kind "weighted"
    runs       exact runs, of features that have no sketch
    n_missing  int64 (n_features): the weight of NaN
    klls       sketches by feature, of features of more than most_runs distinct values; none but for kind "kll"
    summaries  of features of more than most_entries distinct values; none but for kind "weighted"
    """

    max_bin: int
    kind: str
    weight: int
    runs: Runs
    n_missing: np.ndarray
    klls: dict[int, kll_floats_sketch] = field(default_factory=dict)
    summaries: Summaries = field(default_factory=Summaries.none)

    @property
    def n_features(self) -> int:
        return len(self.n_missing)

    @staticmethod
    def summarise(
        columns: AnyColumns, begin: int, end: int, n_count_rows: int, *, max_bin: int, kind: str, weights=None,
        zero_as_missing: zeros.Rule = True,
    ) -> "Sketches":
        """What rows [0, n_count_rows) hold of features [begin, end), which are numbered from 0 here.

        weights          int64 >= 0 (n_count_rows), of each row, which other kinds than "weighted" do not heed; None: 1
        zero_as_missing  False: a summary of kind "weighted" has the zeros that are not stored, too, as XGBoost's would; but
                         not of SortedColumns
        """
        if kind not in KINDS:
            raise ParameterError(f"unknown kind of sketch {kind!r}: use one of {', '.join(KINDS)}")
        if max_bin < 2:
            raise ParameterError(f"max_bin is {max_bin}: use at least 2")
        n_count_rows = min(n_count_rows, columns.n_rows)
        with_zeros = not zeros.unstored_is_missing(zero_as_missing)
        before = None
        if kind == "weighted" and (weights is not None or isinstance(columns, SortedColumns)):
            before = weights_before(np.ones(n_count_rows, np.int64) if weights is None else weights, columns.n_rows)
        parts = []
        for group in columns.groups(begin, end):
            part = columns.part(*group)
            if before is not None:
                parts.append(Sketches._weigh(part, n_count_rows, with_zeros, before, max_bin))
            else:
                is_copy = not isinstance(columns, Columns)
                parts.append(Sketches._count(part, n_count_rows, with_zeros, max_bin, kind, is_copy))
        if len(parts) == 1:
            return parts[0]
        first_features = np.cumsum([0, *(part.n_features for part in parts)]).tolist()
        return Sketches(
            max_bin,
            kind,
            n_count_rows if before is None else int(before[-1]),
            Runs.join([part.runs for part in parts]),
            np.concatenate([np.empty(0, np.int64), *(part.n_missing for part in parts)]),
            {at + f: kll for at, part in zip(first_features, parts, strict=False) for f, kll in part.klls.items()},
            Summaries.join([part.summaries for part in parts], first_features[:-1]),
        )

    @staticmethod
    def _weigh(columns: Columns, n_count_rows: int, with_zeros: bool, before: np.ndarray, max_bin: int) -> "Sketches":
        if isinstance(columns, SortedColumns):
            runs, missing, summaries = weigh(columns, before, most_entries(max_bin))
        else:
            starts, ends, n_rows = columns.offsets[:-1], _ends(columns, n_count_rows), n_count_rows * with_zeros
            runs, missing, summaries = sketch(columns, starts, ends, n_rows, before, max_bin, ENTRIES_PER_BIN)
        return Sketches(max_bin, "weighted", int(before[-1]), runs, missing, summaries=summaries)

    @staticmethod
    def _count(
        columns: Columns, n_count_rows: int, with_zeros: bool, max_bin: int, kind: str, in_place: bool
    ) -> "Sketches":
        """What rows that weigh 1 each hold; only features of many values are put in order, `in_place` or elsewhere."""
        starts, ends = columns.offsets[:-1], _ends(columns, n_count_rows)
        lengths = ends - starts
        if columns.value is not None:
            return Sketches(max_bin, kind, n_count_rows, Runs.of_one(columns.value, lengths), np.zeros_like(lengths))
        few = most_entries(max_bin) - with_zeros if kind == "weighted" else most_runs(max_bin)  # 0 is one more
        room = int(np.minimum(lengths, few).sum())  # most of it is never touched
        values, counts = np.empty(room, np.float32), np.empty(room, np.int64)
        offsets = np.empty(columns.n_features + 1, np.int64)
        n_missing = np.empty(columns.n_features, np.int64)
        find_runs(starts, ends, columns.values, few, offsets, values, counts, n_missing)
        n_runs = offsets[-1]
        sketches = Sketches(
            max_bin, kind, n_count_rows, Runs(offsets, values[:n_runs].copy(), counts[:n_runs].copy()), n_missing
        )
        many = np.flatnonzero((np.diff(offsets) == 0) & (lengths > n_missing))
        if len(many) == 0:
            return sketches
        if kind == "weighted":
            n_rows = n_count_rows * with_zeros
            runs, _, summaries = sketch(columns, starts[many], ends[many], n_rows, None, max_bin, ENTRIES_PER_BIN)
            summaries = replace(summaries, features=many[summaries.features].astype(np.int32))
            return replace(sketches, runs=sketches._with(runs, many), summaries=summaries)
        held = [columns.values[start:end] for start, end in zip(starts[many], ends[many], strict=True)]
        return sketches._and_of(many, held, in_place)

    def _with(self, runs: Runs, features: np.ndarray) -> Runs:
        """All runs, with those of `features`, which have none yet."""
        return Runs.add([self.runs, runs.among(features, self.n_features)])

    def _and_of(self, features: np.ndarray, columns: list[np.ndarray], in_place: bool) -> "Sketches":
        """With what these features hold too: the values of each, in no order, which are put in order `in_place` or
        elsewhere."""
        most = most_runs(self.max_bin) if self.kind == "kll" else MAX_INT32
        runs, klls = [], {}
        for first, last in _groups(np.array([len(values) for values in columns])):
            held = [values if in_place else values.copy() for values in columns[first:last]]
            for values in held:
                values.sort()
            of_group, missing = count_runs(held, most)
            runs.append(of_group)
            for i in np.flatnonzero(np.diff(of_group.offsets) == 0).tolist():  # too many for runs
                klls[int(features[first + i])] = kll = kll_floats_sketch(_k_for(self.max_bin))
                kll.update(held[i][: len(held[i]) - missing[i]])
        return replace(self, runs=self._with(Runs.join(runs), features), klls=klls)

    @staticmethod
    def merge(parts: list["Sketches"]) -> "Sketches":
        """All that `parts` know of the same features.

        Exact parts stay exact while the feature has at most most_runs distinct values (kinds "exact" and "weighted":
        always), and then their order does not matter; otherwise the runs join the sketches. Of kind "weighted" the order
        never matters, and no error is added: that of each part stays below 2 W / (most_entries - 1).
        """
        if len(parts) == 1:
            return parts[0]
        if len({(part.n_features, part.max_bin, part.kind) for part in parts}) != 1:
            raise ProtocolError("sketches of different features, max_bin or kind cannot be merged")
        max_bin, kind = parts[0].max_bin, parts[0].kind
        runs = Runs.add([part.runs for part in parts])
        klls: dict[int, kll_floats_sketch] = {}
        if kind == "kll":
            lengths = np.diff(runs.offsets)
            many = set(np.flatnonzero(lengths > most_runs(max_bin)).tolist()).union(*(part.klls for part in parts))
            for feature in sorted(many):
                whole = kll_floats_sketch(_k_for(max_bin))
                held = slice(runs.offsets[feature], runs.offsets[feature + 1])
                if held.start < held.stop:
                    whole.update(np.repeat(runs.values[held], runs.counts[held]))
                for part in parts:
                    if feature in part.klls:
                        whole.merge(part.klls[feature])
                klls[feature] = whole
            runs = runs.without(list(klls))
        runs, summaries = _gather([part.summaries for part in parts], runs)
        n_missing = sum(part.n_missing for part in parts)
        return Sketches(max_bin, kind, sum(part.weight for part in parts), runs, n_missing, klls, summaries)

    def cut_points(self, *, max_bin: int, zero_as_missing: zeros.Rule) -> CutPoints:
        """Cut points of each feature.

        With zero_as_missing=False a row that does not store the feature counts as value 0.0, and a feature
        that has NaN gets a bin for it. A feature without any stored value gets no cuts.
        """
        if max_bin > self.max_bin:
            raise ParameterError(f"sketches made for max_bin {self.max_bin} do not serve {max_bin} bins")
        pieces = [self.runs]
        if self.klls:
            pieces.append(Runs.of({f: _weighted(kll) for f, kll in self.klls.items()}, self.n_features))
        has_missing = np.zeros(self.n_features, np.uint8)
        if not zeros.unstored_is_missing(zero_as_missing):
            has_missing[:] = self.n_missing > 0
            pieces.append(self._zeros())
        runs, summaries = _gather([self.summaries], Runs.add(pieces))
        if len(summaries.features):  # pruned as choose_cuts would do it, if it knew what lies between runs
            runs = Runs.add([runs, summaries.prune(max_bin + 1).runs(self.n_features)])
        cut_offsets = np.empty(self.n_features + 1, np.int64)
        cuts = np.empty(int(np.minimum(np.diff(runs.offsets), max_bin).sum()), np.float32)
        kernels.choose_cuts(runs.offsets, runs.values, runs.counts, max_bin, cut_offsets, cuts)
        return CutPoints(cut_offsets, cuts[: cut_offsets[-1]].copy(), has_missing)

    def _zeros(self) -> Runs:
        """One run of 0.0 for each feature that is stored, but not in all rows.

        A feature of nothing but NaN gets one in any case: it stands for its only numeric bin.
        """
        n_numeric = self.runs.sums()
        for feature, kll in self.klls.items():
            n_numeric[feature] = kll.n
        n_numeric[self.summaries.features] = self.summaries.sums()
        n_stored = n_numeric + self.n_missing
        if np.any(n_stored > self.weight):
            feature = int(np.argmax(n_stored))
            raise DataError(f"a feature stores {n_stored[feature]} values in {self.weight} rows")
        present = n_stored > 0
        n_zeros = np.where(present, self.weight - n_stored, 0)
        n_zeros[present & (n_numeric == 0)] += 1
        offsets = np.zeros(self.n_features + 1, np.int64)
        np.cumsum(n_zeros > 0, out=offsets[1:])
        return Runs(offsets, np.zeros(offsets[-1], np.float32), n_zeros[n_zeros > 0])

    def to_arrays(self) -> tuple[np.ndarray, ...]:
        """Twelve arrays for the wire, or nine; integers as narrow as they fit, so an absent feature costs a byte or two.

        max_bin, kind and weight; runs of each feature, run values, run counts; features with NaN, how many; then those of
        Summaries.to_arrays for kind "weighted", else features with a sketch, bytes of each sketch, the sketches one after
        another.
        """
        missing = np.flatnonzero(self.n_missing)
        exact = (
            np.array([self.max_bin, KINDS.index(self.kind), self.weight], np.int64),
            narrow(np.diff(self.runs.offsets)),
            self.runs.values,
            narrow(self.runs.counts),
            missing.astype(np.int32),
            narrow(self.n_missing[missing]),
        )
        if self.kind == "weighted":
            return exact + self.summaries.to_arrays()
        serial = [kll.serialize() for kll in self.klls.values()]
        return (
            *exact,
            np.fromiter(self.klls, np.int32, len(self.klls)),
            np.array([len(each) for each in serial], np.int32),
            np.frombuffer(b"".join(serial), np.uint8),
        )

    @staticmethod
    def from_arrays(arrays: tuple[np.ndarray, ...], n_features: int) -> "Sketches":
        """The sketches that `to_arrays` wrote. Raises ProtocolError on anything that it does not write."""
        require(len(arrays) in (9, 12), f"{len(arrays)} arrays instead of 9 or 12")
        settings, n_runs, values, counts, missing, missing_counts = arrays[:6]
        require(all(array.ndim == 1 for array in arrays), "an array that is not flat")
        for array, dtypes in (
            (settings, (np.int64,)), (n_runs, UINTS), (values, (np.float32,)), (counts, UINTS),
            (missing, (np.int32,)), (missing_counts, UINTS),
        ):  # fmt: skip
            require(array.dtype in dtypes, f"an array of {array.dtype} instead of {np.dtype(dtypes[0])}")
        require(len(settings) == 3 and settings[0] >= 2 and settings[1] in range(len(KINDS)), "odd settings")
        max_bin, kind, weight = int(settings[0]), KINDS[settings[1]], int(settings[2])
        require(0 <= weight < 2**62, "an odd weight")

        require(len(n_runs) == n_features, f"runs of {len(n_runs)} features instead of {n_features}")
        most = int(n_runs.max(initial=0))
        require(kind != "kll" or most <= most_runs(max_bin), f"{most} runs of a feature, with max_bin {max_bin}")
        require(most <= len(values), "fewer values than runs")
        offsets = np.zeros(n_features + 1, np.int64)
        np.cumsum(n_runs, out=offsets[1:], dtype=np.int64)
        require(offsets[-1] == len(values) == len(counts), "run values or counts that do not fit the runs")
        require(values_ascend(offsets, values), "run values that do not ascend")
        require(counts.min(initial=1) > 0 and total(counts) < 2**62, "run counts out of range")

        require(ascends_in(missing, n_features), "features with NaN that do not ascend")
        require(len(missing) == len(missing_counts), "numbers of NaN that do not fit the features")
        require(missing_counts.min(initial=1) > 0 and total(missing_counts) < 2**62, "odd counts of NaN")
        n_missing = np.zeros(n_features, np.int64)
        n_missing[missing] = missing_counts

        require((len(arrays) == 12) == (kind == "weighted"), f"{len(arrays)} arrays of kind {kind}")
        runs = Runs(offsets, np.ascontiguousarray(values), counts.astype(np.int64))
        exact = Sketches(max_bin, kind, weight, runs, n_missing)
        if kind == "weighted":
            summaries = Summaries.from_arrays(arrays[6:], n_features)
            require(not np.any(n_runs[summaries.features]), "a feature with both runs and a summary")
            return replace(exact, summaries=summaries)
        return replace(exact, klls=_read_klls(arrays[6:], exact))


def _ends(columns: Columns, n_rows: int) -> np.ndarray:
    """int64 (n_features): where those of each column's entries end that are of the first n_rows rows."""
    if n_rows >= columns.n_rows:
        return columns.offsets[1:]
    ends = np.empty(columns.n_features, np.int64)
    prefix_ends(columns.offsets, columns.rows, n_rows, ends)
    return ends


def _groups(lengths: np.ndarray) -> list[tuple[int, int]]:
    """First and last of columns of these lengths, so many at a time that what is made of them takes little memory."""
    edges = np.flatnonzero(np.diff(np.cumsum(lengths) // GROUP_CELLS)) + 1
    return list(pairwise([0, *edges.tolist(), len(lengths)]))


def _read_klls(arrays: tuple[np.ndarray, ...], exact: Sketches) -> dict[int, kll_floats_sketch]:
    """The KLL sketches beside what is known exactly. Raises ProtocolError as Sketches.from_arrays does."""
    sketched, sizes, serial = arrays
    for array, dtype in ((sketched, np.int32), (sizes, np.int32), (serial, np.uint8)):
        require(array.dtype == dtype, f"an array of {array.dtype} instead of {np.dtype(dtype)}")
    require(ascends_in(sketched, exact.n_features), "sketched features that do not ascend")
    require(len(sketched) == len(sizes), "sketch sizes that do not fit the features")
    require(exact.kind == "kll" or len(sketched) == 0, "sketches among exact runs")
    require(not np.any(np.diff(exact.runs.offsets)[sketched]), "a feature with both runs and a sketch")
    ends = np.cumsum(sizes, dtype=np.int64)
    require(sizes.min(initial=1) > 0, "a sketch of no bytes")
    require(ends.max(initial=0) == len(serial), "sketch sizes that do not fit the sketches")
    klls = {}
    buffer = serial.tobytes()
    for feature, size, end in zip(sketched.tolist(), sizes.tolist(), ends.tolist(), strict=True):
        try:
            klls[feature] = kll = kll_floats_sketch.deserialize(buffer[end - size : end])
            require(kll.k == _k_for(exact.max_bin) and kll.n > 0, "a sketch of another size")
            require(not np.isnan(_weighted(kll)[0]).any(), "NaN in a sketch")
        except (IndexError, ValueError, RuntimeError) as error:
            raise ProtocolError(f"the sketch of feature {feature} is damaged: {error}") from error
    return klls


def _gather(summaries: list[Summaries], runs: Runs) -> tuple[Runs, Summaries]:
    """The same with all of a feature in one place: the runs of one that has a summary are added to it."""
    features = np.unique(np.concatenate([each.features for each in summaries]))
    if len(features) == 0:
        return runs, Summaries.none()
    return runs.without(features), Summaries.merge([*summaries, Summaries.of(runs, features)])


def most_runs(max_bin: int) -> int:
    """A feature of at most so many distinct values is held exactly."""
    return RUNS_PER_BIN * max_bin


def most_entries(max_bin: int) -> int:
    """A feature of at most so many distinct values is held exactly where weights count; of others so many are kept."""
    return ENTRIES_PER_BIN * max_bin


def _k_for(max_bin: int) -> int:
    """KLL's k whose rank error stays well below the width of one of max_bin bins."""
    if max_bin <= 64:
        return 200
    return min(max(800, 800 * max_bin // 256), _MAX_K)


def _weighted(kll: kll_floats_sketch) -> tuple[np.ndarray, np.ndarray]:
    """The values that a sketch retains, ascending, and how many each stands for.

    Read from the serial form, which datasketches keeps the same over versions and languages (its Python
    iterator says 1 for every weight):

        bytes 0..20  preamble; its byte 18 is n_levels (8 bytes of it if n = 1)
        uint32       levels (n_levels): level i's values begin at levels[i] - levels[0]; each stands for 2^i
        float32      least value, greatest value, then the retained values
    """
    serial = kll.serialize()
    if kll.n == 1:
        return np.frombuffer(serial, np.float32, 1, 8), np.ones(1, np.int64)
    n_levels = serial[18]
    begins = np.frombuffer(serial, np.uint32, n_levels, 20).astype(np.int64)
    values = np.frombuffer(serial, np.float32, kll.num_retained, 20 + 4 * n_levels + 8)
    sizes = np.diff(begins - begins[0], append=len(values))
    weights = np.repeat(np.int64(1) << np.arange(n_levels), sizes)
    if weights.sum() != kll.n:
        raise DataError(f"a sketch of {kll.n} values holds {weights.sum()}: unknown form of datasketches")
    order = np.argsort(values, kind="stable")
    values = values[order]
    firsts = np.flatnonzero(np.diff(values, prepend=np.float32(np.nan)) != 0)
    return values[firsts], np.add.reduceat(weights[order], firsts)
