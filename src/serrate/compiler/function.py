"""Jitted: a function over ragged tensors, traced once for each signature and run as a few fused kernels."""

from __future__ import annotations

import functools
import inspect
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._C import _are_functorch_transforms_active
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from serrate.compiler import notebook, progress
from serrate.compiler.compiling import Compiled, compiled, loose_inputs
from serrate.compiler.constants import KEPT
from serrate.compiler.hosting import GuardFailed
from serrate.compiler.lowered import Lowered
from serrate.compiler.numbers import Pinned
from serrate.compiler.outside import Outside
from serrate.compiler.refusing import is_users_own
from serrate.compiler.signature import Arguments, Place, Unsupported, changed, masked, signature_of
from serrate.compiler.stats import Stats
from serrate.eager import philox
from serrate.eager.precision import autocast_state
from serrate.errors import CompileError, DeviceMismatchError, TracerError
from serrate.native.call_keys import KeyOf, key_function
from serrate.ops.call import TRACER
from serrate.program.program import replaced
from serrate.runtime import toolchain
from serrate.schedule import Planned
from serrate.tensor import abstract, regions
from serrate.tensor.tensor import Tensor
from serrate.tensor.tracing import part, untraced


@dataclass
class _Family:
    """The programs of one skeleton, by their variables."""

    programs: dict[Any, Compiled | str] = field(default_factory=dict)
    """What runs a signature, or why it runs eagerly."""
    others: dict[Any, list[Compiled]] = field(default_factory=dict)
    """Programs of the same signature for other facts of the tensors outside of the arguments."""
    seen: list[Any] | None = None
    """The variables of the last trace."""
    loose: frozenset[Place] = frozenset()
    """The numbers that changed, and are inputs now."""
    pinned: frozenset[int] = frozenset()
    """The variables that a program has to know."""
    is_static: bool = False
    """Whether programs have to know the sizes of first axes."""

    def key(self, given: Arguments) -> Any:
        """What tells the programs of this family apart."""
        variables = masked(given.variables, self.loose)
        return (variables, given.sizes) if self.is_static else variables

    def find(self, given: Arguments) -> Compiled | str | None:
        """What runs a call, if it was made before."""
        key = self.key(given)
        found = self.programs.get(key)
        if found is None or isinstance(found, str) or _is_same(found):
            return found
        return next(filter(_is_same, self.others.get(key, ())), None)

    def enter(self, given: Arguments, made: Compiled | str) -> None:
        """Let calls of this signature be run by what was made for it."""
        key = self.key(given)
        before = self.programs.get(key)
        if isinstance(before, Compiled):
            kept = self.others.setdefault(key, [])
            kept.append(before)
            del kept[:-_FACTS]
        self.programs[key] = made


class _Methods(dict[Any, Any]):
    """The compiled methods of an object. A copy of the object has none yet."""

    def __init__(self, instance: Any = None) -> None:
        super().__init__()
        self.instance = instance

    def __deepcopy__(self, memo: Any) -> _Methods:
        return _Methods()

    def __reduce__(self) -> Any:
        return _Methods, ()


class _Plans:
    """How torch.compile sees the calls of a function: each `Plan` is an attribute, by its name in graphs."""


