from ._batch import run as run
from ._jobs import Job as Job, Outcome as Outcome, State as State
from ._outputs import Report as Report
from ._runner import RunOptions as RunOptions
from .ledger._ledger import Ledger as Ledger, open_ledger as open_ledger
from .pool._fleet import BrowserStats as BrowserStats, Endpoint as Endpoint, PoolStats as PoolStats
from .pool._leases import Reuse as Reuse
from .pool._pool import Pool as Pool
