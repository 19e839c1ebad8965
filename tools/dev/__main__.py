"""`python3 tools/dev COMMAND...`, as ./dev calls it."""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).absolute().parents[2]
sys.path[0] = str(ROOT / "tools")
from dev import commands  # noqa: E402

if __name__ == "__main__":
    sys.exit(commands.main(ROOT, sys.argv[1:], dict(os.environ)))
