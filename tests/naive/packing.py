"""Knows the layouts of psboost/kernels/packing.py and classes.py in the slowest, plainest form; does not know numba.

Streams are lists of Python integers, packed bytes are Python bytes.
"""

import heapq
from collections import Counter


def pack_blocks(values: list[int]) -> bytes:
    packed = b""
    for begin in range(0, len(values), 128):
        block = values[begin : begin + 128]
        widest = max(value.bit_length() for value in block)

        def cost(width, block=block, widest=widest):
            n_patches = sum(value.bit_length() > width for value in block)
            return width * len(block) + n_patches * (7 + widest - width) + (16 if n_patches else 0)

        width = min(range(widest, -1, -1), key=cost)
        patches = [(place, value >> width) for place, value in enumerate(block) if value >> width]
        items = [(width | (128 if patches else 0), 8)]
        if patches:
            items += [(len(patches), 8), (widest - width, 8)]
        items += [(value & (2**width - 1), width) for value in block]
        for place, above in patches:
            items += [(place, 7), (above, widest - width)]
        packed += bits_to_bytes(items)
    return packed


def unpack_blocks(packed: bytes, n_values: int) -> list[int]:
    values = []
    position = 0
    stream = int.from_bytes(packed, "little")

    def take(n_bits):
        nonlocal position
        position += n_bits
        return stream >> (position - n_bits) & (2**n_bits - 1)

    for begin in range(0, n_values, 128):
        header = take(8)
        width = header % 128
        n_patches, patch_width = (take(8), take(8)) if header >= 128 else (0, 0)
        block = [take(width) for _ in range(min(128, n_values - begin))]
        for _ in range(n_patches):
            place = take(7)
            block[place] |= take(patch_width) << width
        values += block
        position = (position + 7) // 8 * 8
    return values


def pack_by_class(values: list[int]) -> bytes:
    counts = Counter(value.bit_length() for value in values)
    lengths = word_lengths(counts)
    words = code_words(lengths)
    n_classes = max(counts, default=-1) + 1
    packed = bits_to_bytes([(n_classes, 8)] + [(lengths.get(k, 0), 4) for k in range(n_classes)])
    n_each = -(-len(values) // 4) if len(values) >= 2048 else max(1, len(values))
    parts = []
    for begin in range(0, len(values), n_each):
        items = []
        for value in values[begin : begin + n_each]:
            k = value.bit_length()
            items += [(int(bit), 1) for bit in words[k]] + [(value - 2 ** (k - 1), k - 1)] * (k > 0)
        parts.append(bits_to_bytes(items))
    return packed + b"".join(len(part).to_bytes(4, "little") for part in parts[:-1]) + b"".join(parts)


def word_lengths(counts: dict[int, int], longest: int = 10) -> dict[int, int]:
    """Huffman's code. While a word is too long, all counts are halved, rounded up."""
    heap = [(count, k, [k]) for k, count in counts.items()]
    heapq.heapify(heap)
    lengths = dict.fromkeys(counts, 0 if len(counts) > 1 else 1)
    node = 65
    while len(heap) > 1:
        first, second = heapq.heappop(heap), heapq.heappop(heap)
        for k in first[2] + second[2]:
            lengths[k] += 1
        heapq.heappush(heap, (first[0] + second[0], node, first[2] + second[2]))
        node += 1
    if max(lengths.values(), default=0) <= longest:
        return lengths
    return word_lengths({k: -(-count // 2) for k, count in counts.items()}, longest)


def code_words(lengths: dict[int, int]) -> dict[int, str]:
    words, following = {}, "0"
    for length, k in sorted((length, k) for k, length in lengths.items()):
        words[k] = following.ljust(length, "0")
        following = f"{int(words[k], 2) + 1:0{length}b}"
    return words


def rank_pairs(numbers: list[int]) -> list[int]:
    """Each entry's mark, from the number of its pair: the rank of the pair by its entries, 0 if it has one."""
    counts = Counter(numbers)
    ranked = sorted((number for number in counts if counts[number] > 1), key=lambda number: (-counts[number], number))
    return [ranked.index(number) + 1 if number in ranked else 0 for number in numbers]


def bits_to_bytes(items: list[tuple[int, int]]) -> bytes:
    stream = n_bits = 0
    for value, width in items:
        stream |= value << n_bits
        n_bits += width
    return stream.to_bytes((n_bits + 7) // 8, "little")


def take_gaps(nodes: list[list[int]]) -> list[int]:
    gaps = []
    for ids in nodes:
        gaps += [here - before - 1 for before, here in zip([-1, *ids], ids, strict=False)]
    return gaps


def fold_signs(values: list[int], shift: int) -> list[int]:
    return [2 * (value >> shift) if value >= 0 else -2 * (value >> shift) - 1 for value in values]


def lower_counts(values: list[int], shift: int) -> list[int]:
    return [(value >> shift) - 1 for value in values]


def split_features(nodes: list[list[int]], bin_offsets: list[int]) -> tuple[list, list, list, list]:
    """node_rows, features, row_pointers, columns."""
    node_rows, features, row_pointers, columns = [0], [], [0], []
    for bins in nodes:
        for feature in range(len(bin_offsets) - 1):
            begin, end = bin_offsets[feature], bin_offsets[feature + 1]
            here = [bin_id - begin for bin_id in bins if begin <= bin_id < end]
            if here:
                features.append(feature)
                columns += here
                row_pointers.append(len(columns))
        node_rows.append(len(features))
    return node_rows, features, row_pointers, columns


def pack_bitvector(bits: list[int]) -> tuple[str, bytes]:
    raw = bits_to_bytes([(bit, 1) for bit in bits + [1] * (-len(bits) % 8)])
    zeros = [k for k, bit in enumerate(bits) if not bit]
    changes = [k for k, (before, here) in enumerate(zip([1, *bits], bits, strict=False)) if before != here]
    best = "raw", raw
    for form, positions in (("rows", zeros), ("runs", changes)):
        packed = pack_blocks([len(positions)]) + pack_blocks(take_gaps([positions]))
        tried = 3 * len(positions) <= len(bits) and (form == "rows" or 2 * len(changes) < 3 * len(zeros))
        if tried and len(packed) < len(best[1]):
            best = form, packed
    return best
