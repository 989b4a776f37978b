"""What several tools share: the DeepSpeed configuration."""
