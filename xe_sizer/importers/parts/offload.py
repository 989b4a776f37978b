"""What scenarios call the things that host memory may keep."""

OPTIMIZER, PARAMS, ACTIVATIONS, NONE = "optimizer", "params", "activations", "none"
