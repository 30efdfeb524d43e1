"""Random numbers: the generator against published vectors and a plain reference, distributions, orders, dropout."""

from __future__ import annotations

import collections
import itertools
import math
import threading

import pytest
import torch
import torch.nn.functional as F
from tests.ops.samples import DTYPES, NAMES, elements, sample
from torch.autograd import gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint

import serrate as sr
from serrate.eager import philox
from serrate.ops.derivatives import pullback
from serrate.ops.record import TABLE

CPU = torch.device("cpu")
LOW = 2**32 - 1
KEY = sr.random.Key(2026, 7)
FLOATS = DTYPES["float"]
VECTORS = [
    ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((LOW, LOW, LOW, LOW), (LOW, LOW), "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


@pytest.fixture(autouse=True)
def torch_draws():
    torch.manual_seed(0)
    sr.random.seed(None)
    yield
    sr.random.seed(None)


# ---------------------------------------------------------------------------------------------------- the generator


def reference(counter: tuple[int, ...], key: tuple[int, ...]) -> list[int]:
    """Philox 4x32-10 as its paper writes it, in Python's integers."""
    a, b, c, d = counter
    k, m = key
    for _ in range(10):
        left, right = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (right >> 32) ^ b ^ k, right & LOW, (left >> 32) ^ d ^ m, left & LOW
        k, m = (k + 0x9E3779B9) & LOW, (m + 0xBB67AE85) & LOW
    return [a, b, c, d]


def word(key: sr.random.Key, place: int) -> int:
    block, seed, call = place // 4, key.seed % 2**64, key.call % 2**64
    counter = (block & LOW, block >> 32, call & LOW, call >> 32)
    return reference(counter, (seed & LOW, seed >> 32))[place % 4]


def signed(number: int) -> int:
    return number - 2**32 * (number >> 31)


@pytest.mark.parametrize(("counter", "key", "want"), VECTORS)
def test_known_answers(counter, key, want):
    words = [int(w, 16) for w in want.split()]
    seed = key[0] | key[1] << 32
    assert reference(counter, key) == words
    assert [w & LOW for w in philox.encrypt(counter, seed, [])] == words
    tensors = tuple(torch.tensor([1, w]) for w in counter)
    assert [int(w[1]) & LOW for w in philox.encrypt(tensors, seed, [])] == words
    call = counter[2] | counter[3] << 32
    place = 4 * (counter[0] | counter[1] << 32)
    assert [int(w) & LOW for w in philox.words(sr.random.Key(seed, call), place, 4, CPU)] == words


def test_words_equal_the_reference_everywhere(monkeypatch):
    monkeypatch.setattr(philox, "_CHUNK", 8)
    for key in (sr.random.Key(0), sr.random.Key(-1, 2**63 + 5), sr.random.Key(2**64 - 3, 9)):
        for start in (0, 1, 30, 2**34 - 6, 2**40 + 3):  # block 2³² begins at word 2³⁴
            got = philox.words(key, start, 75, CPU)
            assert got.dtype == torch.int32
            assert [int(w) & LOW for w in got] == [word(key, start + i) for i in range(75)], (key, start)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_has_the_same_words_and_does_not_wait(monkeypatch):
    monkeypatch.setattr(philox, "_CUDA_CHUNK", 30)
    for key in (sr.random.Key(0), sr.random.Key(-1, 2**63 + 5), sr.random.Key(2**64 - 3, 9)):
        for start in (0, 1, 2**34 - 6, 2**40 + 3):
            with sr.testing.forbid_sync():
                got = philox.words(key, start, 75, torch.device("cuda"))
            assert torch.equal(got.cpu(), philox.words(key, start, 75, CPU))
    x = sample("two levels", torch.float64)
    y = x.cuda()
    with sr.testing.forbid_sync():
        made = [sr.dropout(y, 0.5, key=KEY), sr.random.shuffle(y, 2, key=KEY)]
    assert [m.tolist() for m in made] == [
        sr.dropout(x, 0.5, key=KEY).tolist(),
        sr.random.shuffle(x, 2, key=KEY).tolist(),
    ]


MAKERS = (philox.uniform_values, philox.normal_values, philox.exponential_values)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_part_alone_has_the_numbers_it_has_in_the_whole(make, monkeypatch):
    for dtype in FLOATS:
        whole = make(KEY, 0, 41, dtype, CPU)
        for start, stop in [(0, 41), (0, 1), (3, 4), (5, 30), (6, 41), (40, 41), (7, 7)]:
            assert torch.equal(make(KEY, start, stop - start, dtype, CPU), whole[start:stop])
        monkeypatch.setattr(philox, "_CHUNK", 2)
        assert torch.equal(make(KEY, 0, 41, dtype, CPU), whole)
        monkeypatch.undo()


def test_numbers_do_not_depend_on_raggedness_or_on_rows_around():
    flat = sr.random.normal((7, 2), key=KEY).values
    assert torch.equal(sr.random.normal((3, sr.Ragged([4, 0, 3]), 2), key=KEY).values, flat)
    assert torch.equal(sr.random.normal((4, sr.Ragged([4, 0, 2, 9]), 2), key=KEY).values[:6], flat[:6])
    x = sr.from_lengths(torch.zeros(7, 2), [4, 3])
    assert torch.equal(sr.random.normal(x.permute_dims((0, 2, 1)), key=KEY).values, flat)


def test_numbers_are_these_and_stay_these():
    key = sr.random.Key(1, 2)
    assert philox.words(key, 0, 4, CPU).tolist() == [signed(word(key, i)) for i in range(4)]
    got = sr.random.uniform((4,), key=key, dtype=torch.float64).tolist()
    want = [((word(key, 2 * i) | word(key, 2 * i + 1) << 32) % 2**53) / 2**53 for i in range(4)]
    assert got == want
    got = sr.random.uniform((4,), key=key).tolist()
    assert got == [(word(key, i) % 2**24) / 2**24 for i in range(4)]
    u = [(word(key, i) + 0.5) / 2**32 for i in range(2)]
    radius, angle = math.sqrt(-2 * math.log(u[0])), 2 * math.pi * u[1]
    got = sr.random.normal((2,), key=key).tolist()
    assert got == pytest.approx([radius * math.cos(angle), radius * math.sin(angle)], rel=1e-5)
    assert sr.random.exponential((2,), 2.0, key=key).tolist() == pytest.approx([-math.log(v) / 2 for v in u], rel=1e-5)
    wide = [(word(key, 2 * i) | word(key, 2 * i + 1) << 32) % 2**63 for i in range(5)]
    assert sr.random.randint((5,), -3, 8, key=key).tolist() == [w % 11 - 3 for w in wide]


# ---------------------------------------------------------------------------------------------------- distributions


def distance(values: torch.Tensor, cumulative) -> float:
    """Kolmogorov and Smirnov's: the greatest distance between the empirical and the expected distribution."""
    ordered = values.double().sort().values
    expected = cumulative(ordered)
    n = ordered.numel()
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    return float(torch.maximum((expected - steps[:-1]).abs(), (steps[1:] - expected).abs()).max())


CUMULATIVE = {
    "uniform": lambda v: v.clamp(0, 1),
    "normal": torch.special.ndtr,
    "exponential": lambda v: 1 - torch.exp(-v),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", CUMULATIVE)
def test_distributions(name, dtype):
    n = 40_000
    got = getattr(sr.random, name)((n,), dtype=dtype, key=KEY)
    assert got.dtype == dtype
    grain = 0.01 if dtype in (torch.float16, torch.bfloat16) else 0
    assert distance(got.values, CUMULATIVE[name]) < 1.95 / math.sqrt(n) + grain  # passed over by 1 in 1,000
    values = got.values.double()
    mean, variance = {"uniform": (0.5, 1 / 12), "normal": (0, 1), "exponential": (1, 1)}[name]
    assert float(values.mean()) == pytest.approx(mean, abs=4 * math.sqrt(variance / n) + grain)
    assert float(values.var()) == pytest.approx(variance, rel=0.06)
    assert abs(float((values[1:] * values[:-1]).mean()) - mean**2) < 8 / math.sqrt(n) + grain


def test_uniform_keeps_to_its_bounds():
    for dtype in FLOATS:
        values = sr.random.uniform((20_000,), dtype=dtype, key=KEY).values
        assert values.min() >= 0
        assert values.max() < 1
        values = sr.random.uniform((20_000,), 1000, 1001, dtype=dtype, key=KEY).values.double()
        assert values.min() >= 1000
        assert values.max() < 1001
    assert sr.random.uniform((2,), 3, 3).tolist() == [3.0, 3.0]
    values = sr.random.uniform((20_000,), -2, 6, key=KEY).values
    assert float(values.mean()) == pytest.approx(2, abs=0.1)


def test_exponential_is_never_zero_and_normal_has_its_tail(monkeypatch):
    monkeypatch.setattr(philox, "words", lambda key, start, count, device: torch.full((count,), -1, dtype=torch.int32))
    assert float(philox.exponential_values(KEY, 0, 1, torch.float32, CPU)) > 0
    monkeypatch.setattr(philox, "words", lambda key, start, count, device: torch.zeros(count, dtype=torch.int32))
    assert 6 < float(philox.normal_values(KEY, 0, 1, torch.float32, CPU)) < 7
    assert 8 < float(philox.normal_values(KEY, 0, 1, torch.float64, CPU)) < 9


def test_randint():
    counts = torch.bincount(sr.random.randint((60_000,), 0, 6, key=KEY).values, minlength=6)
    assert float(((counts - 10_000.0) ** 2 / 10_000).sum()) < 20.5  # chi² with 5 degrees, 1 in 1,000
    for dtype in DTYPES["int"]:
        limits = torch.iinfo(dtype)
        low, high = max(limits.min, -(2**49)), min(limits.max + 1, 2**50)
        got = sr.random.randint((4000,), low, high, dtype=dtype, key=KEY).values
        assert got.dtype == dtype
        assert float(got.double().mean() / high) == pytest.approx((low + high) / 2 / high, abs=0.06)
    assert sr.random.randint(sr.ragged([[1], [2, 3]]), 0, 2**40, key=KEY).shape == (2, sr.Ragged([1, 2]))


def test_bernoulli():
    p = sr.from_lengths(torch.tensor([0.25]).repeat(40_000), [10_000, 30_000])
    got = sr.random.bernoulli(p, key=KEY)
    assert got.partitions[0] is p.partitions[0]
    assert set(got.values.tolist()) == {0.0, 1.0}
    assert float(got.values.mean()) == pytest.approx(0.25, abs=0.01)
    assert sr.random.bernoulli(p, dtype=torch.bool, key=KEY).dtype == torch.bool
    edges = sr.random.bernoulli(torch.tensor([0.0, 1.0], dtype=torch.float64).repeat(500)).values
    assert torch.equal(edges, torch.tensor([0.0, 1.0], dtype=torch.float64).repeat(500))
    d = sr.testing.device_born(sr.ragged([[0.5], [1.0]]), spare=3)  # holds 97 past its end
    with sr.testing.forbid_sync():
        sr.random.bernoulli(d)
    assert torch.bernoulli(p).dtype == torch.float32
    assert torch.bernoulli(p.long(), 1.0).values.min() == 1


# --------------------------------------------------------------------------------------------------- keys and seeds


def test_torch_seeds_the_numbers_until_another_seed_is_set():
    def draw():
        return sr.random.uniform((3,)).tolist()

    torch.manual_seed(3)
    first, second = draw(), draw()
    assert first != second
    torch.manual_seed(3)
    assert [draw(), draw()] == [first, second]
    state = torch.get_rng_state()
    third = draw()
    torch.set_rng_state(state)
    assert draw() == third
    sr.random.seed(3)
    own = [draw(), draw()]
    assert own == [sr.random.uniform((3,), key=sr.random.Key(3, i)).tolist() for i in range(2)]
    sr.random.seed(3)
    torch.rand(1)
    assert [draw(), draw()] == own


def test_a_call_that_fails_takes_no_number():
    sr.random.seed(1)
    with pytest.raises(TypeError):
        sr.random.uniform((3,), dtype=torch.int64)
    with pytest.raises(ValueError, match="sizes"):
        sr.random.uniform((-3,))
    assert sr.random.uniform((3,)).tolist() == sr.random.uniform((3,), key=sr.random.Key(1, 0)).tolist()


def test_threads_never_share_a_number():
    sr.random.seed(11)
    found: list[tuple[float, ...]] = []

    def work():
        found.extend(tuple(sr.random.uniform((2,)).tolist()) for _ in range(50))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 200


def test_keys_are_values():
    assert sr.random.Key(1, 2) == sr.random.Key(seed=1, call=2)
    assert hash(sr.random.Key(1)) == hash(sr.random.Key(1, 0))
    different = [sr.random.uniform((2,), key=sr.random.Key(s, c)).tolist() for s in (1, 2) for c in (0, 1)]
    assert len({tuple(d) for d in different}) == 4


def test_wrong_arguments_are_named():
    for call, kind, text in [
        (lambda: sr.random.Key(1.5), TypeError, "seed of a key must be an int"),
        (lambda: sr.random.Key(1, 2**64), ValueError, "call of a key must fit 64 bits"),
        (lambda: sr.random.seed("a"), TypeError, "seed of a key must be an int"),
        (lambda: sr.random.uniform((2,), 1, 0), ValueError, "low ≤ high"),
        (lambda: sr.random.uniform((2,), 0, math.inf), ValueError, "both finite"),
        (lambda: sr.random.uniform((2,), key=5), TypeError, "key must be an sr.random.Key"),
        (lambda: sr.random.uniform("ab"), TypeError, "a shape is an int or a tuple"),
        (lambda: sr.random.uniform((2,), dtype=torch.complex64), TypeError, "dtype must be one of"),
        (lambda: sr.random.normal((2,), 0, -1), ValueError, "0 or more"),
        (lambda: sr.random.exponential((2,), 0), ValueError, "positive rate"),
        (lambda: sr.random.randint((2,), 3, 3), ValueError, "low < high"),
        (lambda: sr.random.randint((2,), 0, 300, dtype=torch.uint8), ValueError, "within torch.uint8"),
        (lambda: sr.random.randint((2,), 0, 3, dtype=torch.float32), TypeError, "dtype must be one of"),
        (lambda: sr.random.bernoulli(torch.tensor([0.5, 1.5])), ValueError, "packed element 1 is 1.5"),
        (lambda: sr.random.bernoulli(torch.tensor([1])), TypeError, "floating-point probabilities"),
        (lambda: sr.random.shuffle(torch.ones(3), 1), sr.errors.AxisError, "axis 1 is out of range"),
    ]:
        with pytest.raises(kind, match=text):
            call()


def test_the_torch_face_of_creation():
    x = sample("features", torch.float64)
    for function, low, high in ((torch.rand_like, 0, 1), (torch.randn_like, -9, 9)):
        got = function(x, requires_grad=True)
        assert got.partitions[0] is x.partitions[0]
        assert got.dtype == torch.float64
        assert got.requires_grad
        drawn = got.values.detach()
        assert low <= float(drawn.min()) < float(drawn.max()) < high
    assert torch.rand_like(x, dtype=torch.float16).dtype == torch.float16
    assert set(torch.randint_like(x.long(), 2, 4).values.flatten().tolist()) <= {2, 3}
    assert set(torch.randint_like(x.long(), 2).values.flatten().tolist()) <= {0, 1}
    assert type(torch.rand_like(sr.Tensor(torch.ones(2)))) is torch.Tensor


# ----------------------------------------------------------------------------------------------------------- orders


@pytest.mark.parametrize("name", [n for n in NAMES if n != "NaN and inf"])
def test_shuffle_keeps_the_entries_of_each_row(name):
    x = sample(name, torch.int64)
    for axis in range(x.ndim):
        x = x._with(torch.arange(x.values.numel()).view(x.values.shape))
        got = sr.random.shuffle(x, axis, key=KEY)
        assert len(got.partitions) == len(x.partitions)
        for i, entry in enumerate(rows_along(x.tolist(), axis)):
            after = list(rows_along(got.tolist(), axis))[i]
            assert collections.Counter(map(str, entry)) == collections.Counter(map(str, after))


def rows_along(nested, axis):
    """What lies along `axis`, for each index of the axes before it; along a uniform first axis the whole."""
    if axis == 0:
        yield nested
    else:
        for inner in nested:
            yield from rows_along(inner, axis - 1)


def test_shuffle_orders_each_row_of_a_ragged_axis_on_its_own_and_a_uniform_axis_once():
    x = sr.from_lengths(torch.arange(40).repeat(3)[:, None].expand(-1, 5), [40, 40, 40])
    y = sr.random.shuffle(x, axis=1, key=KEY)
    orders = [row.values[:, 0].tolist() for row in y]
    assert len({tuple(o) for o in orders}) == 3
    assert all(torch.equal(row.values, row.values[:, :1].expand(-1, 5)) for row in y)
    assert y.partitions[0] is x.partitions[0]
    z = sr.random.shuffle(sr.from_lengths(torch.arange(30).expand(3, -1), [2, 1]), axis=2, key=KEY)
    assert torch.equal(z.values, z.values[:1].expand(3, -1))
    p, q = sr.Partition.from_lengths([3, 2]), sr.Partition.from_lengths([20, 30])
    columns = sr.positions(sr.from_product(torch.zeros(120), p, q), axis=2)
    shuffled = sr.random.shuffle(columns, axis=2, key=KEY)
    assert shuffled.partitions[1] is q
    assert all(row.tolist() == block.tolist()[0] for block in shuffled for row in block)
    assert shuffled[0, 0].tolist() != columns[0, 0].tolist()


def test_every_order_is_as_likely():
    n = 6000
    got = sr.random.shuffle(sr.from_lengths(torch.arange(3).repeat(n), [3] * n), axis=1, key=KEY)
    counts = collections.Counter(map(tuple, got.values.view(n, 3).tolist()))
    assert set(counts) == set(itertools.permutations(range(3)))
    assert sum((c - n / 6) ** 2 / (n / 6) for c in counts.values()) < 20.5


def test_shuffle_does_not_wait_and_orders_as_if_nothing_were_undefined():
    for name, axes in (("rows", (1, 0)), ("two levels", (2, 3)), ("features", (1, 2)), ("product", (1, 2))):
        x = sample(name, torch.float64)
        d = sr.testing.device_born(x, spare=3)
        for axis in axes:
            with sr.testing.forbid_sync():
                got = sr.random.shuffle(d, axis, key=KEY)
            assert got.tolist() == sr.random.shuffle(x, axis, key=KEY).tolist()


def test_shuffle_has_gradients():
    for name in ("two levels", "product"):
        x = sample(name, torch.float64)
        values = x.values.clone().requires_grad_()
        for axis in range(x.ndim):
            assert gradcheck(lambda v, x=x, a=axis: sr.random.shuffle(x._with(v), a, key=KEY).values, [values])


# ---------------------------------------------------------------------------------------------------------- dropout


@pytest.mark.parametrize("name", NAMES)
def test_dropout_scales_what_it_keeps(name):
    for dtype in (*DTYPES["float"], *DTYPES["complex"]):
        if name == "NaN and inf" and dtype.is_complex:
            continue
        x = sample(name, dtype)
        for p in (0.3, 0.5):
            got = sr.dropout(x, p, key=KEY)
            assert got.shape == x.shape
            assert got.dtype == dtype
            kept = torch.tensor([signed(word(KEY, i)) >= round(p * 2**32) - 2**31 for i in range(x.values.numel())])
            kept = kept.view(x.values.shape) if kept.numel() else x.values.bool()
            want = x.values * (1 / (1 - p)) * kept
            assert torch.equal(got.values.nan_to_num(7), want.nan_to_num(7)), (dtype, p)


def test_dropout_drops_as_often_as_it_should():
    x = sr.from_lengths(torch.ones(200_000), [150_000, 50_000])
    for p in (0.01, 0.1, 0.5, 0.9):
        got = sr.dropout(x, p, key=sr.random.Key(5, 1)).values
        dropped = float((got == 0).double().mean())
        assert dropped == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / 200_000))
        assert torch.allclose(got[got != 0], torch.tensor(1 / (1 - p)))
    assert not sr.dropout(x, 1.0).values.any()
    assert not sr.dropout(x, 1 - 1e-12).values.any()


def test_dropout_without_effect_is_the_tensor_itself():
    x = sample("features", torch.float32)
    state = torch.get_rng_state()
    assert sr.dropout(x, 0.5, training=False) is x
    assert sr.dropout(x, 0.0) is x
    assert torch.nn.Dropout(0.5).eval()(x) is x
    assert torch.equal(torch.get_rng_state(), state)


def test_dropout_gradients_use_the_same_mask():
    x = sample("two levels", torch.float64)
    values = x.values.clone().requires_grad_()

    def run(v):
        return sr.dropout(x._with(v), 0.4, key=KEY).values

    assert gradcheck(run, [values])
    assert gradgradcheck(lambda v: run(v * v), [values])
    out = sr.dropout(x._with(values), 0.4)
    (gradient,) = torch.autograd.grad(out.values.sum(), values)
    assert torch.allclose(gradient, (out.values != 0).double() / (1 - 0.4))
    g = elements(5, (2,), torch.float64, 3)
    (want,) = torch.autograd.grad(run(values), values, g)
    _, back = pullback(lambda x: sr.dropout(x, 0.4, key=KEY), x)
    assert torch.equal(back(x._with(g))[0].values, want)
    out, back = pullback(lambda x: sr.dropout(x, 0.4), x)  # no key: the mask is drawn once
    assert torch.equal(back(x._with(g))[0].values, g * (out.values != 0) * (1 / 0.6))


def test_dropout_saves_no_more_than_a_mask():
    saved: list[torch.Tensor] = []
    x = sr.from_lengths(torch.ones(50, requires_grad=True), [20, 30])
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        sr.dropout(x, 0.5)
    assert [t.dtype for t in saved] == [torch.bool]


def test_the_torch_face_of_dropout():
    x = sample("features", torch.float32)
    torch.manual_seed(4)
    got = F.dropout(x, 0.5)
    torch.manual_seed(4)
    assert torch.equal(torch.dropout(x, 0.5, True), got)
    torch.manual_seed(4)
    assert torch.equal(torch.nn.Dropout(0.5)(x), got)
    torch.manual_seed(4)
    y = x.clone()
    assert F.dropout(y, 0.5, inplace=True) is y
    assert torch.equal(y, got)
    assert got.partitions[0] is x.partitions[0]
    assert F.dropout(x, 0.5, training=False) is x
    assert type(F.dropout(sr.Tensor(torch.ones(3)), 0.5)) is torch.Tensor


def test_dropout_does_not_wait():
    d = sr.testing.device_born(sample("two levels", torch.float64), spare=3)
    with sr.testing.forbid_sync():
        got = sr.dropout(d, 0.5, key=KEY)
    assert got.tolist() == sr.dropout(sample("two levels", torch.float64), 0.5, key=KEY).tolist()


@pytest.mark.parametrize("give_key", [False, True])
def test_a_checkpointed_function_sees_the_same_dropout_again(give_key):
    x = sr.from_lengths(torch.randn(400, 3, requires_grad=True), [100, 300])
    if give_key:
        sr.random.seed(1)
    key = KEY if give_key else None
    masks: list[torch.Tensor] = []

    def layer(t):
        y = sr.dropout(t * t, 0.5, key=key)
        masks.append(y.values.detach() != 0)
        return sr.dropout(torch.exp(y) * t, 0.1, key=key)

    out = checkpoint(layer, x, use_reentrant=False)
    torch.rand(3)
    sr.dropout(x, 0.5)
    (got,) = torch.autograd.grad(out.values.sum(), x.values)
    assert len(masks) == 2
    assert torch.equal(masks[0], masks[1])
    assert torch.equal(got.ne(0), out.values.detach().ne(0))


def test_numbers_that_a_checkpoint_could_not_repeat_are_refused():
    sr.random.seed(1)
    x = sr.from_lengths(torch.randn(4, requires_grad=True), [1, 3])
    out = checkpoint(lambda t: sr.dropout(t * t, 0.5), x, use_reentrant=False)
    with pytest.raises(RuntimeError, match="during a backward pass"):
        out.values.sum().backward()


def test_functional_transforms():
    x = sample("rows", torch.float64)
    got = torch.func.grad(lambda v: sr.dropout(x._with(v), 0.5, key=KEY).values.sum())(x.values)
    assert torch.equal(got, 2.0 * (sr.dropout(sr.ones_like(x), 0.5, key=KEY).values != 0))
    assert torch.func.grad(lambda v: sr.dropout(x._with(v), 0.5).values.sum())(x.values).shape == (6,)


@pytest.mark.parametrize("name", NAMES)
def test_samples_of_the_record_run(name):
    op = TABLE["dropout"]
    for dtype in (*DTYPES["float"], *DTYPES["complex"]):
        if name == "NaN and inf" and dtype.is_complex:
            continue
        for arguments in op.samples:
            got = eval(f"op.function({arguments})", {"op": op, "x": sample(name, dtype), "sr": sr, "torch": torch})
            assert got.dtype == dtype


def test_wrong_calls_of_the_record():
    op = TABLE["dropout"]
    x = sr.from_lengths(torch.ones(6, 2), [3, 1, 2])
    for arguments, kind, text in op.errors:
        with pytest.raises(kind, match=text):
            eval(f"op.function({arguments})", {"op": op, "x": x, "sr": sr, "torch": torch})
