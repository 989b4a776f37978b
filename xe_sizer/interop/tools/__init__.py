"""One file for each tool, for what is read of it (TOOL) and what is written for it (EXPORTERS)."""
