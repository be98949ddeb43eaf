"""The psboost command: knows flags, exit codes and what is printed; does not know how anything is computed.

Exit codes: 0 done, 1 the run failed, 2 a wrong flag, setting or file, 130 interrupted (Ctrl-C), 143 ended by SIGTERM,
129 by SIGHUP.
"""

import argparse
import gc
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from psboost.cluster.signals import exit_code, signals_as_interrupt
from psboost.errors import DataError, ModelError, ParameterError, PSBoostError
from psboost.files import check_outputs, is_replaced, replaced
from psboost.interrupts import interrupts_wait

_DESCRIPTION = """\
Gradient-boosted decision trees on data cut into row x column blocks.

  psboost train train.svm --model model.json --grid 2x2 --servers 2 --eval test=test.svm
  psboost predict model.json test.svm --out predictions.txt

DATA is svmlight text (also .gz and .bz2) or a scipy .npz file. Settings of train and coordinator come from
flags, then PSBOOST_* environment variables, then the TOML file of --config, then the defaults.
"""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command and exits the process with its code."""
    for name in ("stdout", "stderr"):  # which may be closed: what is written there is for nobody
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", errors="replace"))  # noqa: SIM115
    try:
        sys.exit(run(arguments))
    except KeyboardInterrupt:  # before it has begun
        sys.exit(130)
    finally:  # Python would try again to write what could not be written, and end with a code of its own
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def run(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit code. Errors that psboost raises on purpose go to stderr as one line."""
    args, unknown = _parser().parse_known_args(arguments)
    if unknown:
        args.refuse(unknown)
    return _exit_code_of(args.command, lambda: args.action(args), _complain)


def _exit_code_of(command: str, action: Callable[[], int | None], complain: Callable[[str, object], None]) -> int:
    """That of a command which does this; `complain` is told what is wrong."""
    try:
        with signals_as_interrupt():
            code = action() or 0
            sys.stdout.flush()
            return code
    except KeyboardInterrupt as interrupt:
        complain(command, "interrupted")
        return exit_code(interrupt)
    except PSBoostError as error:
        complain(command, error)
        return 2 if isinstance(error, ParameterError | DataError | ModelError) else 1
    except BrokenPipeError:  # nobody reads the output any more
        return 1
    except OSError as error:
        complain(command, error)
        return 1


def _complain(command: str, what: object) -> None:
    """One line on stderr in one write: the roles of a run share it, and their lines must not mix."""
    with suppress(OSError):
        sys.stderr.write(f"psboost {command}: {what}\n")
        sys.stderr.flush()


@contextmanager
def _importing() -> Iterator[None]:
    """Ctrl-C waits, and nobody searches for garbage what is imported and stays: that takes a tenth of the time."""
    gc.disable()
    try:
        with interrupts_wait():
            yield
    finally:
        gc.freeze()
        gc.enable()


