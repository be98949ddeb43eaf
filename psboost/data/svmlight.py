"""Knows svmlight files, plain or packed, and what to say of a bad line; does not know what rows are for.

    label [qid:N] index:value index:value ...  [# comment]

A byte-order mark before the first line, which some editors write, is as good as blanks.

Spans are ranges of bytes, of the unpacked text if the file is packed; a span owns the lines that start in it.
The text is parsed in pieces of CHUNK_BYTES, so memory follows what is kept of it.
"""

import bz2
import gzip
import os
import re
import zlib
from codecs import BOM_UTF8
from contextlib import contextmanager
from functools import cached_property

import numpy as np

from psboost.data.rows import Cells
from psboost.data.source import Source
from psboost.errors import DataError
from psboost.kernels import svmlight as kernels
from psboost.kernels.prepare import prepare
from psboost.settings import MAX_FEATURES

CHUNK_BYTES = 8 << 20
TAIL_BYTES = 1 << 14  # what is read at a time of a span's last line
SHOWN = 40  # characters of a bad token that a message shows
_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"  # their first bytes

_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_TOKEN = re.compile(rb"[^ \t\r\n\x0b\x0c#]*")

_COMPLAINTS = {
    kernels.NAN_LABEL: "the label {token} is not a number: give every row a label, or leave the row out",
    kernels.INFINITE_LABEL: "the label {token} is infinite: labels must be finite",
    kernels.BAD_PAIR: "{token} is not index:value: write for example 17:0.5",
    kernels.BAD_VALUE: "{token} is not a number: write values like 1, -0.5, 3e-2 or nan",
    kernels.INFINITE_VALUE: "the value {token} is infinite or too large: values must be below 3.4028235e38; write nan if "
    "missing",
    kernels.HUGE_INDEX: "the index of {token} is beyond 2^63 - 1: hash indices to 63 bits",
    kernels.LOW_INDEX: "index {index} is below index_base={base}: files that count from 0 need it to be 0 (--index-base 0)",
    kernels.WIDE_INDEX: "index {index} is beyond the declared n_features={width}: declare more",
}


