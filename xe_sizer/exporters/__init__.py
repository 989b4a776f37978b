"""The chosen plan as what other tools run: configurations and launch commands. One file for each tool, in `tools`."""
