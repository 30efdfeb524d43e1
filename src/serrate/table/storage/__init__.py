"""Tables on disk and elsewhere: the format, reading without trust, and writing whole or not at all."""
