from ._base import ArtifactStore as ArtifactStore, AuditLog as AuditLog, Staged as Staged
from ._content import Durability as Durability, PutOptions as PutOptions
from ._hosts import (
    HostedStore as HostedStore,
    HostFacade as HostFacade,
    HostStore as HostStore,
    StoreForHost as StoreForHost,
)
from ._memory import MemoryStore as MemoryStore, NoneStore as NoneStore
from ._opening import (
    discover_store as discover_store,
    open_store as open_store,
    reindex as reindex,
    sweeping as sweeping,
)
from ._ref import (
    ArtifactRef as ArtifactRef,
    CheckReport as CheckReport,
    Page as Page,
    Problem as Problem,
    Query as Query,
    ReindexReport as ReindexReport,
    Scope as Scope,
)
from ._retention import Removal as Removal, Retention as Retention
from ._search import find as find, is_named as is_named, search as search, versions as versions
from .local._store import LocalStore as LocalStore
