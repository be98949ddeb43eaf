"""A role waits for messages in any order: early, twice, late, from strangers; and ends when it is told to."""

import gc
import itertools
import weakref

import pytest

from psboost.errors import ProtocolError
from psboost.roles.role import Role, server_name, worker_name
from psboost.wire.kinds import Message
from psboost.wire.messages import StopTraining


class Ask(Message):
    """first -> second"""

    value: int = 0


class Tell(Message):
    """second -> first"""

    value: int = 0


class Adder(Role):
    """Sums what its friends ask, step by step."""

    def __init__(self, friends=("a", "b"), n_trees=2, n_levels=2):
        super().__init__("adder")
        self._friends, self._n_trees, self._n_levels = friends, n_trees, n_levels

    def run(self):
        self.send("a", Tell(value=-1))
        total = 0
        for tree in range(self._n_trees):
            for level in range(self._n_levels):
                asked = yield from self.gather(Ask, self._friends, tree=tree, level=level)
                total += sum(message.value for message in asked)
                self.send("a", Tell(tree=tree, level=level, value=total))
        return total


def ask(tree, level, value):
    return Ask(tree=tree, level=level, value=value)


def started(**how):
    role = Adder(**how)
    assert role.start() == [("a", Tell(value=-1))]
    return role


STEPS = [(0, 0), (0, 1), (1, 0), (1, 1)]
MESSAGES = [
    (name, ask(*step, 10**i * k)) for i, step in enumerate(STEPS) for k, name in enumerate("ab", start=1)
]


def test_names():
    assert (worker_name(1, 2), server_name(3)) == ("worker 1,2", "server 3")


def test_in_order():
    role = started()
    for i, step in enumerate(STEPS):
        assert role.handle(*MESSAGES[2 * i]) == []
        told = Tell(tree=step[0], level=step[1], value=int("3" * (i + 1)))
        assert role.handle(*MESSAGES[2 * i + 1]) == [("a", told)]
    assert (role.done, role.result, role.waits_for) == (True, 3333, "nothing")


@pytest.mark.parametrize("last", range(8))
def test_what_comes_early_waits_and_several_steps_are_taken_in_one_handle(last):
    role = started()
    sent = [role.handle(*message) for i, message in enumerate(MESSAGES) if i != last]
    assert sum(map(len, sent)) == last // 2 and not role.done
    rest = role.handle(*MESSAGES[last])
    assert [message.value for _, message in rest] == [3, 33, 333, 3333][last // 2 :]
    assert role.result == 3333


def test_any_order_of_two_steps():
    for order in itertools.permutations(MESSAGES[:4]):
        role = started(n_trees=1)
        for message in order:
            role.handle(*message)
        assert role.result == 33


def test_the_senders_order_is_that_of_the_question():
    class Listener(Role):
        def run(self):
            asked = yield from self.gather(Ask, ["c", "a", "b"])
            return [message.value for message in asked]

    role = Listener("listener")
    assert role.start() == []
    for name, value in (("a", 1), ("b", 2), ("c", 3)):
        role.handle(name, Ask(value=value))
    assert role.result == [3, 1, 2]


def test_what_comes_twice_is_dropped():
    role = started()
    sent = [role.handle(*message) for message in MESSAGES for _ in range(3)]
    assert [message.value for outbox in sent for _, message in outbox] == [3, 33, 333, 3333]
    early = started()
    for _ in range(2):  # twice, and too early
        assert early.handle("b", ask(0, 1, 20)) == early.handle("a", ask(0, 1, 10)) == []
    early.handle("a", ask(0, 0, 1))
    assert [m.value for _, m in early.handle("b", ask(0, 0, 2))] == [3, 33]


def test_what_comes_late_is_dropped_whatever_it_says():
    role = started()
    for message in MESSAGES[:4]:
        role.handle(*message)
    for late in (ask(0, 0, 99), ask(0, 1, 99), ask(-1, -1, 99)):
        assert role.handle("a", late) == role.handle("stranger", late) == []
    assert role.waits_for == "Ask (tree 1, level 0) from a, b"
    role.handle("b", ask(1, 0, 5))
    assert role.waits_for == "Ask (tree 1, level 0) from a"


def test_a_stranger_is_named():
    role = started()
    with pytest.raises(ProtocolError, match=r"adder: Ask \(tree 0, level 0\) from mallory, not expected"):
        role.handle("mallory", ask(0, 0, 1))
    role = started()
    assert role.handle("mallory", ask(0, 1, 1)) == []  # told when the step is due
    role.handle("a", ask(0, 0, 1))
    with pytest.raises(ProtocolError, match="mallory"):
        role.handle("b", ask(0, 0, 2))


def test_nobody_to_wait_for():
    role = Adder(friends=())
    assert [message.value for _, message in role.start()] == [-1, 0, 0, 0, 0]
    assert role.done and role.result == 0


def test_a_role_that_is_done_ignores_everything():
    role = started(n_trees=1, n_levels=1)
    role.handle(*MESSAGES[0])
    assert role.handle(*MESSAGES[1]) and role.done
    for message in (*MESSAGES, ("stranger", ask(5, 5, 5)), ("a", Tell())):
        assert role.handle(*message) == []
    assert role.result == 3


@pytest.mark.parametrize("n_before", [0, 1, 3])
def test_stop_training_ends_a_role_at_once(n_before):
    role = started()
    for message in MESSAGES[:n_before]:
        role.handle(*message)
    assert role.handle("coordinator", StopTraining()) == []
    assert role.done and role.result is None
    for message in MESSAGES:
        assert role.handle(*message) == []
    assert role.handle("coordinator", StopTraining()) == []


def test_training_is_stopped_by_the_coordinator_alone():
    role = started()
    with pytest.raises(ProtocolError, match="StopTraining from worker-0-0, not expected"):
        role.handle("worker-0-0", StopTraining())
    assert not role.done


def test_stages_are_told_to_the_driver():
    labels = []

    class Stage:
        def __init__(self, label, tree, share):
            labels.append((label, tree, share))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            labels.append("end")

    class Worker(Role):
        def run(self):
            with self.stage("read"):
                pass
            self.tree = 3
            with self.stage("build", share=0.5):
                pass
            return
            yield

    role = Worker("worker", Stage)
    role.start()
    assert labels == [("read", -1, 1.0), "end", ("build", 3, 0.5), "end"] and role.done


def test_an_error_in_a_role_comes_out():
    class Broken(Role):
        def run(self):
            yield from self.gather(Ask, ["a"])
            raise ValueError("broken")

    role = Broken("broken")
    role.start()
    with pytest.raises(ValueError, match="broken"):
        role.handle("a", Ask())


class Maker(Adder):
    """Makes a number of each message."""

    def run(self):
        total = 0
        for tree, level in STEPS:
            total += sum((yield from self.gather(Ask, self._friends, tree=tree, level=level, make=lambda _, it: it.value)))
        return total


def test_messages_are_not_kept_once_they_were_heard():
    for kind in (Adder, Maker):
        role, heard = kind(), []
        role.start()
        for i, step in enumerate(STEPS):
            for k, name in enumerate("ab", start=1):
                message = ask(*step, 10**i * k)
                heard.append(weakref.ref(message))
                role.handle(name, message)
            del message
            gc.collect()
            assert [message() for message in heard[:-2]] == [None] * (len(heard) - 2)
        assert role.result == 3333
