"""Run the command line: ``onebit``, or ``python -m onebit``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it with one line, also while it is still being imported."""
    try:
        from onebit.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped.\n")
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
