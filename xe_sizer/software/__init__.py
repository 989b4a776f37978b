"""What training frameworks and inference engines do: stacks, engines, number formats, and how far off they were."""
