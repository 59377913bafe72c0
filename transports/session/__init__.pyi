from ._views import View as View, ViewOptions as ViewOptions  # a session opens views, which are sessions
