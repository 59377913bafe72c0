"""``python -m transports.surfaces.cli``: the ``abp`` command."""

import sys

from . import main

sys.exit(main())
