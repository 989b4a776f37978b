"""Peaks of live tensors of real Hugging Face models, counted without a GPU; needs the extra `trace`."""
