"""`horovodrun` as a function."""

import sys

from sirtaki.launch import cli


def run_commandline() -> None:
    """Run `horovodrun` with the arguments of this program; raises SystemExit when it fails."""
    code = cli.horovodrun()
    if code != 0:
        sys.exit(code)


if __name__ == "__main__":
    run_commandline()
