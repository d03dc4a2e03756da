"""Which nodes of a running cluster take work: not those that are being drained, nor those that
joined during the run and differ from it.

A late node is looked at when the first worker comes up there, as all nodes are before a run
(`preflight`), in a thread of its own. What differs is told once, and no worker stays there: the run
goes on without that node.
"""

import threading
from collections.abc import Callable, Mapping

from desa_ray.cluster.preflight import Needs, check_nodes
from desa_ray.errors import DesaError
from desa_ray.pipeline.packing import Node

NODE_LABEL = "ray.io/node-id"  # Ray's own, on every node


class NodeWatch:
    """Verdicts on nodes by id. Until `begin` every node is taken as it is.

    Args:
        note: informs the user about a node that gets no work.
    """

    def __init__(self, note: Callable[[str], None] = lambda text: None):
        self.note = note
        self._needs: Needs | None = None
        self._asked: set[str] = set()
        self._verdicts: dict[str, str] = {}  # what is wrong; empty where nothing is

    def begin(self, needs: Needs) -> None:
        """Check all nodes that are there now.

        Raises:
            Problems: one line for everything that does not fit, naming the nodes.
        """
        found = living()
        check_nodes(needs)
        self._asked = set(found)
        self._verdicts = dict.fromkeys(found, "")
        self._needs = needs

    def verdict(self, node: str) -> str | None:
        """What is wrong with a node, empty where nothing is; None while it is being looked at."""
        if self._needs is None:
            return ""
        if node not in self._asked:
            self._asked.add(node)
            threading.Thread(
                target=self._look, args=(node, self._needs), name="desa-node", daemon=True
            ).start()
        return self._verdicts.get(node)

    def look(self) -> bool:
        """Look at every node that is new; whether there is one whose verdict is not known yet."""
        return None in [self.verdict(node) for node in living()]

    def _look(self, node: str, needs: Needs) -> None:
        found = ""
        try:
            check_nodes(needs, only=node)
        except DesaError as problem:
            found = str(problem)
            self.note(f"a node that joined gets no work: {problem}")
        except Exception as error:  # Ray raises what it likes where the node or the cluster goes
            found = f"{type(error).__name__} while node {node[:8]} was checked"
        self._verdicts[node] = found

    @property
    def refused(self) -> list[str]:
        return sorted(node for node, what in self._verdicts.items() if what)

    def label_selector(self) -> dict[str, str] | None:
        """What keeps an actor from refused nodes; None where there are none."""
        return {NODE_LABEL: f"!in({','.join(self.refused)})"} if self.refused else None

    def taking(self, nodes: Mapping[str, Node]) -> dict[str, Node]:
        """Without the nodes that are refused, or about to be drained or preempted."""
        from ray._private.state import state  # Ray has no public way to ask

        leaving = {*self.refused, *state.get_draining_nodes()}
        return {name: node for name, node in nodes.items() if name not in leaving}


def living() -> list[str]:
    """The ids of the nodes that are alive."""
    import ray

    return [node["NodeID"] for node in ray.nodes() if node["Alive"]]
