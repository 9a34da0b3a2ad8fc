"""Runs `asyncjax.rollouts.command_line`."""

import sys

from asyncjax.rollouts.command_line import main

if __name__ == "__main__":
    sys.exit(main())
