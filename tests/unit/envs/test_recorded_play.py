"""Episodes to learn from are those of controllers that solve their env."""

from __future__ import annotations

import numpy as np

from rlframe.envs.recorded_play import doorkey_demos


def test_the_bot_of_minigrid_opens_the_door_in_each_episode() -> None:
    rows = doorkey_demos()
    ends = rows['terminated'] | rows['truncated']
    np.testing.assert_array_equal(rows['episode'][ends], np.arange(20))
    assert rows['reward'][ends].min() > 0.95
    assert not rows['truncated'].any()
    assert rows['obs'].shape == (len(ends), 7 * 7 * 20)
    begins = np.flatnonzero(~ends)
    np.testing.assert_array_equal(rows['next_obs'][begins], rows['obs'][begins + 1])
