"""Hooks of modules that take and give ragged tensors, against torch's own hooks on the packed values or padded rows."""

from __future__ import annotations

import copy
import pickle
import threading
from collections import namedtuple
from typing import Any

import pytest
import torch
from torch import nn

import serrate as sr
from serrate.errors import RaggednessError

LENGTHS = [3, 0, 2]


def batch(seed: int = 0, width: int = 4) -> sr.Tensor:
    values = torch.randn(5, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return sr.from_lengths(values, LENGTHS).requires_grad_()


class Recorder:
    """A hook that keeps what it is called with."""

    def __init__(self, gives: Any = None) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.gives = gives

    def __call__(self, module: nn.Module, *gradients: Any) -> Any:
        self.seen.append(gradients)
        return None if self.gives is None else self.gives(*gradients)


def values(gradients: tuple[Any, ...]) -> list[Any]:
    return [g.values if isinstance(g, sr.Tensor) else g for g in gradients]


def modules() -> list[nn.Module]:
    torch.manual_seed(1)
    return [
        nn.Linear(4, 3).double(),
        nn.LayerNorm(4).double(),
        nn.GELU(),
        nn.Sequential(nn.Linear(4, 2), nn.ReLU()).double(),
    ]


@pytest.mark.parametrize("number", range(4))
def test_gradients_are_those_of_torch_s_own_hook_on_the_packed_values(number):
    module, x = modules()[number], batch()
    ours, pre, theirs = Recorder(), Recorder(), Recorder()
    handles = [sr.register_full_backward_hook(module, ours), sr.register_full_backward_pre_hook(module, pre)]
    (module(x).values ** 3).sum().backward()
    for handle in handles:
        handle.remove()
    leaf = x.values.detach().clone().requires_grad_()
    module.register_full_backward_hook(theirs)
    (module(leaf) ** 3).sum().backward()
    ((given, made),), ((only,),), ((want_given, want_made),) = ours.seen, pre.seen, theirs.seen
    for gradients, want in ((given, want_given), (made, want_made), (only, want_made)):
        assert len(gradients) == len(want) == 1
        assert isinstance(gradients[0], sr.Tensor)
        assert gradients[0].structure is x.structure
        assert torch.equal(gradients[0].values, want[0])
    assert torch.equal(x.values.grad, leaf.grad)


def test_hooks_that_change_gradients():
    x, y, z = batch(), batch(), batch()
    module = modules()[0]
    with sr.register_full_backward_hook(module, lambda _, given, made: (given[0] * 2,)):
        sr.sum(module(x)).backward()
    with sr.register_full_backward_pre_hook(module, lambda _, made: (made[0] * 3,)):
        sr.sum(module(y)).backward()
    sr.sum(module(z)).backward()
    assert torch.equal(x.values.grad, z.values.grad * 2)
    torch.testing.assert_close(y.values.grad, z.values.grad * 3)


class Two(nn.Module):
    """Ragged, dense and other arguments; several results."""

    def forward(self, x: sr.Tensor, scale: torch.Tensor, name: str, other: sr.Tensor) -> Any:
        return x * scale, sr.sum(other, axis=1).torch(), name, other * 2


def test_every_argument_and_result_has_its_place():
    x, other, scale = batch(), batch(1), torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    module, hook = Two(), Recorder()
    sr.register_full_backward_hook(module, hook)
    ragged, dense, name, twice = module(x, scale, "name", other)
    assert name == "name"
    (sr.sum(ragged * 5) + dense.sum() * 7 + sr.sum(twice)).torch().backward()
    ((given, made),) = hook.seen
    assert [type(g) for g in given] == [sr.Tensor, torch.Tensor, type(None), sr.Tensor]
    assert [type(g) for g in made] == [sr.Tensor, torch.Tensor, type(None), sr.Tensor]
    assert torch.equal(given[0].values, torch.full((5, 4), 10.0, dtype=torch.float64))
    torch.testing.assert_close(given[1], 5 * x.values.detach().sum())
    assert torch.equal(given[3].values, torch.full((5, 4), 9.0, dtype=torch.float64))
    assert torch.equal(made[0].values, torch.full((5, 4), 5.0, dtype=torch.float64))
    assert torch.equal(made[1], torch.full((3, 4), 7.0, dtype=torch.float64))


def test_attention_gives_a_tuple_and_an_encoder_many_hooks():
    torch.manual_seed(2)
    attention = nn.MultiheadAttention(4, 2, batch_first=True).double()
    hook, x = Recorder(), batch()
    sr.register_full_backward_hook(attention, hook)
    sr.sum(attention(x, x, x, need_weights=False)[0] ** 2).backward()
    ((given, made),) = hook.seen
    assert len(given) == 3
    assert made[1] is None
    total = sum(values(given))
    torch.testing.assert_close(total, x.values.grad)
    layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True).double()
    found: dict[str, Recorder] = {}
    for name, part in layer.named_modules():
        found[name] = Recorder()
        sr.register_full_backward_hook(part, found[name])
    y = batch(3)
    layer(y).values.square().sum().backward()
    assert {name for name, each in found.items() if each.seen} >= {
        "",
        "self_attn",
        "linear1",
        "linear2",
        "norm1",
        "norm2",
    }
    torch.testing.assert_close(found[""].seen[0][0][0].values, y.values.grad)


Pair = namedtuple("Pair", ["first", "second"])


class Named(nn.Module):
    def forward(self, x: sr.Tensor) -> Pair:
        return Pair(x * 2, x * 3)


