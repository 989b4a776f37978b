"""One file for each tool, for what is read of it (TOOL) and what is written for it (EXPORTERS).

The YAML file of the same name is its table: what each key sets, what is lost with those that have no counterpart, and
words that change nothing (docs/adding.md). It is read when a file of the tool was recognised.
"""
