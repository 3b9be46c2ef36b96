"""Ask the real device what the recorder answered from a profile.

The recorder writes down each question that host code asked, with the answer it gave (see
``record/runtime``: device.c, occupancy.c, functions.c). Here the same questions go to the driver.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from cudahercules.errors import PlanError
from cudahercules.record.plan import DeviceAnswer, LaunchPlan
from cudahercules.replay.driver import Context, DriverError, api
from cudahercules.replay.image import LoadedModule

UNCHECKED = frozenset({"memory"})
"""Free and total memory are answered with fixed round figures on purpose."""


class Questioner:
    """Answers questions in the recorder's words. ``modules`` are the artifact's, loaded."""

    def __init__(self, context: Context, modules: Sequence[LoadedModule]):
        self.context, self.modules = context, modules
        self._answers: dict[str, Callable[..., str]] = {
            "attribute": self._attribute,
            "stream": self._priorities,
            "occupancy": self._occupancy,
            "dynamic_shared": self._dynamic_shared,
            "clusters": self._clusters,
            "cluster_size": self._cluster_size,
        }

    def ask(self, given: DeviceAnswer) -> str:
        """The device's answer to ``given.question``; the given one for what is not checked.

        Raises PlanError for a question that is not known."""
        if given.question in UNCHECKED:
            return given.answer
        if given.question == "properties":
            return self._properties(given.answer)
        kind, *words = given.question.split()
        if kind == "function" and len(words) == 1:
            return self._function(words[0], given.answer)
        if kind not in self._answers:
            raise PlanError(f"the plan holds an unknown question about the device: {given.question!r}")
        try:
            return self._answers[kind](*words)
        except (TypeError, ValueError) as error:
            raise PlanError(f"the plan holds a damaged question: {given.question!r}") from error

    def _attribute(self, number: str) -> str:
        try:
            return str(self.context.attribute(int(number)))
        except DriverError as error:
            if error.sticky:
                raise
            return "not answered"

    def _properties(self, given: str) -> str:
        numbers = re.findall(r"(\d+)=", given)
        return " ".join(f"{n}={self._attribute(n)}" for n in numbers)

    def _priorities(self, *words: str) -> str:
        if words != ("priorities",):
            raise ValueError(words)
        least, greatest = api.cuCtxGetStreamPriorityRange()
        return f"{int(least)} {int(greatest)}"

    def _kernel(self, name: str, dynamic: int = 0) -> Any:
        """The function, allowed as much dynamic shared memory as the question speaks of."""
        for module in self.modules:
            try:
                function = module.function(name)
            except PlanError:
                continue
            allowed = api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            if dynamic > int(api.cuFuncGetAttribute(allowed, function)):
                api.cuFuncSetAttribute(function, allowed, dynamic)
            return function
        raise PlanError(f"the plan asks about a kernel that the artifact does not have: {name!r}")

    def _function(self, name: str, given: str) -> str:
        """The fields of ``given`` as this device has them. ``constant`` is taken as it is: recorder
        and driver count differently what is no user's constant memory."""
        function, kinds = self._kernel(name), api.CUfunction_attribute
        asked = {
            "registers": kinds.CU_FUNC_ATTRIBUTE_NUM_REGS,
            "shared": kinds.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
            "local": kinds.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
            "threads": kinds.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
        }
        fields = dict(re.findall(r"(\w+)=(\d+)", given))
        for field in fields.keys() & asked.keys():
            fields[field] = str(int(api.cuFuncGetAttribute(asked[field], function)))
        return " ".join(f"{field}={value}" for field, value in fields.items())

    def _occupancy(self, name: str, threads: str, dynamic: str, flags: str) -> str:
        function = self._kernel(name, int(dynamic))
        ask = api.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
        return str(int(ask(function, int(threads), int(dynamic), int(flags))))

    def _dynamic_shared(self, name: str, blocks: str, threads: str) -> str:
        ask = api.cuOccupancyAvailableDynamicSMemPerBlock
        return str(int(ask(self._kernel(name), int(blocks), int(threads))))

    def _clusters(self, name: str, threads: str, dynamic: str, cluster: str) -> str:
        x, y, z = (int(n) for n in cluster.split(","))
        function = self._kernel(name, int(dynamic))
        if x * y * z > 8:
            self._allow_large_clusters(function)
        config = self._config(int(threads), int(dynamic), (x, y, z))
        return str(int(api.cuOccupancyMaxActiveClusters(function, config)))

    def _cluster_size(self, name: str, threads: str, dynamic: str, non_portable: str) -> str:
        function = self._kernel(name, int(dynamic))
        if int(non_portable):
            self._allow_large_clusters(function)
        config = self._config(int(threads), int(dynamic), (1, 1, 1))
        config.numAttrs = 0
        return str(int(api.cuOccupancyMaxPotentialClusterSize(function, config)))

    @staticmethod
    def _allow_large_clusters(function: Any) -> None:
        allowed = api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        api.cuFuncSetAttribute(function, allowed, 1)

    @staticmethod
    def _config(threads: int, dynamic: int, cluster: tuple[int, int, int]) -> Any:
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = cluster
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes = dynamic
        attribute = api.CUlaunchAttribute()
        attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        value = attribute.value.clusterDim
        value.x, value.y, value.z = cluster
        config.attrs = [attribute]
        config.numAttrs = 1
        return config


def differences(
    plan: LaunchPlan, context: Context, modules: Sequence[LoadedModule]
) -> tuple[DeviceAnswer, ...]:
    """Each question of the plan whose answer on this device is another, with the real answer."""
    questioner = Questioner(context, modules)
    found = []
    for given in plan.answers:
        real = questioner.ask(given)
        if real != given.answer:
            found.append(DeviceAnswer(question=given.question, answer=real))
    return tuple(found)
