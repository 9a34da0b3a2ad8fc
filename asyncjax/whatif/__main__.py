"""Runs `asyncjax.whatif.command`."""

import sys

from asyncjax.whatif.command import main

if __name__ == "__main__":
    sys.exit(main())
