"""The program `guardian.py <fd>`, which watches a host's workers; see `guarding.watch`.

It is started without `site` and finds the rest beside itself. The rest is imported, because Python
keeps what it imports compiled, but compiles a program at each start.
"""

import sys

if __name__ == "__main__":
    sys.path.append(__file__.rpartition("/")[0])
    sys.exit(__import__("guarding.watch", fromlist=["main"]).main())
