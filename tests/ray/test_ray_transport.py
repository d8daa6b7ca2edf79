"""The transport between the nodes of a Ray cluster, beside what every transport must do."""

from __future__ import annotations

from typing import Any

import pytest
from transports import Coordinator, join, joined, serving

from rlframe.backend.ray.transport import RayTransport
from rlframe.errors import RequestRefusedError

pytestmark = pytest.mark.ray


def test_coordinator_is_reached_at_the_address_of_its_node_and_leaves_a_running_ray(
    ray_of_tests: Any,
) -> None:
    node = ray_of_tests.util.get_node_ip_address()
    with serving('ray', Coordinator()) as server, joined(server):
        assert server.address.rpartition(':')[0] == f'http://{node}'
        stranger = RayTransport({}, server.address)
        with pytest.raises(RequestRefusedError, match='token is missing or wrong'):
            stranger.request(join('stranger'))
        stranger.close()
    assert ray_of_tests.is_initialized()
