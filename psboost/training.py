"""The Python entry point, psboost.train; knows how arguments become a job, and which driver runs it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from psboost.boosting.forest import Forest, first_difference
from psboost.cluster.addresses import normal_address
from psboost.cluster.costs import make_report
from psboost.cluster.inputs import DataInput, as_file
from psboost.cluster.launch import train_in_processes
from psboost.cluster.local import IN_PROCESS, train_in_process
from psboost.cluster.threads import default_threads
from psboost.config import Parameters, TrainConfig, check_setting, checked_cluster
from psboost.data import zeros
from psboost.data.bin_mapper import BinMapper
from psboost.data.matrix import MATRIX
from psboost.data.source import EVALUATION, PATHS, Source, check_as_wide, open_source
from psboost.errors import DataError, ParameterError
from psboost.kernels.prepare import ANY, prepare
from psboost.lab.hosts import Cluster
from psboost.lab.virtual import train_virtually
from psboost.progress import Progress
from psboost.roles.coordinator import Round
from psboost.roles.job import Job
from psboost.roles.modes import kernel_jobs
from psboost.settings import Bool

__all__ = ["Round", "train"]


def train(
    params: Mapping[str, Any],
    X: Any,
    y: Any = None,
    *,
    num_boost_round: int = 100,
    mode: str = "block",
    grid: tuple[int, int] = (1, 1),
    servers: int = 1,
    threads: int | None = None,
    transport: str | None = None,
    cluster: Cluster | None = None,
    evals: Sequence[tuple] | None = (),
    seed: int = 0,
    sample_weight: Any = None,
    bin_mapper: BinMapper | str | Path | None = None,
    callbacks: Sequence[Callable[[Round], bool | None]] | None = (),
    codec: str = "packed",
    index_base: int = 1,
    n_features: int | None = None,
) -> Forest:
    """Train gradient-boosted trees on data cut into a grid of row x column blocks.

    params           XGBoost's names (config.Parameters); an unknown one is a ParameterError. zero_as_missing: True
                     (zeros, stored or not, are missing), False (they are values) or "unstored" (stored ones are values);
                     default: False for dense X; else True if X stores no zero, and "unstored" if it does
    X                numpy array (n_rows, n_features), any scipy sparse matrix or array, a data frame (sparse if all its
                     columns are), or the path of a file (svmlight, also .gz and .bz2, or .npz)
    y                labels (n_rows); None for a file that holds them
    mode             "block"; or, with rows alone distributed, on a grid (R, 1) and without servers: "allreduce" (dense
                     histograms are summed in a ring, XGBoost's way), "reduce-scatter" (each worker sums and searches a range
                     of features, LightGBM's way) or "sparse-allreduce" (only present bins travel). The model is the same
    grid             (row shards, feature shards): one worker for each block
    servers          servers that merge histograms; none with one row shard, or in modes other than "block"
    threads          of each worker, at most: no more of them grow trees than the data keep busy, which report["job"] tells
                     as n_threads; by default this machine's cores, shared among the workers
    transport        "memory" (one thread runs all roles, beside the workers' own `threads`: the default for one worker),
                     "inproc" (roles are threads: the default for several), "tcp" or "ipc" (processes on this machine), or
                     "virtual" (one thread runs all roles on a cluster that is not there; seconds are those of its clock,
                     and report["virtual"] is VirtualRun.report)
    cluster          a psboost.lab.Cluster, for transport "virtual"
    evals            (X, y, name) triples, or (path, name) pairs: metrics after each round
    seed             of the rounding of gradients; from the same cut points, the model is the same for every grid, server
                     count and transport
    sample_weight    float (n_rows), >= 0
    bin_mapper       the cut points of an earlier training (Forest.bin_mapper, or the file it was saved to), and its
                     rule for zeros unless params has one
    callbacks        called with a Round after each round; one that returns True ends the training, and others return None
    codec            how histograms are sent: "packed", or "csr" (the paper's)
    index_base       of svmlight files: 0 or 1
    n_features       declared width, where a file does not show it

    Returns the Forest, with `report` (see cluster.costs.make_report) and `bin_mapper`. Raises ParameterError, DataError
    or ClusterError.
    """
    parameters = Parameters.from_dict(params)
    grid, mode = check_setting("grid", grid), check_setting("mode", mode)
    if transport is None:  # a worker of its own thread would be waited for at each level, and woken up
        transport = "memory" if grid == (1, 1) else "inproc"
    transport = check_setting("transport", transport)
    cluster = checked_cluster(cluster, transport)
    names, eval_data = _evaluation_sets(evals or ())
    callbacks = _callables(callbacks or ())
    if isinstance(bin_mapper, PATHS):
        bin_mapper = BinMapper.load(bin_mapper)
    if not isinstance(bin_mapper, BinMapper | None):
        raise ParameterError(f"bin_mapper is a {type(bin_mapper).__name__}: give Forest.bin_mapper, or the path of a file")
    parameters = _with_bins_of(parameters, bin_mapper)
    how = {"index_base": index_base, "n_features": check_setting("n_features", n_features)}
    job = Job(
        parameters=parameters,
        n_row_shards=grid[0],
        n_feature_shards=grid[1],
        n_servers=check_setting("servers", servers),
        n_rounds=check_setting("num_boost_round", num_boost_round),
        seed=check_setting("seed", seed),
        zero_as_missing=_rule_for_zeros(parameters, bin_mapper),
        codec=check_setting("codec", codec),
        eval_names=names,
        n_threads=_n_threads(threads, grid, transport),
        mode=mode,
    )
    source = open_source(X, y, weights=sample_weight, zero_as_missing=job.zero_as_missing, **how)
    how["zero_as_missing"] = source.zero_as_missing
    _check_bins_fit(bin_mapper, source)
    eval_sources = _open_evals(names, [partial(open_source, *pair, **how, purpose=EVALUATION) for pair in eval_data], source)
    job = replace(job, zero_as_missing=source.zero_as_missing, data_name=source.name)
    prepare_kernels(transport, mode, grid)  # once nothing is wrong with what was given

    def on_round(round_: Round) -> bool:
        return any([_ends_training(callback, round_) for callback in callbacks])

    def in_processes(**shared):
        with TemporaryDirectory(prefix="psboost-") as folder:
            data = as_file(folder, "train", X, y, sample_weight, **how)
            beside = how | {"purpose": EVALUATION}
            eval_files = tuple(as_file(folder, f"eval{i}", *pair, None, **beside) for i, pair in enumerate(eval_data))
            return train_in_processes(job, data, eval_files, **shared)

    shared = {"on_round": on_round if callbacks else None, "bin_mapper": bin_mapper}
    forest = _train(job, source, eval_sources, transport, cluster, in_processes, **shared)
    columns = source.feature_names or ()
    if len(columns) == len(set(columns)) == forest.n_features:
        forest.feature_names = columns
    return forest


def train_files(config: TrainConfig, progress: Progress, rendezvous: str | None = None) -> Forest:
    """Trains as the command line asks. With `rendezvous`, servers and workers that others start join there."""
    given = None if config.bin_mapper is None else BinMapper.load(config.bin_mapper)
    parameters = _with_bins_of(config.parameters, given)
    rule = _rule_for_zeros(parameters, given)
    how = {"index_base": config.index_base, "n_features": config.n_features, "zero_as_missing": rule}
    labels = None if config.labels is None else str(config.labels.resolve())
    data = DataInput(str(config.data.resolve()), labels, **how)
    eval_data = tuple(DataInput(str(path.resolve()), **how, purpose=EVALUATION) for _, path in config.evals)
    source = data.open()
    _check_bins_fit(given, source)
    eval_sources = _open_evals(tuple(name for name, _ in config.evals), [one.open for one in eval_data], source)
    job = Job(
        parameters=parameters,
        n_row_shards=config.grid[0],
        n_feature_shards=config.grid[1],
        n_servers=config.servers,
        n_rounds=config.num_boost_round,
        seed=config.seed,
        zero_as_missing=rule,
        codec=config.codec,
        eval_names=tuple(name for name, _ in config.evals),
        data_name=str(config.data),
        n_threads=_n_threads(config.threads, config.grid, config.transport),
        mode=config.mode,
    )
    in_processes = partial(
        train_in_processes, job, data, eval_data, on_join=progress.joining, on_wait=progress.waiting,
        rendezvous=None if rendezvous is None else normal_address(rendezvous),
    )  # fmt: skip
    shared = {"on_round": progress.round, "bin_mapper": given}
    transport = config.transport if rendezvous is None else normal_address(rendezvous).partition(":")[0]
    return _train(job, source, eval_sources, transport, config.cluster, in_processes, **shared)


def _train(
    job: Job, source: Source, eval_sources: tuple[Source, ...], transport: str, cluster: Cluster | None,
    in_processes: Callable, **shared,
) -> Forest:  # fmt: skip
    """The forest that the transport's driver grows; `shared` is for all drivers, and `in_processes` the one of processes."""
    if cluster is not None:
        training, costs, virtual = train_virtually(job, source, eval_sources, cluster=cluster, **shared)
        forest = _finish(training, costs, transport, virtual["seconds"])
        forest.report["virtual"] = virtual
        return forest
    begin = time.perf_counter()
    if transport in IN_PROCESS:
        training, costs = train_in_process(job, source, eval_sources, transport=transport, **shared)
    else:
        training, costs = in_processes(transport=transport, **shared)
    return _finish(training, costs, transport, time.perf_counter() - begin)


def prepare_kernels(transport: str, mode: str, grid: tuple[int, int], *jobs: str, quiet: bool = False) -> None:
    """Compiles what such a training takes, and these `jobs`, if this installation has not done so, and says that it does.

    Workers compile, and say, what their blocks and gradients take besides: but here, if nothing is to be said, or if a
    simulated clock would count it.
    """
    how = {"say": None} if quiet else {}
    of_training = kernel_jobs(mode, grid)
    prepare(*of_training, *jobs, **how)
    if quiet or transport == "virtual":
        prepare(*of_training, variants=[ANY], **how)


def _n_threads(threads: int | None, grid: tuple[int, int], transport: str) -> int:
    """Of each worker: as asked, or as many as there are cores for."""
    threads = check_setting("threads", threads)
    if transport == "virtual" and threads not in (None, 1):
        raise ParameterError(f"threads {threads}: with transport virtual a worker has one; give hosts more workers instead")
    if threads is not None:
        return threads
    n_workers = grid[0] * grid[1]
    one_by_one = transport == "virtual" or (transport == "memory" and n_workers > 1)
    return 1 if one_by_one else default_threads(n_workers)


def _finish(training, costs, transport: str, total_seconds: float) -> Forest:
    """The forest of a training, with its bin mapper and report."""
    report = make_report(training.facts | {"transport": transport}, costs)
    report["seconds"]["total"] = total_seconds
    training.forest.bin_mapper = training.bin_mapper
    training.forest.report = report
    return training.forest


def _rule_for_zeros(parameters: Parameters, bin_mapper: BinMapper | None) -> zeros.Rule | None:
    """The rule that is asked for, or that of the bin mapper; None if it follows from the data."""
    if parameters.zero_as_missing is None and bin_mapper is not None:
        return bin_mapper.zero_as_missing
    return parameters.zero_as_missing


def _with_bins_of(parameters: Parameters, bin_mapper: BinMapper | None) -> Parameters:
    """With the max_bin that the bin mapper, if there is one, was made with. ParameterError if another one was asked for."""
    if bin_mapper is None:
        return parameters
    if parameters.max_bin not in (bin_mapper.max_bin, Parameters().max_bin):
        raise ParameterError(
            f"max_bin={parameters.max_bin}, but the bin mapper was made with {bin_mapper.max_bin}: leave one of the two out"
        )
    return replace(parameters, max_bin=bin_mapper.max_bin)


def _callables(callbacks: Sequence[Callable]) -> list[Callable]:
    if callable(callbacks) or not all(callable(callback) for callback in callbacks):
        raise ParameterError("callbacks: give a list of functions, each called with a Round")
    return list(callbacks)


def _ends_training(callback: Callable, round_: Round) -> bool:
    """Whether the callback returns True. ParameterError for what it may return by accident, as `file.write` does."""
    answer = callback(round_)
    try:
        return answer is not None and Bool().check(answer)
    except ValueError:
        name = getattr(callback, "__qualname__", type(callback).__name__)
        raise ParameterError(
            f"callbacks: {name} returned {answer!r:.60}: return True to end the training, and False or None to go on"
        ) from None


def _check_bins_fit(bin_mapper: BinMapper | None, source: Source) -> None:
    """DataError if there is a bin mapper, made of data of another width. That of text shows when it is read (Dealing)."""
    if bin_mapper is not None and (n_features := source.other_width(bin_mapper.n_features)) is not None:
        raise bin_mapper.of_other_width(source.name, n_features)


def _open_evals(names: tuple[str, ...], opens: list[Callable[[], Source]], training: Source) -> tuple[Source, ...]:
    """The evaluation sets' sources. DataError, naming the set, if one cannot be opened, or has other columns than the
    training data, as far as both say which they have."""
    opened = []
    for name, open_one in zip(names, opens, strict=True):
        what = f"the evaluation data {name!r}"
        try:
            one = open_one()
        except DataError as error:
            raise DataError(f"{what}: {error}") from error
        if one.name == MATRIX:
            one.name = what
        check_as_wide(one, training)
        if difference := first_difference(one.feature_names, training.feature_names):
            raise DataError(f"{one.name} has {difference} the model is trained: give the same columns in that order")
        opened.append(one)
    return tuple(opened)


def _evaluation_sets(evals: Sequence[tuple]) -> tuple[tuple[str, ...], list[tuple]]:
    """Names and (data, labels) of the evaluation sets."""
    if not isinstance(evals, list | tuple):
        raise ParameterError("evals: give a list of (X, y, name)")
    names, data = [], []
    for i, entry in enumerate(evals):
        if not isinstance(entry, tuple | list) or len(entry) not in (2, 3) or not isinstance(entry[-1], str):
            raise ParameterError(f"evals[{i}]: give (X, y, name), or (path, name) for a file that holds its labels")
        names.append(entry[-1])
        data.append((entry[0], entry[1] if len(entry) == 3 else None))
    if len(set(names)) < len(names):
        raise ParameterError(f"evals: the names {', '.join(names)} are not all different")
    return tuple(names), data
