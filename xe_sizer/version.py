"""The version of the tool, which reports and saved answers name."""

__version__ = "1.0.0"
