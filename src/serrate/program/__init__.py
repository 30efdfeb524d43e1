"""Types of tensors: what is known about a tensor before its elements are, and how types of results are found."""
