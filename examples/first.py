"""A first look at ragged tensors."""

import serrate as sr

x = sr.ragged([[1.0, 2.0], [], [3.0, 4.0, 5.0]])

print(x)
print(x.shape)
print(x.lengths)
print(x[2])
print(x.to_dense())
