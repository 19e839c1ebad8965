"""What a program is linked with, in the order in which it is searched."""

import os
import subprocess


def softverbs_comes_first(program):
    """softverbs is searched before libibverbs, wherever the latter comes from."""
    loaded = subprocess.run([program], text=True, capture_output=True, check=True,
                            env={**os.environ, "LD_TRACE_LOADED_OBJECTS": "1"}).stdout
    names = [line.split()[0].partition(".so")[0] for line in loaded.splitlines()]
    assert "libsoftverbs" in names, loaded
    if "libibverbs" in names:
        assert names.index("libsoftverbs") < names.index("libibverbs"), loaded
