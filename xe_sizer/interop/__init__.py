"""Configurations and launch commands of other tools: rules and a YAML table of each in `tools`, in both directions."""
