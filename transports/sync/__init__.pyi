from ._session import (
    ArtifactStore as ArtifactStore,
    Browser as Browser,
    CallHandle as CallHandle,
    LocalStore as LocalStore,
    NoneStore as NoneStore,
    Router as Router,
    Session as Session,
    Staged as Staged,
    connect as connect,
    discover as discover,
    open_store as open_store,
)
from ._views import View as View, expect as expect
