"""Names of derived offsets: each array has another, whatever it is derived from and whatever tensors are called."""

from __future__ import annotations

from random import Random

import pytest
import torch
from tests.fusion.samples import offsets_of
from tests.kernel.harness import check, compare

from serrate.fusion import Fusion, IterDomain, RaggedIterDomain, TensorView, symbol
from serrate.fusion.raggedness import Listed, Pieces, Product, Raggedness, Resized, Scaled, Stored
from serrate.fusion.scalar import Scalar, const
from serrate.kernel import lower

P, Q = (Stored(name, symbol("k"), symbol(f"n{name}")) for name in "pq")
TWO = const(2)

# Names that read like derived ones, so that every way to put them together is tried.
NAMES = [
    "p",
    "q",
    "p_by_2",
    "q_and_p",
    "p_by",
    "by_2",
    "_p",
    "p_",
    "p_times_2",
    "p_plus_1",
    "offsets_1",
    "o",
    "x12ab34cd",
]
NUMBERS: list[Scalar] = [
    *map(const, (1, 2, 12)),
    *map(symbol, ("f", "f_by_2", "by", "p", "x12ab34cd")),
    symbol("f") + 1,
]


def random_raggedness(random: Random, depth: int) -> Raggedness:
    kind = (
        random.choice(["stored", "listed"]) if depth == 0 else random.choice(["pieces", "scaled", "product", "resized"])
    )
    if kind == "stored":
        return Stored(random.choice(NAMES), symbol("k"), symbol("n"))
    if kind == "listed":
        return Listed(tuple(random.choice(NUMBERS) for _ in range(random.randint(0, 3))))
    base = random_raggedness(random, random.randint(0, depth - 1))
    match kind:
        case "pieces":
            return Pieces(base, random.choice(NUMBERS))
        case "scaled":
            by = random.choice(NUMBERS)
            return Scaled(base, by, by)
        case "resized":
            return Resized(base, random.choice([-2, -1, 1, 2]))
    return Product(base, random_raggedness(random, random.randint(0, depth - 1)))


@pytest.mark.parametrize("seed", range(4))
def test_no_two_arrays_have_one_name(seed: int) -> None:
    random, known = Random(seed), dict[str, Raggedness]()
    for _ in range(4000):
        made = random_raggedness(random, random.choice([0, 1, 1, 2, 3]))
        if isinstance(made, Stored):
            continue  # where a kernel has both, it is refused: see below
        assert known.setdefault(made.array, made) == made, f"{known[made.array]} and {made} are both {made.array}"
        assert made.array.isidentifier()
        assert len(made.array) <= 50
    assert len(known) > 1000


def test_names_can_be_read() -> None:
    assert [Pieces(P, TWO).array, Product(Q, P).array, Resized(P, -1).array] == ["p_by_2", "q_and_p", "p_minus_1"]
    pieces, product = Pieces(Product(Q, P), TWO).array, Product(Q, Pieces(P, TWO)).array
    assert pieces != product
    assert all(name.startswith("q_and_p_by_2_x") for name in (pieces, product))


def test_a_name_says_nothing_of_what_the_host_knows() -> None:
    """Offsets that are one array have one name, whatever is known of them beside."""
    again = Stored("p", symbol("m"), const(9), longest=const(3), exact=False)
    assert Pieces(Product(Q, again), TWO).array == Pieces(Product(Q, P), TWO).array


def pairs(fusion: Fusion) -> TensorView:
    """[c, q, p]: each element of one row with each of another row of the same component."""
    c = IterDomain("k", name="c")
    q, p = (
        RaggedIterDomain.from_offsets(
            fusion.input(name, [symbol("k") + 1], "int64"), size=f"n{name}", component=c, name=name
        )
        for name in "qp"
    )
    for name in "qp":
        fusion.input(f"size_of_{name}", [f"n{name}"])
    return fusion.input("x", [c, q, p])


def test_a_kernel_with_pieces_of_a_product_and_a_product_with_pieces() -> None:
    """Loops walk q and the pieces of p; in memory lie pieces of the product of q and p."""
    fusion = Fusion()
    y = fusion.output(pairs(fusion) * 2.0, "y")
    c, q, p = y.domain.logical
    outer, inner = IterDomain.split(IterDomain.merge(q, p), 2)
    y.set_allocation_domain([IterDomain.combine(c, outer), inner], fill=-1.0)
    y.split(2, 2).merge(1).combine(0)
    lowered = lower(fusion, y)
    names = [buffer.name for buffer in lowered.kernel.buffers]
    assert len([name for name in names if name.startswith("q_and_p_by_2_x")]) == 2
    left, right = [3, 0, 1, 2], [1, 2, 3, 3]
    products = [a * b for a, b in zip(left, right, strict=True)]
    x = torch.arange(1.0, sum(products) + 1)
    inputs = [offsets_of(left), offsets_of(right), torch.zeros(sum(left)), torch.zeros(sum(right)), x]
    check(lowered, inputs)
    got = lowered(*inputs)[0]
    compare(lowered, inputs, {"y": got})
    rows = [torch.nn.functional.pad(row * 2, [0, len(row) % 2], value=-1.0) for row in x.split(products)]
    assert torch.equal(got.reshape(-1), torch.cat(rows))


def flat_pieces(name: str, size: str = "n", axis: str = "r") -> TensorView:
    fusion = Fusion()
    data, offsets = fusion.input(name, [size]), fusion.input("offsets", [symbol("k") + 1], "int64")
    nested = fusion.view_as_nested(data, offsets, names=("c", axis))
    return fusion.output(nested * 2.0, "y").split(1, 2).combine(0)


def test_a_size_that_is_called_like_offsets() -> None:
    y = flat_pieces("x", size="offsets_by_2")
    with pytest.raises(
        ValueError, match="'offsets_by_2' is the name of offsets that the kernel computes; rename the size"
    ):
        lower(y.fusion, y)


def test_offsets_that_are_called_like_others() -> None:
    fusion = Fusion()
    x = fusion.input("x", ["n"])
    given, other = (fusion.input(name, [symbol(f"k{name}") + 1], "int64") for name in ("offsets", "offsets_by_2"))
    y = fusion.output(fusion.view_as_nested(x, given) * 2.0, "y").split(1, 2).combine(0)
    fusion.view_as_nested(x, other)
    with pytest.raises(ValueError, match="'offsets_by_2' is the name of offsets that the kernel computes; rename"):
        lower(fusion, y)


def test_an_axis_that_is_called_like_offsets() -> None:
    """The variable of its loop gets another name."""
    y = flat_pieces("x", axis="offsets_by_2")
    lowered = lower(y.fusion, y)
    inputs = [torch.arange(6.0), offsets_of([3, 0, 1, 2])]
    check(lowered, inputs)
    assert torch.equal(lowered(*inputs)[0], inputs[0] * 2)
