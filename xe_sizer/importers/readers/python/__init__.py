"""Python files and notebooks of others: read as syntax trees, evaluated as data, never executed or imported."""

from xe_sizer.importers.readers.python.files import modules_near
from xe_sizer.importers.readers.python.module import Module, read_python
from xe_sizer.importers.readers.python.values import Call, Name, keys_of
from xe_sizer.importers.written import Unread

__all__ = ["Call", "Module", "Name", "Unread", "keys_of", "modules_near", "read_python"]
