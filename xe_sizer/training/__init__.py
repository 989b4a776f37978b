"""Training and fine-tuning: layouts, memory, steps, sizing."""
