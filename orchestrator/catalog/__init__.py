"""The models: two sources, one immutable whole (R1-R29). Pure."""
