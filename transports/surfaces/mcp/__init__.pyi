from ._bridge import Bridge as Bridge
from ._options import Options as Options
