"""Knows how a thread is called, which stays awake for a while, without the interpreter's lock; does not know what it does.

    posts   int64, POST_WORDS for each thread, a cache line, of which the first says where it is: asleep; awake, at its post;
            called; or dismissed, and is to sleep
"""

from psboost.kernels.arrivals import LOOKS_AT_ONCE, clock, let_others_go_on
from psboost.kernels.atomics import look, swap
from psboost.kernels.compile import OUT, inline, int64, kernel, void

ASLEEP, AWAKE, CALLED, DISMISSED = range(4)
POST_WORDS = 8
_STAY = 2_000_000  # nanoseconds: between two trees there is less


@kernel(int64(OUT[int64], int64))
def call(posts, k):
    """Calls thread k; 0 if it sleeps and is to be woken up."""
    return int64(swap(posts[k * POST_WORDS :], CALLED) == AWAKE)


@kernel(void(OUT[int64], int64))
def dismiss(posts, k):
    """Tells thread k not to stay awake."""
    swap(posts[k * POST_WORDS :], DISMISSED)


@inline
def come(posts, k):
    """Thread k has heard that it was called, and will hear the next call."""
    swap(posts[k * POST_WORDS :], AWAKE)


@inline
def stay(posts, k):
    """Returns once thread k, which has come, is called; False if it is to sleep, as nobody has called for a while."""
    post, end = posts[k * POST_WORDS :], clock() + _STAY
    while clock() < end:
        for _ in range(LOOKS_AT_ONCE):
            if look(post) != AWAKE:
                return look(post) == CALLED
        let_others_go_on()
    return swap(post, ASLEEP) == CALLED
