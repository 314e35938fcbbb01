"""The program `guardian.py <fd>`, which watches a host's workers; see `guarding.watch`.

It is started without `site` and imports the rest from its own folder: Python caches the bytecode
of modules, but compiles a program at each start.
"""

import sys

if __name__ == "__main__":
    sys.path.append(__file__.rpartition("/")[0])
    sys.exit(__import__("guarding.watch", fromlist=["main"]).main())
