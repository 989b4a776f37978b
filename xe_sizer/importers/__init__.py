"""Configurations and launch commands of other tools, read into scenarios. One file for each tool, in `tools`."""
