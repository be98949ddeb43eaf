"""Block-distributed gradient-boosted decision trees for wide sparse data.

    import psboost
    forest = psboost.train({"max_depth": 6}, X, y, grid=(2, 2))
    forest.predict(X)

The rooms, in the order of their imports, each downward only (pyproject.toml: importlinter):

    cli.py        the psboost command
    training.py   psboost.train; prediction.py: psboost.predict, block-distributed
    pages/        what a run was, as a page of HTML
    progress.py   what a person sees of a run
    config.py     every setting, and the layers they come from
    lab/          a virtual cluster with a clock of its own, and network namespaces
    cluster/      runs roles: local threads, processes, remote hosts; liveness
    roles/        worker, server, coordinator: state machines that know no sockets
    wire/         messages, codec, packing, histogram codecs, endpoint, byte ledger
    boosting/     losses, metrics, fixed point, histogram, split, growth, forest and its JSON
    data/         readers, sketches, bin mapper, block
    kernels/      compiled code: arrays in, arrays out
    settings.py   what a setting is; cores.py: how many cores there are; files.py: how a file is written whole;
                  interrupts.py: how Ctrl-C is put off; errors.py: what can go wrong
"""

from importlib import import_module

_HOMES = {
    "train": "psboost.training",
    "Round": "psboost.training",
    "predict": "psboost.prediction",
    "write_report_html": "psboost.pages.run",
    "Forest": "psboost.boosting.forest",
    "load_model": "psboost.boosting.forest",
    "BinMapper": "psboost.data.bin_mapper",
    "PSBoostError": "psboost.errors",
    "ParameterError": "psboost.errors",
    "DataError": "psboost.errors",
    "ModelError": "psboost.errors",
    "ProtocolError": "psboost.errors",
    "ClusterError": "psboost.errors",
}
__all__ = ["__version__", "lab", *_HOMES]


def __getattr__(name: str):
    """Public names, imported when they are first used, so that `import psboost` is instant."""
    if name == "lab":
        return import_module("psboost.lab")
    if name == "__version__":
        return _version()
    if name not in _HOMES:
        raise AttributeError(f"module 'psboost' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("psboost")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0"


def __dir__() -> list[str]:
    return sorted(__all__)
