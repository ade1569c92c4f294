"""Statistics of small samples: plain floats in, plain values out; a missing number raises, it is never 0."""
