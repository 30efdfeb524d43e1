"""Philox 4x32-10: random 32-bit words, each a function of a key and its place, so that it may be computed anywhere.

Word w of a call is lane w mod 4 of the block with counter (w / 4, call), encrypted under the seed. On the host,
integer operations of torch compute the blocks, in chunks that stay in the cache. On CUDA one kernel computes the same,
since many launches would take longer than the work.

Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (2011).
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch

from serrate.tensor import abstract

ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_BUMPS = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF
# So many blocks are one chunk. It is a power of two, so that all counters of a chunk have the same high half.
_CHUNK = 1 << 17
_CUDA_CHUNK = 1 << 24  # So many words are drawn at a time.
_CUDA = """
template <typename T> T philox_word(T place, T seed, T call) {
    unsigned long long block = (unsigned long long)place >> 2;
    unsigned a = block, b = block >> 32, c = call, d = (unsigned long long)call >> 32;
    unsigned k = seed, m = (unsigned long long)seed >> 32;
    for (int round = 0; round < 10; ++round) {
        unsigned long long left = 0xD2511F53ull * a, right = 0xCD9E8D57ull * c;
        a = (unsigned)(right >> 32) ^ b ^ k;
        b = (unsigned)right;
        c = (unsigned)(left >> 32) ^ d ^ m;
        d = (unsigned)left;
        k += 0x9E3779B9u;
        m += 0xBB67AE85u;
    }
    unsigned lane = (unsigned)place & 3u;
    return lane == 0 ? a : lane == 1 ? b : lane == 2 ? c : d;
}
"""

Word = int | torch.Tensor
"""One word of each block; a number, if all blocks have the same."""


@dataclass(frozen=True)
class Key:
    """What decides about random numbers beside their places: a seed, and the number of the call that draws them.

    >>> import serrate as sr
    >>> key = sr.random.Key(seed=7, call=3)
    >>> sr.random.randint((4,), 0, 10, key=key).tolist() == sr.random.randint((4,), 0, 10, key=key).tolist()
    True
    """

    seed: int
    call: int = 0

    def __post_init__(self) -> None:
        for name, number in (("seed", self.seed), ("call", self.call)):
            if isinstance(number, bool) or not isinstance(number, int):
                raise TypeError(f"the {name} of a key must be an int, got {number!r:.40}")
            if not -(2**63) <= number < 2**64:
                raise ValueError(f"the {name} of a key must fit 64 bits, got {number}")


# --------------------------------------------------------------------------------------------------- which numbers

_lock = threading.Lock()
_seed: int | None = None
_calls = 0


def seed(number: int | None) -> None:
    """Number the calls from 0 under this seed from now on, in the whole process; None: draw from torch again.

    >>> import serrate as sr
    >>> sr.random.seed(5)
    >>> first = sr.random.uniform((2,))
    >>> sr.random.seed(5)
    >>> sr.random.uniform((2,)).tolist() == first.tolist()
    True
    >>> sr.random.seed(None)
    """
    global _seed, _calls
    if number is not None:
        Key(number)
    with _lock:
        _seed, _calls = number, 0


class _Replay(threading.local):
    """Keys that a computation of this thread drew before, and draws again."""

    def __init__(self) -> None:
        self.keys: list[Key] = []


_replay = _Replay()


@contextlib.contextmanager
def replayed(keys: Iterable[Key]) -> Iterator[None]:
    """Draw these keys again, one by one; what draws more gets new ones.

    >>> import serrate as sr
    >>> from serrate.eager.philox import Key, replayed
    >>> with replayed([Key(7, 3)]):
    ...     again = sr.random.uniform((2,))
    >>> again.tolist() == sr.random.uniform((2,), key=sr.random.Key(7, 3)).tolist()
    True
    """
    before, _replay.keys = _replay.keys, list(keys)
    try:
        yield
    finally:
        _replay.keys = before


def state() -> tuple[torch.Tensor, int | None, int]:
    """What the next keys follow from."""
    return torch.get_rng_state(), _seed, _calls


def restore(before: tuple[torch.Tensor, int | None, int]) -> None:
    """Draw the keys again that followed from an earlier state."""
    global _seed, _calls
    torch.set_rng_state(before[0])
    with _lock:
        _seed, _calls = before[1:]


def is_seeded() -> bool:
    """Whether keys follow from `sr.random.seed`, and not from torch's generator."""
    return _seed is not None


