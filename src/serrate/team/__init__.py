"""Teams: processes that hold tensors in parts."""
