"""Knows what can go wrong and how to say so; does not know what anybody does about it.

Every message says what was wrong, where (file, line, row, peer) and what to do.
"""


class PSBoostError(Exception):
    """Base of every error that psboost raises on purpose."""


class ParameterError(PSBoostError, ValueError):
    """A parameter, flag or configuration key that is unknown or out of range."""


class DataError(PSBoostError, ValueError):
    """Input data that cannot be used; names the file, line or row."""


class ModelError(PSBoostError, ValueError):
    """A model file that cannot be used, or a model that does not fit the data."""


class ProtocolError(PSBoostError):
    """A message that no correct peer sends; names the sender. `run` is the one that it claims to belong to, if any."""

    run: int | None = None


class ClusterError(PSBoostError):
    """A role that died, or could not be started or reached; names the first cause."""
