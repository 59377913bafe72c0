from ._internal.notebook import ProgressBar as ProgressBar
from .artifacts._base import ArtifactStore as ArtifactStore
from .artifacts._memory import NoneStore as NoneStore
from .artifacts._opening import open_store as open_store
from .artifacts._ref import ArtifactRef as ArtifactRef, Scope as Scope
from .artifacts._retention import Retention as Retention
from .artifacts.local._store import LocalStore as LocalStore
from .base import Features as Features, Transport as Transport
from .errors import (
    ABPError as ABPError,
    AddressBlocked as AddressBlocked,
    ArtifactNotFound as ArtifactNotFound,
    BadDescriptor as BadDescriptor,
    BadEncoding as BadEncoding,
    BadRecording as BadRecording,
    BinaryError as BinaryError,
    BrowserCrashed as BrowserCrashed,
    BrowserNotFound as BrowserNotFound,
    CallTimeout as CallTimeout,
    CapabilityError as CapabilityError,
    ConnectFailed as ConnectFailed,
    ContextLost as ContextLost,
    Corrupt as Corrupt,
    Disconnected as Disconnected,
    DiscoveryFailed as DiscoveryFailed,
    DownloadFailed as DownloadFailed,
    EncodingRefused as EncodingRefused,
    LedgerError as LedgerError,
    NotAbpApp as NotAbpApp,
    NotATable as NotATable,
    NotRecorded as NotRecorded,
    OutcomeUnknown as OutcomeUnknown,
    PageCrashed as PageCrashed,
    PersonRequired as PersonRequired,
    ProfileInUse as ProfileInUse,
    ProtocolError as ProtocolError,
    RedirectRefused as RedirectRefused,
    SizeMismatch as SizeMismatch,
    StoreError as StoreError,
    StoreFull as StoreFull,
    StoreUnavailable as StoreUnavailable,
    TooLarge as TooLarge,
    TransportError as TransportError,
    Truncated as Truncated,
    UnsupportedBinary as UnsupportedBinary,
    UrlExpired as UrlExpired,
    UsageError as UsageError,
)
from .mcp.views._host import ViewRequest as ViewRequest
from .memory import MemoryTransport as MemoryTransport
from .playwright._browser import Browser as Browser
from .playwright._transport import PlaywrightTransport as PlaywrightTransport, WebMcpTransport as WebMcpTransport
from .postmessage._transport import PostMessageTransport as PostMessageTransport
from .protocol._capabilities import CapabilitiesChanged as CapabilitiesChanged
from .protocol._declarations import Capability as Capability
from .protocol._payloads import (
    ElicitationRequest as ElicitationRequest,
    Notification as Notification,
    Progress as Progress,
)
from .protocol._strict_json import JSONValue as JSONValue
from .protocol.binary import BinaryData as BinaryData
from .protocol.messages import Effect as Effect, Message as Message
from .recording._file import Recording as Recording
from .routing._policy import ObservationClamped as ObservationClamped, RoutingPolicy as RoutingPolicy
from .routing._result import Result as Result
from .routing._router import Router as Router
from .session._call import CallHandle as CallHandle, CallStatus as CallStatus
from .session._connect import connect as connect
from .session._events import (
    CallFinished as CallFinished,
    CallStarted as CallStarted,
    ConnectionChanged as ConnectionChanged,
    Event as Event,
    Retrying as Retrying,
)
from .session._evidence import Evidence as Evidence
from .session._manifest import discover as discover
from .session._session import Session as Session
from .session._views import View as View
from .websocket._transport import WebSocketTransport as WebSocketTransport

#: The version of the distribution, ``unknown`` where it is not installed.
__version__: str
