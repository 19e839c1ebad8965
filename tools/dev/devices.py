"""RDMA devices: which ones are available, and how a command runs on one."""

from . import errors

SOFT0 = "soft0"  # softverbs makes it in any process.
RXE0 = "rxe0"  # The kernel's Soft-RoCE, of this machine or in the guest.


def local(project):
    """Returns the devices of this machine's kernel."""
    if not project.infiniband.is_dir():
        return []
    return sorted(path.name for path in project.infiniband.iterdir() if path.exists())


def available(project):
    """Returns every device, a real one first."""
    names = [*local(project), SOFT0]
    # The guest is made from Debian's packages.
    if RXE0 not in names and project.has_guest() and project.has_command("apt-get"):
        names.append(RXE0)
    return names


def best(project):
    """Returns a real device, else soft0."""
    return available(project)[0]


def is_here(project, device):
    """Returns whether a device needs no guest."""
    return device == SOFT0 or device in local(project)


def require(project, device):
    names = available(project)
    if device not in names:
        raise errors.Failure(f"no device '{device}' here; there is: {' '.join(names)}")


def setup_for(project, device):
    """Installs the packages to build with, and the guest's when `device` is in the guest."""
    if device:
        require(project, device)
    if not device or is_here(project, device):
        project.setup("build")
    else:
        project.setup("build", "guest")


def guest_command(project, folder, command):
    timeout = project.variable("CORDMA_VM_TIMEOUT", "1800")
    return [str(project.guest), "run", "--timeout", timeout, "--share", str(folder), "--", *command]


def run_on(project, device, folder, command):
    """Runs a command where `device` is. Files that the command writes into `folder` stay."""
    if is_here(project, device):
        return project.run(command, CORDMA_TEST_DEVICE=device)
    require(project, device)
    # The guest hands on all CORDMA_* variables.
    return project.run(guest_command(project, folder, command), CORDMA_TEST_DEVICE=RXE0)
