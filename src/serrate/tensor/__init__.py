"""The ragged tensor: its type, how to make one, look at it, index it and leave it."""
