"""What measures, without the machine: fits, files and profiles; and all of it on a CPU where PyTorch is."""
