"""Side-by-side measurements: each suite is a module with a `main()`, run by `make bench`."""
