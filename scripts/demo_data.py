"""Knows how to make svmlight files of Python sources, or of a user's file; does not know what trains on them.

`demo_data.py build OUT` asks: which library does a chunk of code come from? It walks the sources of psboost's
own dependencies, so the data is real, high-dimensional and on every machine. A row is a dozen lines of
code, its features are hashed token 1-, 2- and 3-grams, its label is 1 for scipy and 0 for the others.
Files, not rows, are dealt to train and test. What would give the answer away is left out: imports, and every
token that contains a library's name.

`demo_data.py split FILE OUT` deals the lines of a svmlight file to train and test, about 4 to 1, by a hash of
the line number.

Both write OUT/train.svm, OUT/test.svm and OUT/data.json: the same bytes from the same input.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import hashlib
import json
import os
import re
import sys
import sysconfig
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

LIBRARIES = ("numpy", "scipy", "numba", "llvmlite", "zmq", "msgpack", "datasketches", "tqdm")
POSITIVE = "scipy"
FEATURE_BITS = 22
LINES_PER_ROW = 12
MIN_LINES = 6  # a shorter rest of a file makes no row
TEST_PERCENT = 20

# A token with one of these in it names its library.
TELLTALE = re.compile("|".join((*LIBRARIES, "pyzmq", "zeromq", "llvm")), re.IGNORECASE)
TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|[-+*/%@&|^<>=!]=|\*\*|//|->|<<|>>|[^\w\s]")
IMPORT = re.compile(r"\s*(import\s|from\s+[\w.]+\s+import\b|from\s+\.+\s*import\b)")


def build(site_packages: list[Path], out: Path) -> dict:
    """Write the two parts and data.json under `out`; returns what data.json holds."""
    counts = {part: {"files": 0, "rows": 0, "positives": 0, "stored_values": 0} for part in ("train", "test")}
    used = np.zeros(1 << FEATURE_BITS, dtype=bool)
    hashes: dict[str, int] = {}
    with ExitStack() as stack:
        sinks = {part: stack.enter_context(_replacing(out / f"{part}.svm")) for part in counts}
        for library, path, text in python_files(site_packages):
            indptr, features, values = rows_of(text, hashes)
            if len(indptr) == 1:
                continue
            part = "test" if _percent(path) < TEST_PERCENT else "train"
            label = int(library == POSITIVE)
            _write_rows(sinks[part], label, indptr, features, values)
            used[features] = True
            n_rows = len(indptr) - 1
            for name, more in zip(counts[part], (1, n_rows, label * n_rows, len(features)), strict=True):
                counts[part][name] += more
        if not all(part["rows"] for part in counts.values()):
            raise SystemExit(f"demo_data: no Python sources under {', '.join(map(str, site_packages))}")
    content = {
        "question": f"does a chunk of code come from {POSITIVE}?",
        "features": 1 << FEATURE_BITS,
        "features_used": int(used.sum()),
        **counts,
    }
    (out / "data.json").write_text(json.dumps(content, indent=2) + "\n")
    return content


def python_files(site_packages: list[Path]) -> Iterator[tuple[str, str, str]]:
    """(library, path inside site-packages, text) of every source file; each text once, in a fixed order."""
    seen = set()
    for library in LIBRARIES:
        for root in site_packages:
            for path in sorted((root / library).rglob("*.py")):
                content = path.read_bytes()
                digest = hashlib.blake2b(content, digest_size=16).digest()
                if digest not in seen:
                    seen.add(digest)
                    yield library, path.relative_to(root).as_posix(), content.decode("utf-8", "replace")


def rows_of(text: str, hashes: dict[str, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """CSR rows of one file: indptr, ascending 0-based features, counts of n-grams. `hashes` is a cache."""
    lines = code_lines(text)
    n_rows, rest = divmod(len(lines), LINES_PER_ROW)
    n_rows += rest >= MIN_LINES
    if not n_rows:
        return np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
    tokens, ends = [], []
    for row in range(n_rows):
        for line in lines[row * LINES_PER_ROW : (row + 1) * LINES_PER_ROW]:
            for token in TOKEN.findall(line):
                if token not in hashes:
                    # A number is only a number: tables of constants would be all noise. 0 marks a telltale.
                    name = "0" if token[0].isdigit() else token
                    hashes[token] = 0 if TELLTALE.search(token) else zlib.crc32(name.encode()) + 1
                if hashes[token]:
                    tokens.append(hashes[token])
        ends.append(len(tokens))
    token = np.array(tokens, dtype=np.uint64)
    row = np.repeat(np.arange(n_rows, dtype=np.uint64), np.diff(ends, prepend=0))
    grams, rows = [], []
    running = np.zeros(len(token), dtype=np.uint64)
    for n in range(1, 4):  # running[i] hashes tokens i .. i+n-1, which must lie in one row
        running = _mix(running[: len(token) - n + 1] + token[n - 1 :])
        whole = row[: len(running)] == row[n - 1 :]
        grams.append(running[whole] >> np.uint64(64 - FEATURE_BITS))
        rows.append(row[: len(running)][whole])
    key = (np.concatenate(rows) << np.uint64(FEATURE_BITS)) | np.concatenate(grams)
    key, counts = np.unique(key, return_counts=True)
    indptr = np.searchsorted(key, np.arange(n_rows + 1, dtype=np.uint64) << np.uint64(FEATURE_BITS))
    return indptr, (key & np.uint64((1 << FEATURE_BITS) - 1)).astype(np.int64), counts


def code_lines(text: str) -> list[str]:
    """The lines that hold code or prose: no blank ones, no imports (in parentheses or continued neither)."""
    lines, open_import = [], ""
    for line in text.splitlines():
        if open_import:
            closed = ")" in line if open_import == "(" else not line.rstrip().endswith("\\")
            open_import = "" if closed else open_import
        elif IMPORT.match(line):
            code = line.split("#")[0].rstrip()
            open_import = "(" if "(" in code and ")" not in code else "\\" if code.endswith("\\") else ""
        elif line.strip():
            lines.append(line)
    return lines


def split(source: Path, out: Path) -> dict:
    """Deal the lines of a svmlight file to train and test; returns the counts that data.json holds."""
    opener = {".gz": gzip.open, ".bz2": bz2.open}.get(source.suffix, open)
    counts = {"train": {"rows": 0}, "test": {"rows": 0}}
    try:
        with ExitStack() as stack:
            file = stack.enter_context(opener(source, "rb"))
            sinks = {part: stack.enter_context(_replacing(out / f"{part}.svm")) for part in counts}
            for number, line in enumerate(file, 1):
                if not line.split(b"#", 1)[0].strip():
                    continue  # a comment is no row
                part = "test" if _percent(str(number)) < TEST_PERCENT else "train"
                sinks[part].write(line if line.endswith(b"\n") else line + b"\n")
                counts[part]["rows"] += 1
            if not all(part["rows"] for part in counts.values()):
                raise SystemExit(f"demo_data: {source} has too few rows to split into train and test")
    except (OSError, EOFError) as error:
        raise SystemExit(f"demo_data: cannot split {source}: {error}") from error
    (out / "data.json").write_text(json.dumps({"source": str(source), **counts}, indent=2) + "\n")
    return counts


class _replacing:
    """A binary file that takes its name only once it is whole."""

    def __init__(self, path: Path) -> None:
        self.path, self.partial = path, path.with_name(path.name + ".partial")

    def __enter__(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = open(self.partial, "wb", buffering=1 << 20)  # noqa: SIM115 - closed in __exit__
        return self.file

    def __exit__(self, kind, error, trace) -> None:
        self.file.close()
        if kind is None:
            os.replace(self.partial, self.path)
        else:
            self.partial.unlink()


def _write_rows(sink, label: int, indptr: np.ndarray, features: np.ndarray, counts: np.ndarray) -> None:
    """Rows as svmlight text, indices 1-based, values 1 + log(count)."""
    distinct, which = np.unique(counts, return_inverse=True)
    tails = np.array([f":{1 + np.log(count):.4g}" for count in distinct], dtype=object)[which].tolist()
    cells = [f"{feature}{tail}" for feature, tail in zip((features + 1).tolist(), tails, strict=True)]
    bounds = indptr.tolist()
    for begin, end in zip(bounds, bounds[1:], strict=False):
        sink.write(f"{label} {' '.join(cells[begin:end])}\n".encode())


def _mix(x: np.ndarray) -> np.ndarray:
    """A bijection of uint64 whose high bits depend on every input bit (splitmix64's finaliser)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _percent(key: str) -> int:
    """A number from 0 to 99 that depends on `key` alone."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little") % 100


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="demo_data.py", description="Make the demo's train and test files.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("build", help="from the Python sources of psboost's dependencies")
    command.add_argument("out", type=Path, help="folder to write to")
    command.add_argument("--site-packages", type=Path, action="append", help="where to look for the sources")
    command = commands.add_parser("split", help="from a svmlight file (.gz and .bz2 too)")
    command.add_argument("file", type=Path)
    command.add_argument("out", type=Path, help="folder to write to")
    args = parser.parse_args(argv)
    start = time.perf_counter()
    if args.command == "build":
        folders = args.site_packages or [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")]
        content = build(list(dict.fromkeys(folders)), args.out)
        rows = [f"{content[part]['rows']:,} {part} rows" for part in ("train", "test")]
        what = f"{content['features_used']:,} of {content['features']:,} features used, {content['question']}"
    else:
        content = split(args.file, args.out)
        rows = [f"{content[part]['rows']:,} {part} rows" for part in ("train", "test")]
        what = f"from {args.file}"
    seconds = time.perf_counter() - start
    print(f"demo data: {rows[0]}, {rows[1]}, {what} ({seconds:.1f} s, in {args.out})", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
