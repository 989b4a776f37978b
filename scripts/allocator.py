"""What PyTorch's caching allocator keeps beyond the peak where lengths vary: python scripts/allocator.py

The tensors of training steps of a Llama-like layer stack are laid out by the allocator's rules
(c10/cuda/CUDACachingAllocator.cpp): sizes in steps of 512 bytes, the smallest free block that is large enough, split
where more than 1 MiB is left, else a segment of 20 MiB, or from 10 MiB on of its own size in steps of 2 MiB. Printed is
what is reserved beyond the peak, in batches of mean length: the constants of xe_sizer/training/memory.py.
"""

from __future__ import annotations

import bisect
import math
import random
from dataclasses import dataclass, field
from itertools import product

MIB = 2**20
SHAPES = ((4096, 32, 11008, 32_000), (4096, 32, 14336, 128_256))  # hidden, layers, ffn, vocabulary
LENGTHS = ((400, 0.05), (400, 0.2), (400, 0.4), (400, 0.7), (400, 1.0), (200, 1.4))  # mean, sigma
LONGEST, SAMPLES, STEPS = 2048, 4, 60
GROUPS = 50  # batches that transformers sorts together (trainer_pt_utils.py, get_length_grouped_indices)


@dataclass
class Block:
    size: int
    before: Block | None = None
    after: Block | None = None
    free: bool = False


@dataclass
class Allocator:
    """Free blocks by size; segments are never given back, as where the card is not full."""

    free: list[tuple[int, int, Block]] = field(default_factory=list)
    reserved: int = 0
    live: int = 0
    peak: int = 0

    def take(self, size: float) -> Block:
        wanted = max(-(-int(size) // 512) * 512, 512)
        place = bisect.bisect_left(self.free, (wanted, 0))
        if place < len(self.free):
            block = self.free.pop(place)[2]
        else:
            segment = 20 * MIB if wanted < 10 * MIB else -(-wanted // (2 * MIB)) * 2 * MIB
            self.reserved += segment
            block = Block(segment)
        if block.size - wanted > MIB:
            rest = Block(block.size - wanted, block, block.after)
            if block.after:
                block.after.before = rest
            block.after, block.size = rest, wanted
            self._put(rest)
        block.free = False
        self.live += block.size
        self.peak = max(self.peak, self.live)
        return block

    def drop(self, *blocks: Block) -> None:
        for block in blocks:
            self.live -= block.size
            if block.after and block.after.free:
                self._join(block, block.after)
            if block.before and block.before.free:
                before = block.before
                self.free.remove((before.size, id(before), before))
                block = self._joined(before, block)  # noqa: PLW2901
            self._put(block)

    def _put(self, block: Block) -> None:
        block.free = True
        bisect.insort(self.free, (block.size, id(block), block), key=lambda row: row[:2])

    def _join(self, block: Block, after: Block) -> None:
        self.free.remove((after.size, id(after), after))
        self._joined(block, after)

    @staticmethod
    def _joined(block: Block, after: Block) -> Block:
        block.size += after.size
        block.after = after.after
        if after.after:
            after.after.before = block
        return block


def _layer(memory: Allocator, tokens: int, hidden: int, ffn: int) -> list[Block]:
    """A layer's forward with frozen weights: what it keeps, after what only passes."""
    state, wide = tokens * hidden * 2, tokens * ffn * 2
    kept = [memory.take(2 * state), memory.take(state)]
    passing = [memory.take(state) for _ in range(5)]
    kept += [memory.take(state) for _ in range(4)]
    memory.drop(*passing)
    kept += [memory.take(2 * state), memory.take(state)]
    kept += [memory.take(wide) for _ in range(3)]
    memory.drop(memory.take(wide), memory.take(state))
    return kept


def _loss(memory: Allocator, logits: int) -> None:
    """Eager cross-entropy: 16-bit logits, float32 ones, log-probabilities, and their gradients."""
    narrow, wide, logarithms = memory.take(2 * logits), memory.take(4 * logits), memory.take(4 * logits)
    memory.drop(wide)
    outer, inner = memory.take(4 * logits), memory.take(4 * logits)
    memory.drop(outer, logarithms)
    gradient = memory.take(2 * logits)
    memory.drop(inner, narrow, gradient)


def step(memory: Allocator, tokens: int, shape: tuple[int, int, int, int], recompute: bool) -> None:
    hidden, layers, ffn, vocabulary = shape
    kept = []
    for _ in range(layers):
        inside, output = _layer(memory, tokens, hidden, ffn), memory.take(tokens * hidden * 2)
        if recompute:
            memory.drop(*inside)
        kept.append([output] if recompute else [output, *inside])
    _loss(memory, tokens * vocabulary)
    for saved in reversed(kept):
        again = _layer(memory, tokens, hidden, ffn) if recompute else []
        memory.drop(*(memory.take(tokens * width * 2) for width in (ffn, ffn, ffn, hidden, hidden, hidden)))
        memory.drop(*again, *saved)


def drawn_lengths(mean: float, sigma: float, grouped: bool) -> list[int]:
    """Tokens of the sequences of each step: the longest of its samples, or neighbours in a sorted pool of 50 steps."""
    random_numbers, steps = random.Random(0), STEPS + GROUPS * grouped
    samples = [random_numbers.lognormvariate(math.log(mean) - sigma**2 / 2, sigma) for _ in range(SAMPLES * steps)]
    cut = [max(min(int(length), LONGEST), 16) for length in samples]
    if not grouped:
        return [max(cut[at : at + SAMPLES]) for at in range(0, len(cut), SAMPLES)]
    pools = (sorted(cut[at : at + SAMPLES * GROUPS], reverse=True) for at in range(0, len(cut), SAMPLES * GROUPS))
    return [length for pool in pools for length in pool[::SAMPLES]][:STEPS]


def extra_batches(
    shape: tuple[int, int, int, int], recompute: bool, grouped: bool, lengths_drawn: tuple[float, float]
) -> float:
    """Bytes reserved beyond the peak over those of a batch of mean length [-]."""
    memory, lengths = Allocator(), drawn_lengths(*lengths_drawn, grouped)
    for tokens in lengths:
        step(memory, SAMPLES * tokens, shape, recompute)
    return (memory.reserved - memory.peak) / memory.peak * max(lengths) / (sum(lengths) / len(lengths))


def main() -> None:
    for grouped, recompute in product((False, True), repeat=2):
        found = sorted(extra_batches(s, recompute, grouped, lengths) for s, lengths in product(SHAPES, LENGTHS))
        middle, words = found[len(found) // 2], ("grouped, " * grouped) + ("recomputed" if recompute else "kept")
        print(f"{words:20} {middle:.2f} batches of mean length, {found[0]:.2f} to {found[-1]:.2f}")


if __name__ == "__main__":
    main()