class Jitted:
    """A compiled function. Call it as the function itself; `stats` says what it did, `lower` shows its stages."""

    def __init__(self, function: Callable[..., Any], static: Iterable[str] = ()) -> None:
        self.function = function
        self.stats = Stats()
        self._families: dict[Any, _Family] = {}
        self._known: dict[Any, Compiled] = {}
        self._lock = threading.RLock()
        self._outside = Outside(function)
        self._static = _places(function, static)
        self._name = _identifier(function)
        self._plans = _Plans()
        self._name_of_method = ""  # among the compiled methods of its object
        target = type(function).forward if isinstance(function, torch.nn.Module) else function
        functools.update_wrapper(self, target)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the function gives for these arguments."""
        if is_dynamo_compiling():
            from serrate.compiler.embedding import embedded

            return embedded(self, arguments, named)
        if (
            TRACER.get() is not None  # another trace sees what this function calls
            or abstract.current() is not None
            or forward_ad._current_level >= 0
            or _are_functorch_transforms_active()
        ):
            return self.function(*arguments, **named)
        self.stats.calls += 1
        key, tensors = self._key(arguments, named)
        found = self._known.get(key)
        if found is None or not _is_same(found):
            try:
                given = Arguments(arguments, named, self._static)
            except Unsupported:
                self.stats.eager_calls += 1
                return self.function(*arguments, **named)
            family, asked = self._found(given)
            if isinstance(asked, str):
                self.stats.eager_calls += 1
                return self.function(*arguments, **named)
            found, tensors = asked, given.tensors
            if family.loose:
                numbers = loose_inputs(given, family.loose, found.limits)
                if numbers is None:
                    self.stats.eager_calls += 1
                    return self._eagerly(found, given)
                return self._run(found, arguments, named, tensors, numbers)
            if not family.is_static:
                self._remember(key, found)
        return self._run(found, arguments, named, tensors)

    def _run(
        self,
        found: Compiled,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        tensors: list[Any],
        numbers: Sequence[torch.Tensor] = (),
    ) -> Any:
        """What a program gives for the tensors and the loose numbers of a call."""
        if found.writes:
            _check_aliases(found, [*tensors, *found.captured])
        before = philox.state() if found.draws else None
        try:
            returned = found.run(*tensors, *numbers, *found.captured)
        except _RAISED:  # The function itself raises what eager code raises, or catches it.
            if before is not None:
                philox.restore(before)
            self.stats.eager_calls += 1
            return self._eagerly(found, Arguments(arguments, named, self._static))
        return _written(found, [*tensors, *found.captured], returned) if found.writes else returned

    def _key(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, list[Any]]:
        """The key of a call, and the tensors among its arguments; None where only `Arguments` knows all of them."""
        key_of = None if self._static else _key_function()
        seen = None if key_of is None else key_of(arguments, named)
        return (None, []) if seen is None else ((seen[0], self._surroundings()), seen[1])

    def _remember(self, key: Any, found: Compiled) -> None:
        """Let later calls of this key find their program at once."""
        if key is None:
            return
        if len(self._known) >= _KNOWN:
            self._known.clear()
        self._known[key] = found

    def _surroundings(self) -> tuple[Any, ...]:
        """What decides about the program besides the arguments."""
        return (
            torch.is_grad_enabled(), torch.get_default_dtype(), regions.default(), *autocast_state().items(),
            self._outside.key(),
        )  # fmt: skip

    @untraced
    def _uncompiled(self, *arguments: Any, **named: Any) -> Any:
        """A call that torch.compile leaves out of its graphs."""
        return self(*arguments, **named)

    def _eagerly(self, found: Compiled, given: Arguments) -> Any:
        """What the function gives eagerly, which writes to its arguments in the end, and not if it raises."""
        if not found.writes:
            return self.function(*given.arguments, **given.named)
        tensors = [each.clone() if n in found.writes else each for n, each in enumerate(given.tensors)]
        arguments, named = given.rebuilt(tensors)
        returned = self.function(*arguments, **named)
        back = {id(each): given.tensors[n] for n, each in enumerate(tensors)}
        for number in found.writes:
            if number < len(tensors):
                given.tensors[number].copy_(tensors[number])
        return replaced(returned, lambda part: back.get(id(part), part))

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A method of an object, where the function stands in a class: each object has a compiled one of its own."""
        if instance is None:
            return self
        if is_dynamo_compiling():
            from serrate.compiler.embedding import method_of

            return method_of(self, instance, owner)
        return self._bound_to(instance, owner)

    def _bound_to(self, instance: Any, owner: Any) -> Any:
        """The compiled function of a method of an object."""
        own = getattr(instance, "__dict__", None)
        if not isinstance(own, dict):  # a class, or an object whose class has slots: it is an argument
            return types.MethodType(self, instance)
        kept = own.setdefault(KEPT, _Methods(instance))
        if kept.instance is not instance:  # a shallow copy has those of what it is a copy of
            kept = own[KEPT] = _Methods(instance)
        if self not in kept:
            kept[self] = Jitted(self.function.__get__(instance, owner), ())
            kept[self]._name_of_method = f"{self._name}_{len(kept)}"
            setattr(kept, kept[self]._name_of_method, kept[self])
            kept[self]._static = frozenset(each - 1 if isinstance(each, int) else each for each in self._static)
        return kept[self]

    def __reduce__(self) -> Any:
        return _again, (self.function, self._static)

    def __getattr__(self, name: str) -> Any:
        """What a module has besides its `forward`: its parameters, its state, its modes."""
        function = self.__dict__.get("function")
        if isinstance(function, torch.nn.Module) and not name.startswith("__"):
            return getattr(function, name)
        raise AttributeError(f"a compiled function has no attribute {name!r}")

    def lower(self, *arguments: Any, **named: Any) -> Lowered:
        """The stages of the function for these arguments, as texts; nothing runs but, perhaps, a trace."""
        try:
            given = Arguments(arguments, named, self._static)
        except Unsupported as error:
            return Lowered(str(error), self._name)
        return Lowered(self._found(given)[1], self._name)

    # ---------------------------------------------------------------------------------------------------- programs

    def _found(self, given: Arguments) -> tuple[_Family, Compiled | str]:
        """What runs a call."""
        skeleton = (*given.skeleton, *self._surroundings())
        family = self._families.get(skeleton)
        found = None if family is None else family.find(given)
        if family is not None and found is not None:
            return family, found
        with self._lock:
            family = self._families.setdefault(skeleton, _Family())
            found = family.find(given)  # another thread may have made it meanwhile
            return family, self._compiled(family, given) if found is None else found

    def _compiled(self, family: _Family, given: Arguments) -> Compiled | str:
        """The program of a signature that has none yet."""
        if self._outside.reason:
            made: Compiled | str = self._outside.reason
            family.enter(given, made)
            return made
        if family.seen is not None and not family.is_static:
            places = changed(family.seen, given.variables)
            loose = {place for place in places if place[0] not in family.pinned}
            if self._outside.asks_for_classes:  # what stands for a number is of another class
                loose = {(which, axis) for which, axis in loose if axis >= 0}
            if loose - family.loose:
                family.loose |= loose
                found = family.find(given)
                if found is not None:
                    return found
        family.seen = given.variables
        outside, is_changed = self._outside.found(), False
        while True:
            try:
                made = self._traced(given, family)
                break
            except Pinned as error:
                family.pinned |= error.places
                family.loose = frozenset(place for place in family.loose if place[0] not in error.places)
            except (TracerError, DeviceMismatchError):
                raise
            except CompileError as error:
                made = _without_compiler(error)
                break
            except (TypeError, ValueError, LookupError, AttributeError, RuntimeError, ArithmeticError) as error:
                if is_users_own(error):
                    raise
                if family.is_static:
                    made = f"{type(error).__name__}: {error}"
                    break
                family.is_static, family.loose = True, frozenset()
            finally:
                if not outside.holds():  # the call that follows does again what the trace did
                    outside.restore()
                    is_changed = True
        if is_changed and not isinstance(made, str):
            made = "the function changes what it finds outside of its arguments, and not only tensors"
        family.enter(given, made)
        return made

    def _note(self, planned: Planned, *inputs: torch.Tensor) -> None:
        """Count the bytes of the first launch of a fusion."""
        moved = planned.moved_bytes(*inputs)
        self.stats.bytes_moved += moved
        self.stats.least_bytes += min(moved, planned.least_bytes(*inputs))  # offsets may be given and never read

    def _traced(self, given: Arguments, family: _Family) -> Compiled:
        self.stats.traces += 1
        before = toolchain.counts()
        with progress.shown(self._name), notebook.opened(self.function):
            made = compiled(
                self.function, given, is_static=family.is_static, loose=family.loose, name=self._name, note=self._note,
                may_seed=not _SEEDING.isdisjoint(self._outside.names),
            )  # fmt: skip
        ran, hits = toolchain.counts()
        self.stats.compiles += ran - before[0]
        self.stats.disk_hits += hits - before[1]
        for stage in (made.forward, made.back):
            if stage is not None:
                self.stats.kernels += stage.kernels
                self.stats.library_calls += stage.library_calls
        return made


