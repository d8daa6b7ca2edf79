from rlframe.utils.seed import set_pkg_seed as set_pkg_seed
