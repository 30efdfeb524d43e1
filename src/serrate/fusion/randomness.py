"""Random numbers of a fusion: functions of a key and of the place of an element, the same as `sr.random` draws."""

from __future__ import annotations

import torch

from serrate.fusion.dtypes import wrapped
from serrate.fusion.philox import DIGITS
from serrate.fusion.pointwise import Pointwise
from serrate.fusion.shapes import Shape, check_known, dtype_name
from serrate.fusion.view import TensorView


class Randomness(Pointwise):
    """Operations that draw."""

    def random_bits(self, shape: Shape, seed: TensorView | int, call: TensorView | int, width: int = 32) -> TensorView:
        """Random bits for each element, as int64: 32 of them, the numbers 0 … 2³² - 1, or with width=64 all 64.

        They are those of `sr.random.bits(…, key=sr.random.Key(seed, call))`. Seed and call are numbers, or tensors of
        int64 without axes, which a kernel is called with.

        >>> import torch, serrate as sr
        >>> from serrate.fusion import Fusion
        >>> fusion = Fusion()
        >>> call = fusion.input("call", [], "int64")
        >>> y = fusion.output(fusion.random_bits([3], 7, call), "y")
        >>> fusion.evaluate(torch.tensor(2))[0].tolist() == sr.random.bits((3,), key=sr.random.Key(7, 2)).tolist()
        True
        """
        if width not in (32, 64):
            raise ValueError(f"width must be 32 or 64, got {width!r:.40}")
        key = [_part(name, part) for name, part in (("seed", seed), ("call", call))]
        places = self.packed_positions(shape)
        if width == 32:
            return self.elementwise("philox", places, *key)
        low, high = (self.elementwise("philox", places * 2 + number, *key) for number in (0, 1))
        return self.binary("bitwise_or", self.binary("bitwise_left_shift", high, 32), low)

    def uniform(
        self,
        shape: Shape,
        seed: TensorView | int,
        call: TensorView | int,
        dtype: str | torch.dtype = "float32",
    ) -> TensorView:
        """Numbers spread evenly over 0 ≤ u < 1: those of `sr.random.uniform(…, key=sr.random.Key(seed, call))`."""
        dtype = dtype_name(dtype)
        check_known(dtype, DIGITS, "floating-point dtype")
        digits = DIGITS[dtype]
        drawn = self.random_bits(shape, seed, call, 32 if digits < 32 else 64)
        return self.cast(self.binary("bitwise_and", drawn, 2**digits - 1), dtype) * 2.0**-digits


def _part(name: str, part: TensorView | int) -> TensorView | int:
    """The seed or the number of the call, as an operand."""
    if isinstance(part, TensorView):
        if part.dtype != "int64" or part.ndim:
            raise TypeError(f"the {name} of random numbers is an int or a tensor of int64 without axes, got {part}")
        return part
    if isinstance(part, bool) or not isinstance(part, int):
        raise TypeError(f"the {name} of random numbers must be an int, got {part!r:.40}")
    if not -(2**63) <= part < 2**64:
        raise ValueError(f"the {name} of random numbers must fit 64 bits, got {part}")
    return wrapped(part, "int64")
