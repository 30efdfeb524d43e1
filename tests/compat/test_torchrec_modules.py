"""Embedding collections give the numbers and gradients of TorchRec's, from the same state dict."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torchrec
from tests.compat.torchrec_pairs import random_keyed, same
from torchrec.modules import embedding_configs

from serrate.compat import torchrec as ours
from serrate.errors import RaggednessError

KEYS = ["user", "item", "tag"]


def tables(kind, module, **options):
    """Two tables, one of them shared by two features; "item" is looked up in both."""
    return [
        getattr(kind, module)(num_embeddings=10, embedding_dim=4, name="t1", feature_names=["user", "item"], **options),
        getattr(kind, module)(num_embeddings=12, embedding_dim=4, name="t2", feature_names=["item", "tag"], **options),
    ]


def pooling(kind, mode):
    return {"pooling": getattr(kind.PoolingType if kind is ours else embedding_configs.PoolingType, mode)}


def collections(mode="SUM", weighted=False, **options):
    made = [
        kind.EmbeddingBagCollection(
            tables(kind, "EmbeddingBagConfig", **pooling(kind, mode), **options), is_weighted=weighted
        )
        for kind in (ours, torchrec)
    ]
    made[0].load_state_dict(made[1].state_dict())
    return made


def gradients(module, loss):
    return torch.autograd.grad(loss, list(module.parameters()))


@pytest.mark.parametrize(("mode", "weighted"), [("SUM", False), ("MEAN", False), ("SUM", True)])
@pytest.mark.parametrize("dtypes", [(torch.int64, torch.int64), (torch.int32, torch.int32), (torch.int32, torch.int64)])
def test_pooled(mode, weighted, dtypes):
    mine, theirs = collections(mode, weighted)
    one, other = random_keyed(5, weighted=weighted, dtype=dtypes[0], values_dtype=dtypes[1])
    made, expected = mine(one), theirs(other)
    same((made.keys(), made.length_per_key()), (expected.keys(), expected.length_per_key()))
    assert made.keys() == ["user", "item@t1", "item@t2", "tag"]
    torch.testing.assert_close(made.values(), expected.values())
    torch.testing.assert_close(
        gradients(mine, (made.values() ** 3).sum()), gradients(theirs, (expected.values() ** 3).sum())
    )


def test_gradients_of_weights():
    mine, theirs = collections(weighted=True)
    one, other = random_keyed(5, weighted=True)
    found = []
    for kjt, module in ((one, mine), (other, theirs)):
        weights = kjt.weights().clone().requires_grad_()
        kind = type(kjt)
        made = module(kind(kjt.keys(), kjt.values(), weights, lengths=kjt.lengths()))
        found.append(torch.autograd.grad((made.values() ** 2).sum(), weights)[0])
    torch.testing.assert_close(found[0], found[1])
    assert found[0].abs().sum() > 0


def test_mean_of_an_empty_bag_is_zero():
    mine, theirs = collections("MEAN")
    lengths = torch.zeros(6, dtype=torch.int64)
    made = mine(ours.KeyedJaggedTensor(KEYS, torch.empty(0, dtype=torch.int64), lengths=lengths)).values()
    expected = theirs(torchrec.KeyedJaggedTensor(KEYS, torch.empty(0, dtype=torch.int64), lengths=lengths)).values()
    same(made, expected)
    assert not made.any()


def test_deduplicated_rows_are_expanded():
    mine, theirs = collections()
    inverse = (KEYS, torch.tensor([[0, 2, 1, 0], [0, 0, 0, 1], [3, 1, 1, 0]]))
    one, other = random_keyed(0, strides=[[3], [2], [4]], inverse=inverse)
    made, expected = mine(one), theirs(other)
    torch.testing.assert_close(made.values(), expected.values())
    torch.testing.assert_close(
        gradients(mine, (made.values() ** 2).sum()), gradients(theirs, (expected.values() ** 2).sum())
    )
    # The order of keys does not matter, and a part of the batch is that part of the result.
    torch.testing.assert_close(mine(one.permute([2, 0, 1])).values(), expected.values())
    torch.testing.assert_close(mine(one[[3, 1]]).values(), expected.values()[[3, 1]])
    torch.testing.assert_close(
        mine(ours.KeyedJaggedTensor.concat_batches([one, one])).values(), expected.values().repeat(2, 1)
    )
    with pytest.raises(RaggednessError, match="inverse_indices"):
        mine(random_keyed(0, strides=[[3], [2], [4]])[0])


@pytest.mark.parametrize("need_indices", [False, True])
def test_not_pooled(need_indices):
    mine, theirs = (
        kind.EmbeddingCollection(tables(kind, "EmbeddingConfig"), need_indices=need_indices)
        for kind in (ours, torchrec)
    )
    mine.load_state_dict(theirs.state_dict())
    one, other = random_keyed(5, dtype=torch.int32)
    made, expected = mine(one), theirs(other)
    same(made, expected)
    same(mine.embedding_names_by_table(), theirs.embedding_names_by_table())
    same((mine.embedding_dim(), mine.need_indices()), (theirs.embedding_dim(), theirs.need_indices()))
    assert made["tag"].tensor.partitions[0].same_as(one["tag"].tensor.partitions[0])
    sums = [sum((jt.values() ** 3).sum() for jt in found.values()) for found in (made, expected)]
    torch.testing.assert_close(gradients(mine, sums[0]), gradients(theirs, sums[1]))


@pytest.mark.parametrize("module", ["EmbeddingBagCollection", "EmbeddingCollection"])
def test_weights_start_alike(module):
    config = module.replace("Collection", "Config")
    found = []
    for kind in (ours, torchrec):
        torch.manual_seed(7)
        found.append(getattr(kind, module)(tables(kind, config, weight_init_max=0.5)).state_dict())
    same(dict(found[0]), dict(found[1]))
    made = getattr(ours, module)(tables(ours, config, init_fn=torch.nn.init.ones_))
    assert all(bool((weight == 1).all()) for weight in made.parameters())
    torch.nn.init.zeros_(next(made.parameters()))
    made.reset_parameters()
    assert bool((next(made.parameters()) == 1).all())


def test_half_tables_give_float():
    half = ours.EmbeddingBagConfig(4, 2, "t", ours.DataType.BF16, ["f"])
    made = ours.EmbeddingBagCollection([half])
    assert made.embedding_bags["t"].weight.dtype == torch.bfloat16
    kjt = ours.KeyedJaggedTensor(["f"], torch.tensor([1, 2]), lengths=torch.tensor([2, 0]))
    assert made(kjt).values().dtype == torch.float32
    assert made.device == torch.device("cpu")
    assert not made.is_weighted()
    assert made.embedding_bag_configs() == [half]
    assert ours.EmbeddingBagCollection([half], device=torch.device("meta")).device.type == "meta"


def test_a_table_without_features_has_its_name():
    made = ours.EmbeddingBagCollection([ours.EmbeddingBagConfig(num_embeddings=4, embedding_dim=2, name="f")])
    assert made(ours.KeyedJaggedTensor(["f"], torch.tensor([1]), lengths=torch.tensor([1]))).keys() == ["f"]


def test_torchrec_input_goes_in():
    mine, theirs = collections()
    _, other = random_keyed(5)
    torch.testing.assert_close(mine(other).values(), theirs(other).values())


def config(**options):
    return ours.EmbeddingBagConfig(**({"num_embeddings": 4, "embedding_dim": 2, "name": "t"} | options))


def ids(values, key="t"):
    return ours.KeyedJaggedTensor([key], torch.tensor(values), lengths=torch.tensor([len(values)]))


MEAN = ours.PoolingType.MEAN
WRONG = [
    (lambda: config(num_embeddings=0), ValueError, "num_embeddings of table 't'"),
    (lambda: config(embedding_dim=2.5), ValueError, "embedding_dim of table 't'"),
    (lambda: ours.EmbeddingBagCollection([config(), config()]), ValueError, "'t' is there twice"),
    (lambda: ours.EmbeddingBagCollection([config(name="items")]), ValueError, "got 'items'"),
    (lambda: ours.EmbeddingBagCollection([config(name="")]), ValueError, "got ''"),
    (lambda: ours.EmbeddingBagCollection([config(pooling=ours.PoolingType.NONE)]), ValueError, "SUM or MEAN"),
    (lambda: ours.EmbeddingBagCollection([config(pooling=MEAN)], is_weighted=True), ValueError, "needs SUM pooling"),
    (lambda: ours.EmbeddingBagCollection([config(data_type="INT4")]), ValueError, "data_type of table 't'"),
    (lambda: ours.EmbeddingCollection([config()]), TypeError, "must be EmbeddingConfigs"),
    (
        lambda: ours.EmbeddingCollection([ours.EmbeddingConfig(4, 2, "a"), ours.EmbeddingConfig(4, 3, "b")]),
        ValueError,
        r"one embedding_dim, got \[2, 3\]",
    ),
    (lambda: ours.EmbeddingBagCollection([config()])(ids([1], "f")), KeyError, "looks up feature 't'"),
    (lambda: ours.EmbeddingBagCollection([config()], is_weighted=True)(ids([1])), ValueError, "'t' has none"),
    (lambda: ours.EmbeddingBagCollection([config()])(ids([1, 4])), IndexError, "index 4"),
    (lambda: ours.EmbeddingBagCollection([config()])(torch.ones(2)), TypeError, "must be a KeyedJaggedTensor"),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG)
def test_wrong_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


class Bag(torch.nn.Module):
    """A module that may stand in the place of an `nn.EmbeddingBag`."""

    def forward(self, input, offsets=None, per_sample_weights=None):
        weights = torch.ones(input.shape) if per_sample_weights is None else per_sample_weights
        rows = [(input[a:b] * weights[a:b]).sum() for a, b in itertools.pairwise(offsets)]
        return torch.stack(rows)[:, None].expand(-1, 4)


@pytest.mark.parametrize("weighted", [False, True])
def test_bags_may_be_replaced(weighted):
    made = collections(weighted=weighted)
    kjts = random_keyed(5, weighted=weighted)
    seen = []
    for each in made:
        each.embedding_bags["t2"] = Bag()
        each.embedding_bags["t1"].register_forward_hook(
            lambda module, inputs, options, output: seen.append(sorted(options)), with_kwargs=True
        )
    torch.testing.assert_close(made[0](kjts[0]).values(), made[1](kjts[1]).values())
    assert seen[0] == seen[-1] == ["input", "offsets", "per_sample_weights"]


def test_a_bag_without_the_last_offset():
    mine, theirs = collections()
    one, other = random_keyed(5)
    mine.embedding_bags["t2"].include_last_offset = False
    torch.testing.assert_close(mine(one).values(), theirs(other).values())


def test_configs_of_torchrec_and_their_fields():
    _, theirs = collections()
    taken = ours.EmbeddingBagCollection(tables(torchrec, "EmbeddingBagConfig"))
    taken.load_state_dict(theirs.state_dict())
    one, other = random_keyed(5)
    torch.testing.assert_close(taken(one).values(), theirs(other).values())
    assert config(num_embeddings=np.int64(5)).num_embeddings == 5
    assert config(need_pos=False, use_virtual_table=False, num_embeddings_post_pruning=None).name == "t"
    assert ours.EmbeddingBagConfig(4, 2, "t", ours.DataType.FP32, ["f"], 0.5, -0.5).get_weight_init_min() == -0.5


@pytest.mark.parametrize("module", ["EmbeddingBagCollection", "EmbeddingCollection"])
def test_a_compiled_model_gives_the_same(module):
    made = getattr(ours, module)(tables(ours, module.replace("Collection", "Config")))
    kjt = random_keyed(5)[0]
    expected, found = made(kjt), torch.compile(made, backend="eager")(kjt)
    if module == "EmbeddingBagCollection":
        torch.testing.assert_close(found.values(), expected.values())
    else:
        same({key: jt.values() for key, jt in found.items()}, {key: jt.values() for key, jt in expected.items()})


MORE_WRONG = [
    (lambda: config(num_embeddings=True), ValueError, "got True"),
    (lambda: config(use_virtual_table=True), ValueError, "use_virtual_table of table 't' is not supported"),
    (lambda: config(num_embeddings_post_pruning=3), ValueError, "num_embeddings_post_pruning"),
    (lambda: config(feature_names="f"), TypeError, "must be a list, got 'f'"),
    (lambda: config(feature_names=["f", "f"]), ValueError, "must be distinct"),
    (
        lambda: ours.EmbeddingBagCollection([embedding_configs.EmbeddingConfig(num_embeddings=4, embedding_dim=2)]),
        TypeError,
        "got torchrec.modules.embedding_configs.EmbeddingConfig",
    ),
    (lambda: ours.EmbeddingBagCollection([config()])(ids([1, -1])), IndexError, "feature 't' holds index -1"),
    (
        lambda: ours.EmbeddingCollection([ours.EmbeddingConfig(4, 2, "t")])(ids([1, 7])),
        IndexError,
        "feature 't' holds index 7",
    ),
    (
        lambda: ours.EmbeddingBagCollection([config()])(
            ours.KeyedJaggedTensor(["t"], torch.ones(2, 2, dtype=torch.int64), lengths=torch.tensor([2]))
        ),
        ValueError,
        "2D",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), MORE_WRONG)
def test_more_wrong_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
