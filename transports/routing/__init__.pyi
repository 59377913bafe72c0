from ..protocol._heuristics import Signature as Signature
from ._given_files import (
    Accepted as Accepted,
    FileLimits as FileLimits,
    GivenFile as GivenFile,
    OpenFile as OpenFile,
    accept_files as accept_files,
    auto_read_safe as auto_read_safe,
    estimated_tokens as estimated_tokens,
    is_textual as is_textual,
    large_file_warning as large_file_warning,
)
from ._guard import clamp as clamp
from ._layers import Fetcher as Fetcher, OnDownload as OnDownload
from ._policy import (
    ABP as ABP,
    GITHUB as GITHUB,
    TABLEAU as TABLEAU,
    AgentLimits as AgentLimits,
    CustomEvent as CustomEvent,
    FieldRule as FieldRule,
    ObservationClamped as ObservationClamped,
    OnRoutingEvent as OnRoutingEvent,
    ResourcePolicy as ResourcePolicy,
    RoutingConfig as RoutingConfig,
    RoutingPolicy as RoutingPolicy,
    Step as Step,
    TransformContext as TransformContext,
    Transformer as Transformer,
    named_preset as named_preset,
    preset as preset,
)
from ._result import Result as Result
from ._router import Router as Router
