"""The libraries whose collectives are measured, and how each is started."""

import dataclasses
import pathlib

from . import devices

FOLDER = "build/bench/collectives"
SOFTVERBS = ("libsoftverbs.so", "libsoftverbs_cm.so")
OPERATIONS = ("barrier", "broadcast", "all_gather", "all_reduce", "reduce_scatter", "all_to_all")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@dataclasses.dataclass(frozen=True)
class Library:
    key: str
    name: str  # The head of its column.
    program: pathlib.Path
    commands: object  # commands(size, folder): (command line, variables) of each process.
    variables: dict = dataclasses.field(default_factory=dict)
    needs: str = ""  # A command that must be there, too.
    operations: tuple = OPERATIONS
    # Names of an operation by algorithm; the fastest counts.
    algorithms: dict = dataclasses.field(default_factory=dict)

    def is_here(self, project):
        return self.program.is_file() and (not self.needs or project.has_command(self.needs))

    def names(self, operation):
        """Returns the names under which the operation is ordered."""
        if operation not in self.operations:
            return ()
        return self.algorithms.get(operation, (operation,))


def one_a_rank(program, *arguments):
    def commands(size, folder):
        return [([str(program), *(word.format(folder=folder) for word in arguments)],
                 {"RANK": str(rank), "WORLD_SIZE": str(size)}) for rank in range(size)]
    return commands


def by_mpirun(program):
    def commands(size, _):
        return [(["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(size),
                  str(program)], {})]
    return commands


def over_softverbs(project):
    """Open MPI's variables that leave UCX over soft0 as the only way between ranks."""
    folder = project.root / "build/subprojects/softverbs/src"
    return {**AS_ROOT, "OMPI_MCA_pml": "ucx", "OMPI_MCA_btl": "self", "UCX_TLS": "rc,self",
            "UCX_NET_DEVICES": f"{devices.SOFT0}:1",
            "LD_PRELOAD": ":".join(str(folder / name) for name in SOFTVERBS)}


def all_of(project, device):
    """Returns all libraries, cordma first, also those that are not installed."""
    group, gloo, mpi, raw = (project.root / FOLDER / f"{name}_collectives"
                             for name in ("group", "gloo", "mpi", "raw"))
    on_device = {"CORDMA_TEST_DEVICE": device}
    halving = ("all_reduce", "all_reduce:bcube", "all_reduce:halving")
    return [
        Library("cordma", "cordma", group, one_a_rank(group), on_device),
        Library("gloo", "Gloo", gloo, one_a_rank(gloo, "{folder}"),
                algorithms={"all_reduce": halving}),
        Library("mpi", "Open MPI", mpi, by_mpirun(mpi), AS_ROOT, "mpirun"),
        Library("mpi_softverbs", "MPI, softverbs", mpi, by_mpirun(mpi), over_softverbs(project),
                "mpirun"),
        Library("raw", "bound", raw, one_a_rank(raw, "{folder}/meeting"), on_device),
        Library("raw_event", "bound asleep", raw, one_a_rank(raw, "{folder}/meeting", "event"),
                on_device, operations=("barrier",)),
    ]
