from ._profiles import read_profile as read_profile
