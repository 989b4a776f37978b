"""Inference: layouts of a replica, memory, steps, steady states, queueing, sizing."""