class SvmlightSource(Source):
    """An svmlight file; see open_source. Every line has a label."""

    def __init__(self, name: str, index_base: int, n_features: int | None, zero_as_missing):
        self.name = name
        self.zero_as_missing = zero_as_missing
        self._index_base = index_base
        self._n_features = n_features
        self._packed = {".gz": gzip.open, ".bz2": bz2.open}.get(os.path.splitext(name)[1])
        self.is_seekable = not self._packed
        with self._open():
            pass  # so that an unreadable file is an error now

    @cached_property
    def size(self):
        """Bytes of text. A packed file is unpacked once for it."""
        if not self._packed:
            return os.path.getsize(self.name)
        with self._open() as (text, _):
            n = 0
            while block := text.read(1 << 20):
                n += len(block)
            return n

    @contextmanager
    def _open(self):
        """(text, raw): the file's text as a stream, and the file itself; failures become a DataError."""
        try:
            with open(self.name, "rb", buffering=0) as raw:
                if not self._packed:
                    yield raw, raw
                    return
                with self._packed(raw) as text:
                    yield text, raw
        except (OSError, EOFError, zlib.error) as error:
            what = "cannot be unpacked" if self._packed else "cannot be read"
            raise DataError(f"{self.name}: {what}: {error}; check the file") from error

    def _in_parts(self, *args):
        prepare("parse")  # here, for of several threads all but one would say that they wait
        return super()._in_parts(*args)

    def _cells(self, span):
        prepare("parse")
        buffers = None
        n_pieces = 0
        for at, text, bytes_read in self._texts(span):
            n_pieces += 1
            if buffers is None or len(buffers[0]) < len(text) // 2 + 2:
                buffers = _buffers(len(text))
            yield self._parse(at, text, bytes_read, buffers)
        if n_pieces == 0:
            columns, values, labels = (np.empty(0, dtype) for dtype in (np.int64, np.float32, np.float64))
            yield Cells(np.zeros(1, np.int64), columns, values, labels, None, self._n_features or 0, 0)

    def _parse(self, at, text, bytes_read, buffers):
        """The lines of `text`, which is at byte `at` of the file; columns and values lie in `buffers`."""
        last_column = (MAX_FEATURES if self._n_features is None else self._n_features) - 1
        indptr, features, values, labels, long_numbers = buffers
        n_rows, n_values, max_column, n_long, code, wrong, previous = kernels.parse(
            text, self._index_base, last_column, indptr, features, values, labels, long_numbers
        )
        for slot, start in long_numbers[: 2 * n_long].reshape(-1, 2).tolist():
            number = float(_NUMBER.match(text, start).group())
            if slot < 0:
                labels[-1 - slot] = number
                if np.isinf(number):
                    raise self._complaint(kernels.INFINITE_LABEL, at, text, start, -1)
            else:
                with np.errstate(over="ignore", under="ignore"):
                    values[slot] = np.float32(number)
                if abs(values[slot]) >= kernels.FLOAT32_MAX:
                    raise self._complaint(kernels.INFINITE_VALUE, at, text, start, -1)
        if code != kernels.FINE:
            raise self._complaint(code, at, text, wrong, previous)
        return Cells(
            indptr[: n_rows + 1].copy(),
            features[:n_values],
            values[:n_values],
            labels[:n_rows].copy(),
            None,
            self._n_features or max_column + 1,
            bytes_read,
        )

    def _texts(self, span):
        """(at, text, bytes_read) of pieces of whole lines; each ends with a newline.

        A span's lines begin at border(begin) and end before border(end), where border(b) is the first byte at
        or after b that follows a newline: so neighbours agree without looking at each other's bytes.
        """
        begin, end = span
        if begin >= end:
            return
        with self._open() as (stream, raw):
            at = max(begin - 1, 0)
            stream.seek(at)
            told = 0 if self._packed else raw.tell()
            buffer = bytearray(min(CHUNK_BYTES, end - at) + TAIL_BYTES + 1)
            filled = 0
            inside = begin == 0  # whether buffer[0] is at the start of a line that is ours
            while True:
                if filled + 1 == len(buffer):
                    buffer = buffer + bytearray(len(buffer))
                want = min(len(buffer) - 1 - filled, max(end - at - filled, TAIL_BYTES))
                got = _read(stream, memoryview(buffer)[filled : filled + want])
                filled += got
                if at == 0 and buffer.startswith(BOM_UTF8):
                    buffer[: len(BOM_UTF8)] = b" " * len(BOM_UTF8)
                at_end_of_file = got < want
                if not inside:
                    newline = buffer.find(b"\n", 0, filled)
                    if newline < 0 or at + newline >= end - 1:
                        if at_end_of_file or at + filled >= end:
                            return  # the line that holds our first byte holds our last one too
                        at += filled
                        filled = 0
                        continue
                    at += newline + 1
                    filled -= newline + 1
                    buffer[:filled] = buffer[newline + 1 : newline + 1 + filled]
                    inside = True
                stop = 0
                last = at + filled >= end
                if last:
                    stop = buffer.find(b"\n", max(end - 1 - at, 0), filled) + 1
                elif filled:
                    stop = buffer.rfind(b"\n", 0, filled) + 1
                if at_end_of_file and (stop == 0 or not last):
                    last = True
                    if filled and buffer[filled - 1] != kernels.NEWLINE:
                        buffer[filled] = kernels.NEWLINE
                        filled += 1
                    stop = filled
                if stop:
                    now = raw.tell()
                    yield at, np.frombuffer(buffer, np.uint8, stop), now - told
                    told = now
                    at += stop
                    filled -= stop
                    buffer[:filled] = buffer[stop : stop + filled]
                if last and (stop or at_end_of_file):
                    return

    def place(self, span, row):
        for at, text, _ in self._texts(span):
            for number, line in enumerate(text.tobytes().split(b"\n"), self._line_at(at)):
                row -= bool(line.partition(b"#")[0].strip())
                if row < 0:
                    return f"{self.name}:{number}"
        return self.name

    def _line_at(self, at):
        """The number of the line, from 1, that begins at byte `at`; reads the file up to there."""
        line = 1
        with self._open() as (stream, _):
            while at > 0 and (block := stream.read(min(at, 1 << 20))):
                line += block.count(b"\n")
                at -= len(block)
        return line

    def _begins_with(self, first: bytes) -> bool:
        with open(self.name, "rb") as file:
            return file.read(len(first)) == first

    def _complaint(self, code, at, text, wrong, previous):
        """The DataError for text[wrong]; counts the lines before it only now."""
        text = text.tobytes()
        line = self._line_at(at) + text.count(b"\n", 0, wrong)
        line_begin = text.rfind(b"\n", 0, wrong) + 1
        token = _TOKEN.match(text, wrong).group()
        index = token.partition(b":")[0].decode("utf-8", "backslashreplace")
        shown = token[: SHOWN + 1].decode("utf-8", "backslashreplace")
        shown = repr(shown if len(token) <= SHOWN else shown[:SHOWN] + "...")
        whole_line = text[line_begin : text.index(b"\n", wrong)].partition(b"#")[0]
        if not self._packed and self._begins_with(_GZIP):
            complaint = "this is a gzip file: give it a name that ends with .gz"
        elif not self._packed and self._begins_with(_ZIP):
            complaint = "this is a zip archive, as .npz files are: give it a name that ends with .npz, if it is one"
        elif code in (kernels.BAD_LABEL, kernels.BAD_PAIR) and b"|" in whole_line:
            complaint = "this looks like Vowpal Wabbit's format (it has a |): convert it to svmlight"
        elif code == kernels.BAD_LABEL and b"," in token:
            complaint = f"{shown} looks like CSV or several labels: write one label, then INDEX:VALUE pairs"
        elif code == kernels.BAD_LABEL and b":" in token:
            complaint = f"the line starts with {shown}, not with a label: put one first, 0 if unknown"
        elif code == kernels.BAD_LABEL:
            complaint = f"the label {shown} is not a number: write 1, 0 or -1 or the like"
        elif code == kernels.UNSORTED_INDEX and int(index) == previous:
            complaint = f"index {index} is repeated: an index may stand once in a line (add its values up)"
        elif code == kernels.WIDE_INDEX and self._n_features is None:
            complaint = f"with index_base=0, index {index} is beyond 2^63 - 2: hash indices to fewer bits"
        elif code == kernels.UNSORTED_INDEX:
            complaint = f"index {index} comes after {previous}: indices must ascend within a line (sort them)"
        else:
            complaint = _COMPLAINTS[code].format(
                token=shown, index=index, base=self._index_base, width=self._n_features
            )
        return DataError(f"{self.name}:{line}:{wrong - line_begin + 1}: {complaint}")


def _read(stream, view):
    """Bytes read into `view`; fewer than it holds only at the end of the file."""
    n = 0
    while n < len(view) and (got := stream.readinto(view[n:])):
        n += got
    return n


def _buffers(n):
    """(indptr, features, values, labels, long_numbers) for n bytes of text; memory is taken when touched."""
    return (
        np.empty(n // 2 + 2, np.int64),
        np.empty(n // 4 + 1, np.int64),
        np.empty(n // 4 + 1, np.float32),
        np.empty(n // 2 + 1, np.float64),
        np.empty(2 * (n // 4 + 1), np.int64),
    )
