"""What to change: the smallest changes that mend a job, or a faster layout, each one estimated again."""

from xe_sizer.advice.advise import advise

__all__ = ["advise"]
