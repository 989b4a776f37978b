"""Training methods. A new method is one file here that registers itself; importing the package makes all known."""

from xe_sizer.training.methods import full, lora, p_tuning
from xe_sizer.training.methods.method import METHODS, Method, MethodOptions

__all__ = ["METHODS", "Method", "MethodOptions", "full", "lora", "p_tuning"]
