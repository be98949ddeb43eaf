"""Knows the rules for zeros, and what each says of a cell; does not know where cells come from.

    zero_as_missing   not stored   stored 0   NaN
    True              missing      missing    missing
    False             0            0          missing
    "unstored"        missing      0          missing

None stands for a rule that is not decided yet: the data are read as by "unstored", which tells all cells apart that any
rule for sparse data does.
"""

from psboost.errors import ParameterError

UNSTORED = "unstored"
RULES = {"false": False, "true": True, UNSTORED: UNSTORED}  # by name, for model files and messages
NUMBERED = list(RULES.values())  # for bin mapper files

Rule = bool | str


def checked(zero_as_missing) -> Rule | None:
    """The rule itself, of numpy's booleans Python's, or None; ParameterError for anything else."""
    if zero_as_missing is None:
        return None
    if zero_as_missing not in NUMBERED:
        raise ParameterError(f'zero_as_missing must be True, False or "{UNSTORED}", not {zero_as_missing!r}')
    return NUMBERED[NUMBERED.index(zero_as_missing)]


def name_of(rule: Rule) -> str:
    return next(name for name, known in RULES.items() if known == rule)


def unstored_is_missing(rule: Rule) -> bool:
    """Whether a cell that is not stored is missing; else it is 0."""
    return rule is not False


def keeps_zeros(rule: Rule | None) -> bool:
    """Whether a stored 0 differs from a cell that is not stored."""
    return rule in (None, UNSTORED)


def keeps_nan(rule: Rule | None) -> bool:
    """Whether NaN differs from a cell that is not stored."""
    return rule is False


def default_rule(stores_zeros: bool) -> Rule:
    """The rule for sparse data if none is given: who stores zeros beside unstored cells tells them apart."""
    return UNSTORED if stores_zeros else True
