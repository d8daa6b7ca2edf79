"""``python -m rlframe``, which is ``python -m rlframe.entry``."""

import sys

from rlframe.entry.__main__ import main

if __name__ == '__main__':
    sys.exit(main())
