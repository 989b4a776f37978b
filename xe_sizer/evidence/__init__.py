"""Published measurements: records to scenarios to errors, and stacks fitted to runs."""
