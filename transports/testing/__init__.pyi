from ..memory import Call as Call
from ._assertions import Golden as Golden, assert_schema as assert_schema, assert_size as assert_size
