"""A cluster as the suite of all launchers sees one."""

from kube_world import ClusterWorld, replica

from troupe.runtime.launch.launcher import Component
from troupe_router.cluster.launcher import KubernetesLauncher


class SuiteCluster:
    """The World of a ClusterWorld."""

    def __init__(self, cluster: ClusterWorld) -> None:
        self._cluster = cluster

    def launcher(self) -> KubernetesLauncher:
        return self._cluster.launcher()

    def component(self, name: str, *, restarts: bool = True, **env: str) -> Component:
        return replica(name, restarts=restarts, **env)

    async def life(self, name: str) -> str:
        workload, _, ordinal = name.rpartition("-")
        pod = await self._cluster.pod(workload, int(ordinal))
        restarts = pod["status"]["containerStatuses"][0]["restartCount"]
        return f"{pod['metadata']['uid']}/{restarts}"

    async def kill(self, name: str) -> None:
        workload, _, ordinal = name.rpartition("-")
        await self._cluster.delete_pod(workload, int(ordinal))

    async def exit(self, name: str, code: int, words: str = "") -> None:
        workload = name.rpartition("-")[0]
        pod = await self._cluster.pod(workload)
        await self._cluster.end(workload, code, words)
        if pod["spec"].get("restartPolicy", "Always") != "Never" and code != 3:
            await self._cluster.restart(workload)

    async def num_running(self) -> int:
        return len(await self._cluster.pods())