part([Jitted.__call__, Jitted.__get__])

_RAISED = (GuardFailed, RuntimeError, ValueError, TypeError, ArithmeticError, LookupError)
"""What a call may raise before anything is written; it is then made once more, by the function itself."""
_SEEDING = frozenset({"manual_seed", "seed", "set_rng_state", "setstate", "set_state", "random", "np"})
"""Names by which a function may reach generators of random numbers: to seed them, or those of Python and numpy."""
_FACTS = 16
"""Programs of one signature that are kept for other facts of the tensors outside of the arguments."""
_KNOWN = 1024
"""Keys of calls that a function remembers before it forgets all of them."""


@functools.cache
def _key_function() -> KeyOf | None:
    """What makes keys of calls, if there is compiled code for it."""
    return key_function(signature_of)


def _again(function: Callable[..., Any], static: frozenset[Any]) -> Jitted:
    """A compiled function for a copy of its function."""
    made = Jitted(function)
    made._static = static
    return made


def _places(function: Callable[..., Any], static: Iterable[str]) -> frozenset[Any]:
    """The names of static arguments, and their places where they can be given by position."""
    names = tuple(static)
    if not names:
        return frozenset()
    target = function.forward if isinstance(function, torch.nn.Module) else function
    parameters = list(inspect.signature(target).parameters)
    unknown = [name for name in names if name not in parameters]
    if unknown:
        raise TypeError(f"static= names {', '.join(unknown)}, but the parameters are {', '.join(parameters) or 'none'}")
    return frozenset(names) | {parameters.index(name) for name in names}