def _parser() -> argparse.ArgumentParser:
    with _importing():
        from psboost.config import add_flags

    def command(name: str, text: str, action) -> argparse.ArgumentParser:
        made = commands.add_parser(
            name, help=text, description=text, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter
        )

        def refuse(unknown: list[str]) -> None:
            from psboost.boosting.parameters import NOT_HERE
            from psboost.settings import nearest

            flags = [flag for known in made._actions for flag in known.option_strings]
            given = unknown[0].partition("=")[0]
            reason = NOT_HERE.get(given.removeprefix("--").replace("-", "_"))
            if reason and name in ("train", "coordinator"):
                made.error(f"{given} is no flag of psboost: {reason}")
            hint = nearest(given, flags, lists=False) if given.startswith("--") else ""
            made.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")

        made.set_defaults(action=action, refuse=refuse)
        return made

    parser = argparse.ArgumentParser(
        "psboost", description=_DESCRIPTION, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    train = command("train", "Train a model, with all roles started on this machine.", _train)
    add_flags(train)

    predict = command("predict", "Predict with a model: locally, or block-distributed with --grid.", _predict)
    predict.add_argument("model", metavar="MODEL.json", help="a model that psboost or XGBoost saved as JSON")
    predict.add_argument("data", metavar="DATA", help="svmlight (also .gz, .bz2) or .npz; its labels do not matter")
    predict.add_argument("--out", metavar="FILE", required=True, help="where predictions go, one a line; - for stdout")
    predict.add_argument("--output-margin", action="store_true", help="margins before the link, not probabilities")
    predict.add_argument("--index-base", type=int, choices=(0, 1), default=1, help="number of the first feature (1)")
    predict.add_argument(
        "--zero-as-missing", choices=("true", "false", "unstored"),
        help="what a zero means, instead of what the model says (XGBoost's models: unstored)",
    )  # fmt: skip
    predict.add_argument("--threads", metavar="N", help="without --grid: how many score rows (this machine's cores)")
    predict.add_argument("--grid", metavar="RxC", help="predict block-distributed on this grid of workers")
    predict.add_argument("--servers", metavar="S", help="servers, with --grid (1)")
    predict.add_argument("--transport", metavar="NAME", help="with --grid: tcp, ipc, inproc or memory (tcp)")
    predict.add_argument("--report", metavar="FILE", help="with --grid: where to write seconds and bytes as JSON")

    coordinator = command(
        "coordinator",
        "Train as `psboost train` does, but wait at the rendezvous for servers and workers that others start.",
        _train,
    )
    _add_rendezvous(coordinator, "where to listen; port 0 takes any free one and prints it")
    add_flags(coordinator)
    for role in ("server", "worker"):
        made = command(role, f"Join the coordinator at the rendezvous as one {role}, and serve until the end.", _member)
        _add_rendezvous(made, "where the coordinator listens")
        made.add_argument(
            "--bind", metavar="HOST:PORT", help="where to listen (any free port of the address facing the coordinator)"
        )
        made.add_argument(
            "--announce", metavar="HOST", help="the host that the others reach this role by, if it is not the one bound"
        )
        made.add_argument("--rank", type=_rank, default=-1, metavar="N", help="which one to be (any that is free)")
    members = command(
        "members",
        "Join the coordinator at the rendezvous as several servers and workers; a server and a worker share a process.",
        _members,
    )
    _add_rendezvous(members, "where the coordinator listens")
    for role in ("server", "worker"):
        members.add_argument(f"--{role}s", type=_rank, default=0, metavar="N", help=f"how many {role}s (none)")
        members.add_argument(f"--first-{role}", type=_rank, default=0, metavar="K", help="their ranks are K to K+N-1 (K=0)")
    members.add_argument("--watched", action="store_true", help=argparse.SUPPRESS)  # see cluster/nursery.py
    return parser


def _add_rendezvous(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--rendezvous", metavar="HOST:PORT", required=True, help=text)


def _rank(text: str) -> int:
    """A whole number, 0 or more; for argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number, 0 or more")
    return int(text)


class _Version(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None):
        import psboost

        print(f"psboost {psboost.__version__}")
        parser.exit(0)


# --- training


def _train(args: argparse.Namespace) -> None:
    """`psboost train` and `psboost coordinator`."""
    from psboost.config import config_from_args, config_path

    config = config_from_args(args, os.environ)
    rendezvous = getattr(args, "rendezvous", None)
    if rendezvous is not None and config.transport not in ("tcp", "ipc"):
        raise ParameterError(f"--transport {config.transport}: roles of other processes need tcp or ipc")
    if str(config.model) == "-":
        raise ParameterError("--model -: name a file, as a bin mapper is written beside it")
    mapper = _mapper_path(config.model)  # where one that was given is written again as it is
    read = [config.data, config.labels, *(path for _, path in config.evals), config_path(args, os.environ)]
    if config.bin_mapper is None or mapper is None or os.path.realpath(config.bin_mapper) != os.path.realpath(mapper):
        read.append(config.bin_mapper)
    check_outputs([config.model, mapper, config.report, config.report_html], read)

    with _importing():
        from psboost.boosting.forest import check_model_path
        from psboost.data.source import check_data_file, check_file
        from psboost.progress import Progress
        from psboost.training import prepare_kernels, train_files

    check_model_path(config.model)
    data = [config.data, *(path for _, path in config.evals)]
    for path in data:  # before anything is compiled
        check_data_file(path)
    for path in filter(None, (config.labels, config.bin_mapper)):
        check_file(path)
    texts = any(path.suffix != ".npz" for path in data)
    jobs = ["parse"] if texts else []
    prepare_kernels(config.transport, config.mode, config.grid, *jobs, quiet=config.quiet)

    with Progress(config.num_boost_round, quiet=config.quiet, by_hand=rendezvous is not None) as progress:
        forest = train_files(config, progress, rendezvous)
    forest.save_model(config.model)
    if mapper is not None:
        forest.bin_mapper.save(mapper)
    if config.report:
        _write_json(config.report, {name: part for name, part in forest.report.items() if name != "timeline"})  # it is long
    if config.report_html:
        from psboost.pages.run import write_report_html

        write_report_html(forest, config.report_html)
    if not config.quiet:
        from psboost.progress import summary

        print(summary(forest.report))
        print(f"model: {config.model}" + (f"   bin mapper: {mapper}" if mapper is not None else ""))


def _mapper_path(model: Path) -> Path | None:
    """Beside the model; nowhere, if that goes to a pipe or a device."""
    if not is_replaced(model):
        return None
    return model.with_name(model.name.removesuffix(".json") + ".bins.npz")


def _write_json(path: str | os.PathLike[str], content: dict) -> None:
    import json

    with replaced(path) as file:
        file.write(json.dumps(_finite(content), indent=1, allow_nan=False) + "\n")


def _finite(content: Any) -> Any:
    """With null for what JSON has no number for, as the AUC of a single class."""
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _prepare_for_all() -> None:
    """For a role, which learns only later what there is to do."""
    with _importing():
        from psboost.kernels.prepare import JOBS, prepare

    prepare(*JOBS)


# --- roles


def _member(args: argparse.Namespace) -> None:
    """`psboost server` and `psboost worker`."""
    _prepare_for_all()
    with _importing():
        from psboost.cluster.launch import make_member_role
        from psboost.cluster.member import run_member

    run_member(
        args.command, make_member_role, rendezvous=args.rendezvous, bind=args.bind, announce=args.announce,
        rank=args.rank,
    )  # fmt: skip


def _members(args: argparse.Namespace) -> int:
    """`psboost members`."""
    if args.servers + args.workers == 0:
        raise ParameterError("members: give --workers N or --servers N, at least one in all")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no threads when it forks; a role uses one core anyway
    if not args.watched:  # by the coordinator that started it, which knows what they need
        _prepare_for_all()
    with _importing():
        from psboost.cluster import launch, member, nursery
        from psboost.cluster.runner import is_told
        from psboost.data import npz, svmlight  # noqa: F401
        from psboost.kernels.prepare import link

    link("train", "propose", "merge", "send", "sum in a ring")

    def complain(role: str, what: object) -> None:
        """Unless whoever watches says it: what the coordinator was told, and interrupts, which come to all."""
        if not args.watched or not (what == "interrupted" or is_told(what)):
            _complain(role, what)

    def play(role: str, rank: int, neighbours) -> int:
        how = {"rendezvous": args.rendezvous, "rank": rank, "neighbours": neighbours}
        return _exit_code_of(role, lambda: member.run_member(role, launch.make_member_role, **how), complain)

    servers = range(args.first_server, args.first_server + args.servers)
    workers = range(args.first_worker, args.first_worker + args.workers)
    return nursery.run_members(nursery.pair_up(servers, workers), play, watched=args.watched)


# --- prediction


def _predict(args: argparse.Namespace) -> None:
    """`psboost predict`."""
    for flag in ("servers", "transport", "report"):
        if args.grid is None and getattr(args, flag) is not None:
            raise ParameterError(f"--{flag} is for block-distributed predictions: give --grid as well")
    if args.grid is not None and args.threads is not None:
        raise ParameterError("--threads is for predictions in one process: with --grid, each worker has one")
    check_outputs([None if args.out == "-" else args.out, args.report], [args.model, args.data])
    threads = None if args.threads is None else _whole("--threads", args.threads)
    with _importing():
        from psboost.boosting.forest import load_model
        from psboost.data.source import check_data_file

    check_data_file(args.data)  # before anything is compiled
    forest = load_model(args.model)
    if args.zero_as_missing is not None:
        from psboost.data.zeros import RULES

        forest.zero_as_missing = RULES[args.zero_as_missing]
    if args.grid is None:
        predictions = forest.predict(
            args.data, output_margin=args.output_margin, index_base=args.index_base, threads=threads
        )
    else:
        from psboost.prediction import predict_with_report

        predictions, report = predict_with_report(
            forest, args.data, grid=args.grid, servers=_whole("--servers", args.servers or "1"),
            transport=args.transport or "tcp", output_margin=args.output_margin, index_base=args.index_base,
        )  # fmt: skip
        if args.report:
            _write_json(args.report, report)
    _write_numbers(args.out, predictions)


def _whole(flag: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ParameterError(f"{flag} {text!r}: give a whole number of at least 1") from None


def _write_numbers(out: str, numbers) -> None:
    """One number a line, each the shortest text that reads back as the same float32; all of them or no file."""
    lines = "".join(f"{number}\n" for number in numbers.astype(str))
    if out == "-":
        sys.stdout.flush()
        try:  # a stdout without a buffer writes what there is room for, and says nothing of the rest
            whole = open(sys.stdout.fileno(), "w", closefd=False)  # noqa: SIM115
        except OSError:  # no file
            whole = sys.stdout
        whole.write(lines)
        whole.flush()
        return
    with replaced(out) as file:
        file.write(lines)
