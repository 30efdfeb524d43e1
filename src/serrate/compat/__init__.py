"""Functions and classes with the names and signatures of other libraries, on Serrate's operations."""