def _identifier(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return name if name.isidentifier() else "kernel"


def _is_same(found: Compiled) -> bool:
    """Whether tensors outside of the arguments are what they were: their data may have been exchanged."""
    for given, dtype, shape, requires_grad in found.watched:
        values = given.values if isinstance(given, Tensor) else given
        if values.dtype is not dtype or values.shape != shape or values.requires_grad is not requires_grad:
            return False
    return True


def _check_aliases(found: Compiled, tensors: list[Any]) -> None:
    """Refuse arguments that share memory with one that is written to."""
    storages = [_storage(each) for each in tensors]
    for number in found.writes:
        for other, storage in enumerate(storages):
            if other != number and storage and storage == storages[number]:
                raise ValueError(
                    f"argument {number} is written to and shares its memory with argument {other}, so that the result "
                    f"would depend on the order of kernels; give a clone of one of them (what the function finds "
                    f"outside of its arguments is counted behind them)"
                )


def _storage(given: Any) -> int:
    values = given.values if isinstance(given, Tensor) else given
    return int(values.untyped_storage().data_ptr())


def _written(found: Compiled, tensors: list[Any], returned: Any) -> Any:
    """What the function returns, after its arguments hold what it wrote to them."""
    result, written = returned
    _write(found, tensors, written)
    return result


def _write(found: Compiled, tensors: list[Any], written: Iterable[Any]) -> None:
    for number, value in zip(found.writes, written, strict=True):
        target = tensors[number]
        if isinstance(target, Tensor):
            target.copy_(value)
        else:
            target.copy_(value.values if isinstance(value, Tensor) else value)


_warned = False


def _without_compiler(error: CompileError) -> str:
    """Where there is no C++ compiler, one warning for the process; a compiler that fails on a source is an error."""
    global _warned
    try:
        toolchain.compiler()
    except CompileError:
        if not _warned:
            _warned = True
            warnings.warn(
                "there is no C++ compiler, so functions of sr.jit run eagerly; install g++ or set SERRATE_CXX",
                stacklevel=5,
            )
        return "there is no C++ compiler"
    raise error
