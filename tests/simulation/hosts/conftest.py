"""Whether processes of JAX can talk on this machine at all."""

import sys

import pytest

from tests.simulation.hosts.processes import ROOT, ended, environment, free_port

PLAIN = """import sys, jax
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
from jax.experimental.multihost_utils import process_allgather
assert process_allgather(jax.numpy.ones(1)).sum() == 2
"""


@pytest.fixture(scope="session")
def talks(tmp_path_factory):
    """Skips where two processes without any of our code cannot exchange a number."""
    address = f"127.0.0.1:{free_port()}"
    commands = [[sys.executable, "-c", PLAIN, address, str(own)] for own in (0, 1)]
    folder = tmp_path_factory.mktemp("talks")
    ends = ended(commands, environment(address, 2), ROOT, folder, 120)
    if any(end.code for end in ends):
        words = [end.output.strip()[-300:] for end in ends]
        pytest.skip(f"two plain processes of JAX cannot talk on this machine: {words}")
