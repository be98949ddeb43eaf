"""Starts several members from one process that has loaded everything once; does not know what members do.

    parent (cluster/processes.py)         nursery                         process of a member or two
    psboost members --watched ...  ---->  loads, then forks  ---------->  as psboost server, psboost worker
                                          waits for all
    <-- "<pid> <code> worker 3 server 3" when one has ended --
    closes its end, or dies  ---------->  ends all of them  ---SIGTERM, 2 s later SIGKILL-->

A server and a worker share a process, a thread each. What Python code and messages cost depends less on what they do than on
how far it is from the core's caches: two that share an interpreter find more of it near, and talk by memory.
"""

import gc
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from itertools import zip_longest

from psboost.wire.endpoint import Neighbours

_TICK_SECONDS = 0.05
_FAREWELL_SECONDS = 2.0
_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}

Members = list[tuple[str, int]]  # role and rank of each that shares a process
Play = Callable[[str, int, Neighbours | None], int]


def pair_up(servers: range, workers: range) -> list[Members]:
    """Who shares a process: the first worker and the first server, and so on."""
    pairs = zip_longest(workers, servers)
    return [[("worker", w)] * (w is not None) + [("server", s)] * (s is not None) for w, s in pairs]


def run_members(processes: list[Members], play: Play, *, watched: bool) -> int:
    """Forks the processes, which run `play(role, rank, neighbours)` for their members' exit codes, and waits for all.

    watched  end them as soon as stdin ends, and write a line to stdout for each that has ended

    Returns 0 if all returned 0, else the first other code. Call it from a process without threads.
    """
    gc.freeze()  # what is loaded stays shared between the processes
    alive: dict[int, Members] = {}
    first_failure = 0
    alive_as_long, kept_open = os.pipe()  # as this process
    try:
        for members in processes:
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # no handler may run in the child before its try
            pid = os.fork()
            if pid == 0:
                _become(members, play, watched, alive_as_long, kept_open)
            alive[pid] = members
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        while alive:
            if watched and select.select([0], [], [], _TICK_SECONDS)[0]:
                break  # nothing is ever written to it: this is its end
            if not watched:
                time.sleep(_TICK_SECONDS)
            for pid, code, members in _ended(alive):
                first_failure = first_failure or (code if code >= 0 else 128 - code)
                if watched:
                    print(pid, code, *(word for member in members for word in member), flush=True)
    finally:
        _end(alive)
        os.close(alive_as_long)
        os.close(kept_open)
    return first_failure


def _end_when_closed(pipe: int) -> None:
    """This process gets SIGTERM when the one that forked it is no more, by whatever signal."""

    def wait() -> None:
        os.read(pipe, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def _become(members: Members, play: Play, watched: bool, alive_as_long: int, kept_open: int) -> None:
    """The rest of a process's life; does not return."""
    code = 1
    try:
        os.close(kept_open)
        if watched:  # the coordinator ends it, and says why
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, 0)
            os.dup2(nowhere, 1)
        else:
            _end_when_closed(alive_as_long)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        code = _play_all(members, play)
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _play_all(members: Members, play: Play) -> int:
    """Plays the first in this thread, which signals come to, and each other one in one of its own; returns the first exit
    code that is not 0. Whoever fails tells the coordinator, and so all the others."""
    first, *others = members
    if not others:
        return play(*first, None)
    neighbours, codes = Neighbours(), []

    def play_other(role: str, rank: int) -> None:
        code = 1
        try:
            code = play(role, rank, neighbours)
        except BaseException:
            traceback.print_exc()
        finally:
            codes.append(code)

    threads = [threading.Thread(target=play_other, args=member, daemon=True) for member in others]
    for thread in threads:
        thread.start()
    code = play(*first, neighbours)
    for thread in threads:
        thread.join(_FAREWELL_SECONDS)  # it is told as the first one was
    if not any(thread.is_alive() for thread in threads):
        neighbours.close()
    return next(filter(None, [code, *codes]), 0)


def _ended(alive: dict[int, Members]) -> list[tuple[int, int, Members]]:
    """(pid, exit code, or minus the signal, members) of those that have ended; takes them out of `alive`."""
    ended = []
    for pid in list(alive):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            ended.append((pid, os.waitstatus_to_exitcode(status), alive.pop(pid)))
    return ended


def _end(alive: dict[int, Members]) -> None:
    """Ends those that are left, with SIGKILL if need be, whatever signals come."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    for number, seconds in ((signal.SIGTERM, _FAREWELL_SECONDS), (signal.SIGKILL, _FAREWELL_SECONDS)):
        for pid in alive:
            os.kill(pid, number)
        deadline = time.monotonic() + seconds
        while alive and time.monotonic() < deadline:
            _ended(alive)
            time.sleep(_TICK_SECONDS / 5)
