"""How many results of a map may be uncommitted, and for how long: the defaults."""

from __future__ import annotations

#: Most results that are uncommitted: at 2 KB each a commit of a megabyte, which takes tens of milliseconds.
BATCH_COMMIT = 500

#: Seconds that a result waits for others: a tenth of what a short model call takes, and five commits a second.
FLUSH_INTERVAL = 0.2