def next_key(given: Key | None) -> Key:
    """The key of a call: the one given, or the next."""
    global _calls
    if given is None and _replay.keys:
        return _replay.keys.pop(0)
    if abstract.current() is not None and not isinstance(given, Key):
        return Key(0, 0)  # A type is found without drawing a number, and may not know the key.
    if given is not None:
        if not isinstance(given, Key):
            raise TypeError(f"key must be an sr.random.Key, got {type(given).__name__}")
        return given
    with _lock:
        if _seed is not None:
            if torch._C._current_graph_task_id() != -1:
                raise RuntimeError(
                    "random numbers were asked for during a backward pass, as a checkpointed function computed again "
                    "does, but after sr.random.seed(n) they would not be those of the forward pass; use "
                    "torch.manual_seed(n) instead, or give a key"
                )
            _calls += 1
            return Key(_seed, _calls - 1)
    return Key(torch.initial_seed(), int(torch.empty((), dtype=torch.int64, device="cpu").random_()))


# ------------------------------------------------------------------------------------------------ words of a call


def words(key: Key, start: int, count: int, device: torch.device) -> torch.Tensor:
    """Words start … start + count of a call, int32 [count]."""
    if abstract.current() is not None:
        return torch.empty(count, dtype=torch.int32, device=device)
    if device.type == "cuda":
        return _words_on_cuda(key, start, count, device)
    first, last = start // 4, -((start + count) // -4)
    made = torch.empty((last - first, 4), dtype=torch.int32, device=device)
    buffers = [torch.empty(min(_CHUNK, last - first), dtype=torch.int64, device=device) for _ in range(6)]
    at = first
    while at < last:
        stop = min(last, (at // _CHUNK + 1) * _CHUNK)
        _blocks(key, at, made[at - first : stop - first], [b[: stop - at] for b in buffers])
        at = stop
    return made.view(-1)[start - 4 * first :][:count]


def _words_on_cuda(key: Key, start: int, count: int, device: torch.device) -> torch.Tensor:
    made = torch.empty(count, dtype=torch.int32, device=device)
    for at in range(0, count, _CUDA_CHUNK):
        part = made[at : at + _CUDA_CHUNK]
        places = torch.arange(start + at, start + at + part.numel(), device=device)
        part.copy_(_cuda_kernel()(places, seed=_signed(key.seed), call=_signed(key.call)))
    return made


@functools.cache
def _cuda_kernel() -> Callable[..., torch.Tensor]:
    return torch.cuda.jiterator._create_jit_fn(_CUDA, seed=0, call=0)


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _blocks(key: Key, first: int, out: torch.Tensor, spare: list[torch.Tensor]) -> None:
    """Write the blocks with counters from `first` to `out` [blocks, 4]; `spare` are six int64 buffers to work in."""
    start = first & _LOW
    low = torch.arange(start, start + out.shape[0], out=spare.pop(), device=out.device)
    block = encrypt((low, first >> 32, key.call & _LOW, key.call >> 32 & _LOW), key.seed, spare)
    for lane, word in enumerate(block):
        out[:, lane] = word


def encrypt(counter: tuple[Word, Word, Word, Word], seed: int, spare: list[torch.Tensor]) -> tuple[Word, ...]:
    """The ten rounds. Only the low 32 bits count of the resulting words, and of words in odd places between rounds.

    Each word is a number or an int64 tensor, which is overwritten; with five buffers in `spare` nothing is allocated.
    """
    a, b, c, d = counter
    keys = [seed & _LOW, seed >> 32 & _LOW]
    for number in range(ROUNDS):
        left, right = _times(a, _MULTIPLIERS[0], spare), _times(c, _MULTIPLIERS[1], spare)
        clean = number < ROUNDS - 1
        a, c = _mix(a, right, b, keys[0], clean, spare), _mix(c, left, d, keys[1], clean, spare)
        spare += [old for old in (b, d) if isinstance(old, torch.Tensor)]
        b, d = right, left
        keys = [(k + bump) & _LOW for k, bump in zip(keys, _BUMPS, strict=True)]
    return a, b, c, d


def _times(word: Word, factor: int, spare: list[torch.Tensor]) -> Word:
    """The 64-bit product. In a tensor it may overflow, which leaves its low 64 bits as they are."""
    if isinstance(word, int):
        return word * factor
    return torch.mul(word, factor, out=_buffer(spare, word))


def _mix(old: Word, product: Word, other: Word, key: int, clean: bool, spare: list[torch.Tensor]) -> Word:
    """The high half of `product`, xor `other`, xor `key`, written to `old`; with `clean`, the bits above 32 are 0."""
    if isinstance(product, int) and isinstance(other, int):
        spare += [old] if isinstance(old, torch.Tensor) else []
        return (product >> 32 ^ other ^ key) & _LOW
    like = other if isinstance(product, int) else product
    assert isinstance(like, torch.Tensor)
    made = old if isinstance(old, torch.Tensor) else _buffer(spare, like)
    if isinstance(product, int):
        torch.bitwise_xor(like, (product >> 32 ^ key) & _LOW, out=made)
    else:
        torch.bitwise_right_shift(product, 32, out=made)
        if isinstance(other, int):
            made.bitwise_xor_((other ^ key) & _LOW)
        else:
            made.bitwise_xor_(other).bitwise_xor_(key)
    return made.bitwise_and_(_LOW) if clean else made


def _buffer(spare: list[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    return spare.pop() if spare else torch.empty_like(like)


# ----------------------------------------------------------------------------- elements start … start + count of a call

DIGITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
"""How many random bits a number between 0 and 1 has."""


def wide_words(key: Key, start: int, count: int, device: torch.device) -> torch.Tensor:
    """For each element 64 random bits: words 2i and 2i + 1."""
    return words(key, 2 * start, 2 * count, device).view(torch.int64)


def uniform_values(key: Key, start: int, count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Multiples of the dtype's precision in [0, 1)."""
    if dtype == torch.float64:
        return (wide_words(key, start, count, device) & (2**53 - 1)).to(dtype).mul_(2.0**-53)
    digits = DIGITS[dtype]
    return (words(key, start, count, device) & ((1 << digits) - 1)).to(dtype).mul_(2.0**-digits)


def _positive(key: Key, start: int, count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Numbers in (0, 1] as float64 or float32, close together near 0, so that logarithms can be large."""
    if dtype == torch.float64:
        return (wide_words(key, start, count, device) & (2**53 - 1)).to(dtype).add_(0.5).mul_(2.0**-53)
    return unsigned(words(key, start, count, device)).to(torch.float32).add_(0.5).mul_(2.0**-32)


def unsigned(given: torch.Tensor) -> torch.Tensor:
    """Words as the numbers 0 … 2³² - 1, int64."""
    return given.to(torch.int64).bitwise_and_(_LOW)


def normal_values(key: Key, start: int, count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Normal numbers by the method of Box and Muller: elements 2j and 2j + 1 are the coordinates of one point."""
    odd = start % 2
    pairs = _positive(key, start - odd, count + odd + (count + odd) % 2, dtype, device).view(-1, 2)
    radius = pairs[:, 0].log().mul_(-2).sqrt_()
    angle = pairs[:, 1] * (2 * math.pi)
    made = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
    return made.view(-1)[odd:][:count].to(dtype)


def exponential_values(key: Key, start: int, count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Exponential numbers, -log(u) for a u that is never 0."""
    made = _positive(key, start, count, dtype, device).log().neg_()
    return made.clamp_(min=torch.finfo(made.dtype).eps / 2).to(dtype)
