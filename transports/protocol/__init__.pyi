from ._declarations import (
    AppInfo as AppInfo,
    Capability as Capability,
    Manifest as Manifest,
    Resource as Resource,
    ResourceTemplate as ResourceTemplate,
    parse as parse,
)
from ._payloads import (
    Answer as Answer,
    ElicitationRequest as ElicitationRequest,
    Initialized as Initialized,
    Notification as Notification,
    Progress as Progress,
)
