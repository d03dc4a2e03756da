"""Ray's provider of made-up nodes, for node groups with an amount of memory, which it refuses."""

import threading
from typing import Any
from unittest.mock import patch

from ray._private import parameter
from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider

BUSY = threading.Lock()  # groups are launched from a thread each


class MadeUpNodes(FakeMultiNodeProvider):
    """Starts each node with its group's memory, as a pod's limit gives it to Ray."""

    def _create_node_with_resources_and_labels(
        self, node_config: Any, tags: Any, count: int, resources: dict, labels: Any
    ) -> None:
        rest = {name: amount for name, amount in resources.items() if name != "memory"}
        with BUSY:
            whole = parameter.RayParams

            def given(**settings: Any) -> Any:
                return whole(**settings, memory=resources.get("memory"))

            make = super()._create_node_with_resources_and_labels
            with patch.object(parameter, "RayParams", given):
                make(node_config, tags, count, rest, labels)
