"""Everything at once for minutes, while parts of it are killed, stopped, cut off and filled up.

    python -m tests.soak --minutes 30 --report docs/reliability.md

Pages, embedded apps, sockets, an MCP server, ``abp serve`` and ``abp mcp`` make calls side by side. A schedule made
from a seed breaks one part after the other (``faults``). Every call gets one outcome (``record``), every file is
compared with what the app must have made (``callers``), and at the end the stores (``ledger``) and the resources of the
process (``resources``) are compared with what they must be. ``report`` writes docs/reliability.md.
"""
