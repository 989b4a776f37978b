"""A transformer as a list of weights and operators per rank and micro-batch. Pure shapes, no hardware."""
