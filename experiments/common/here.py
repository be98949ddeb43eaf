"""Knows how a run says that it cannot be made on this machine; does not know why."""


class NotHere(RuntimeError):
    """A run that needs what is not there: a package, the right to make network namespaces, memory."""