def test_named_tuples_and_dense_tensors_of_serrate_s():
    module, hook, x = Named(), Recorder(), batch()
    sr.register_full_backward_hook(module, hook)
    made = module(x)
    assert isinstance(made, Pair)
    sr.sum(made.second).backward()
    dense = sr.asarray(torch.ones(2, 2, requires_grad=True))
    sr.sum(module(dense).first).backward()
    (ragged,), (plain,) = hook.seen[0][0], hook.seen[1][0]
    assert ragged.shape == x.shape
    assert plain.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_calls_without_gradients_with_failures_and_within_each_other():
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))

        def forward(self, x: sr.Tensor, depth: int) -> sr.Tensor:
            if depth < 0:
                raise ValueError("too deep")
            return self(x * self.scale, depth - 1) if depth else x * self.scale

    module, hook = Outer(), Recorder()
    sr.register_full_backward_hook(module, hook)
    with torch.no_grad():
        module(batch(), 1)
    with pytest.raises(ValueError, match="too deep"):
        module(batch(), -1)
    x = batch()
    sr.sum(module(x, 2)).backward()
    assert [float(given[0].values[0, 0]) for given, _ in hook.seen] == [2.0, 4.0, 8.0]
    hook.seen.clear()
    made = []
    threads = [threading.Thread(target=lambda i=i: made.append(module(batch(i), 1))) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in made:
        sr.sum(each).backward()
    assert len(hook.seen) == 8


def test_where_no_argument_needs_a_gradient_torch_warns_and_the_hook_fires():
    module, hook, x = modules()[0], Recorder(), batch().detach()
    sr.register_full_backward_hook(module, hook)
    out = module(x)
    with pytest.warns(UserWarning, match="no inputs require gradients"):
        sr.sum(out).backward()
    ((given, made),) = hook.seen
    assert given == (None,)
    assert made[0].shape == (3, sr.Ragged(LENGTHS), 3)


def test_second_gradients_pass_hooks():
    module, hook, x = modules()[3], Recorder(), batch()
    sr.register_full_backward_hook(module, hook)
    (first,) = torch.autograd.grad((module(x).values ** 3).sum(), [x.values], create_graph=True)
    first.square().sum().backward()
    leaf = x.values.detach().clone().requires_grad_()
    (plain,) = torch.autograd.grad((module(leaf) ** 3).sum(), [leaf], create_graph=True)
    plain.square().sum().backward()
    torch.testing.assert_close(x.values.grad, leaf.grad)
    assert len(hook.seen) >= 1


def test_wrong_hooks_and_what_they_give():
    module = nn.ReLU()
    with pytest.raises(TypeError, match=r"torch\.nn\.Module, got int"):
        sr.register_full_backward_hook(3, print)
    with pytest.raises(TypeError, match="callable"):
        sr.register_full_backward_pre_hook(module, "hook")
    for gives, error, match in (
        (lambda given, made: given[0], TypeError, "None or a tuple of grad_input, got Tensor"),
        (lambda given, made: (), ValueError, "as many grad_input as there are, 1, got 0"),
        (lambda given, made: (sr.ragged([[1.0], []]),), RaggednessError, "cannot become one of shape"),
    ):
        with sr.register_full_backward_hook(module, Recorder(gives)), pytest.raises(error, match=match):
            sr.sum(module(batch())).backward()


def test_torch_s_own_backward_hook_warns_that_it_cannot_fire():
    module, hook = nn.ReLU(), Recorder()
    module.register_full_backward_hook(hook)
    with pytest.warns(UserWarning, match=r"For backward hooks to be called.*serrate\.tensor\.tensor\.Tensor"):
        sr.sum(module(batch())).backward()
    assert not hook.seen


def test_forward_hooks_see_ragged_tensors():
    module, x = modules()[0], batch()
    seen: list[Any] = []
    module.register_forward_pre_hook(lambda m, args: seen.append(args) or (args[0] * 2,))
    module.register_forward_pre_hook(lambda m, args, named: seen.append(named), with_kwargs=True)
    module.register_forward_hook(lambda m, args, out: seen.append((args, out)) or out + 1)
    got = module(x)
    assert seen[0][0] is x
    assert seen[1] == {}
    (arg,), out = seen[2]
    assert arg.structure is out.structure is x.structure
    torch.testing.assert_close(got.values, module.forward(x.values * 2) + 1)
    handle = nn.modules.module.register_module_forward_hook(lambda m, args, out: out * 0)
    try:
        assert sr.sum(nn.ReLU()(x)).item() == 0.0
    finally:
        handle.remove()


def _print(module: nn.Module, grad_input: Any, grad_output: Any) -> None:
    """A hook that another process can find by its name."""


def test_a_module_with_hooks_is_pickled_and_copied():
    layer = nn.Linear(4, 2, dtype=torch.float64)
    sr.register_full_backward_hook(layer, _print)
    loaded = pickle.loads(pickle.dumps(layer))
    assert torch.equal(loaded(batch()).values, layer(batch()).values)
    recorder = Recorder()
    sr.register_full_backward_hook(layer, recorder)
    copied = copy.deepcopy(layer)
    sr.sum(copied(batch())).backward()
    assert not recorder.seen
    sr.sum(layer(batch())).backward()
    assert len(recorder.seen) == 1


@pytest.mark.parametrize("gives", [list, lambda made: {"a": made[0]}])
def test_results_that_hooks_cannot_see_are_named(gives):
    class Other(nn.Module):
        def forward(self, x: sr.Tensor) -> Any:
            return gives((x * 2,))

    module = Other()
    sr.register_full_backward_hook(module, Recorder())
    with pytest.raises(TypeError, match=r"a tensor or a tuple of them, got (list|dict)"):
        module(batch())
