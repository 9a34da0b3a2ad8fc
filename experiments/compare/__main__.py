"""Runs `experiments.compare.job`, optimised a little and on one thread.

Much of its time is compilation, and its operations are too small to be shared among threads.
"""

from experiments import part

if __name__ == "__main__":
    part.compile_quickly()

    from experiments.compare.job import main

    main()
