"""`python -m xe_sizer`: the same as the command `xe-sizer`."""

from xe_sizer.cli.main import run

if __name__ == "__main__":
    run()
