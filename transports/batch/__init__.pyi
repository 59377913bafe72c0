from ._batch import run as run
from ._files import Report as Report
from ._fleet import BrowserStats as BrowserStats, Endpoint as Endpoint, PoolStats as PoolStats
from ._jobs import Job as Job, Outcome as Outcome, State as State
from ._pool import Pool as Pool, Reuse as Reuse
from ._runner import RunOptions as RunOptions
from .ledger._ledger import Ledger as Ledger, open_ledger as open_ledger
