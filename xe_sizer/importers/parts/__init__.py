"""What several tools share: optimizers by their names, DeepSpeed and FSDP settings, launchers."""
