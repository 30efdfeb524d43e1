"""The first example of the README; `make demo` runs it."""

import serrate as sr

# Three rows of 2, 0 and 3 numbers.
x = sr.ragged([[1.0, 2.0], [], [3.0, 4.0, 5.0]])
print(x)
print(x.values)  # what is stored: five numbers, no padding
print(x.offsets)  # where rows begin and end in it
print(x[:, -2:])  # the last two of each row
print(x.to_dense(padding_value=-1))

# Two patients with 3 and 1 visits, the visits with 2, 4, 1 and 3 codes.
codes = sr.ragged([[[11, 12], [21, 22, 23, 24], [31]], [[41, 42, 43]]])
print(codes.shape)
print(codes[:, -1])  # each patient's last visit
print(codes.to_dense())
