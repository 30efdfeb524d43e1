"""The dialects: Programs as MLIR text, by xDSL, which only these files import."""
