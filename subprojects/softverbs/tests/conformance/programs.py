"""The programs of the conformance suite: how each is called, and what its output must have."""

import dataclasses
import os
import pathlib

ITERATIONS = int(os.environ.get("CONFORMANCE_ITERATIONS", "1000"))  # Emulated CPUs want fewer.
# Two that spin on fewer CPUs than they need take turns by time slices.
LATENCY_ITERATIONS = max(ITERATIONS // 10, 5)
SIZES_OF_ALL = [2**exponent for exponent in range(1, 24)]  # perftest's -a
LARGEST = SIZES_OF_ALL[-1]
ON_HOSTS = "@hosts"
# librdmacm's, which makes sockets of programs rsockets.
RSPRELOAD = next((str(path) for pattern in ("lib*", "lib*/*") for path in
                  pathlib.Path("/usr").glob(f"{pattern}/rsocket/librspreload.so")), "")
GROUP = "239.1.1.9"
MPI_CHECK = pathlib.Path(__file__).with_name("mpi_check.c")
# perftest wants both GIDs to be IPv4 addresses or neither.
IPV4_MGID = "0:0:0:0:0:0:0:0:0:0:255:255:" + GROUP.replace(".", ":")
# The environment makes soft0 an InfiniBand port, whose programs address by LID alone.
BY_LID = {"SOFTVERBS_LINK_LAYER": "infiniband"}


@dataclasses.dataclass
class Program:
    """`{device}`, `{gid}`, `{port}`, `{server}` and `{client}`, which are their addresses, in the
    arguments are filled in. A pair is a server and a client."""

    arguments: list  # The arguments of the server, or of a single program.
    expected: list
    forbidden: list = dataclasses.field(default_factory=list)
    client: list = None  # Unset: the server's arguments and its address.
    pair: bool = True
    both_report: bool = False  # The server prints its results, too.
    environment: dict = dataclasses.field(default_factory=dict)
    preload: str = None  # A library to load before the program, if it is there.
    hosts: bool = False  # The pair runs between two hosts, too.
    needs_address: bool = False  # The host needs an address other than loopback.
    is_mpi: bool = False  # `{check}` is the program of mpi_check.c.
    needs_soft: bool = False
    needs_device_file: bool = False  # UCX only looks whether it could open the file.
    needs_cm: bool = False  # The program needs rdma_cm.
    by_cm: bool = False  # The server listens by rdma_cm alone, on `{port}`.
    ready_by: str = "tcp"  # How a server shows that it is ready: conformance.READY has the ways.
    sets_options_late: bool = False  # The server sets options of its listener after rlisten().
    in_group: bool = False  # The program sends to GROUP, without joining it by IP.
    copies: bool = False  # The client copies `{source}` to the server's `{copy}`.
    port: int = None  # The port, if the server always has the same one.
    server_stays: bool = False  # The server is ended when the client has ended.
    is_refused: bool = False  # The client is to fail, with what is expected.
    own_fault: str = None  # A fault of the program's, on any device. One that says so may fail.

    def __post_init__(self):
        if self.client is None:
            self.client = [*self.arguments, "{server}"]
        self.needs_cm |= self.by_cm
        if self.by_cm and self.ready_by == "tcp":
            self.ready_by = "rdma_cm"


def by_gid_or_lid(option, by_lid, cm_option=None):
    """The arguments that choose the address, and what else a program by LID or rdma_cm needs."""
    if cm_option:
        return [cm_option], {"by_cm": True}
    if by_lid:
        return [], {"environment": BY_LID, "needs_soft": True}
    return [option, "{gid}"], {}


def pingpong(kind, *options, size=4096, iterations=ITERATIONS, by_lid=False, on_hosts=False):
    """rdma-core's; -c has it look at the bytes that came."""
    address, more = by_gid_or_lid("-g", by_lid)
    return Program(
        [f"ibv_{kind}_pingpong", "-d", "{device}", *address, "-c", "-s", str(size),
         "-n", str(iterations), *options, "-p", "{port}"],
        [rf"^{size * iterations * 2} bytes in \d+\.\d+ seconds",
         rf"^{iterations} iters in \d+\.\d+ seconds"],
        [r"invalid data", r"Failed", r"Couldn't"],
        both_report=True, hosts=on_hosts, **more)


def xsrq_pingpong(*options, **more):
    """rdma-core's, by XRC; it says no more than that all came."""
    return Program(["ibv_xsrq_pingpong", "-d", "{device}", "-g", "{gid}", *options, "-p", "{port}"],
                   [r"^success$"], [r"(?i)\berror\b|Failed|Couldn't|Unable"], both_report=True,
                   needs_soft=True, **more)


def perftest(test, *options, sizes=None, iterations=None, qps=1, by_lid=False, cm=None,
             on_hosts=False, in_group=False):
    """perftest's: a line of figures for each size, not all of them zero. Its standard deviation can
    be -nan on any device: it takes the root of a rounding error."""
    address, more = by_gid_or_lid("-x", by_lid, cm)
    if sizes is None:
        sizes = [8] if "atomic" in test else [2] if test.endswith("lat") else [65536]
    if iterations is None:
        iterations = LATENCY_ITERATIONS if test.endswith("lat") else ITERATIONS
    size_options = ["-a"] if sizes == SIZES_OF_ALL else []
    if "atomic" not in test and len(sizes) == 1:
        size_options = ["-s", str(sizes[0])]
    if qps > 1:
        size_options += ["-q", str(qps)]
    figure = r"(\d+\.\d+|-?nan)"
    rows = [rf"^ *{size} +{iterations * qps} +(?=.*[1-9]){figure}(\s+{figure})+\s*$"
            for size in sizes]
    return Program(
        [f"ib_{test}", "-d", "{device}", *address, "-F", "-n", str(iterations), *size_options,
         *options, "-p", "{port}"],
        rows, [r"(?i)\berror\b", r"Problems", r"(?i)couldn't|failed"], hosts=on_hosts,
        in_group=in_group, **more)


def qperf(*tests, by_cm=False):
    """A second for each test, the shortest time there is; `quit` ends the server."""
    options = ["-cm", "1"] if by_cm else []
    more = {"needs_cm": True} if by_cm else {"environment": BY_LID, "needs_soft": True}
    return Program(
        ["qperf", "-lp", "{port}"],
        [rf"^{test}:\n(    \S+ += +[\d.]+ \S+\n)+" for test in tests],
        [r"(?i)\berror\b|failed|unable"],
        client=["qperf", "-lp", "{port}", "{server}", "-t", "1", *options, *tests, "quit"],
        hosts=True, **more)


# UCX's lower layer, whose atomics are the device's. The upper one makes them of messages.
UCT_OPTIONS = ["-d", "{device}:1", "-x", "rc_verbs"]


def ucx(test, transport, *options, iterations=200):
    """ucx_perftest by that transport alone. A line of figures is its result. Its average since the
    last line is inf or -nan on any device when no iteration came since."""
    figures = rf"^ +{iterations}( +(\d+\.\d+|inf|-?nan))+( +\d+)+$"
    return Program(
        ["ucx_perftest", "-p", "{port}", "-t", test, "-n", str(iterations), "-w", "5", *options],
        [figures], [r"ERROR|WARN"],
        client=["ucx_perftest", "-p", "{port}", "{server}", "-t", test, "-n", str(iterations),
                "-w", "5", "-f", *options],
        environment={"UCX_TLS": transport, "UCX_NET_DEVICES": "{device}:1"},
        hosts=True, needs_device_file=True)


def ucx_by_cm(transport, *options, **more):
    """UCX's io_demo, which connects by UCX's rdmacm; -q has it look at the bytes that came,
    in messages of random sizes, some with the rendezvous protocol."""
    arguments = ["io_demo", "-p", "{port}", "-q", "-d", "64:200000", *options]
    return Program(
        arguments, [r"Connected to server \[0\] ", r"Client exit with status 'OK'$"],
        [r"ERROR|WARN|corruption"],
        client=[*arguments, "-s", "1", "-i", "100", "-o", "read,write", "{server}"],
        environment={"UCX_TLS": transport, "UCX_NET_DEVICES": "{device}:1",
                     "UCX_SOCKADDR_TLS_PRIORITY": "rdmacm"},
        by_cm=True, server_stays=True, needs_device_file=True, **more)


def cm(server, client, expected, **more):
    """An example of librdmacm: the server's command, and what the client's has besides."""
    return Program(server.split(), expected, [r"(?i)failed|error|mismatch"],
                   client=client.split(), by_cm=True, **more)


def rping(server, client, **more):
    """Before rdma-core 59 its thread may ask for the next event when main has closed the channel:
    `rping: terminate CM event thread before exiting` in rdma-core."""
    return cm(f"rping -s {server} -C 10 -v -V", f"rping -c {client} -C 10 -v -V",
              [r"^ping data: rdma-ping-9: "],
              own_fault=r"^rdma_get_cm_event: Bad file descriptor$", **more)


# The sizes of `-S all`. Its own counts take gigabytes.
SIZES_OF_STREAM = [64, *(size for exponent in range(7, 23)
                         for size in (2**exponent, 3 * 2**(exponent - 1)))]


def stream(program, *options, polls=False, size=1000, count=1000, iterations=5, hosts=True,
           **more):
    """rstream and riostream, which verify what comes. Only the server polls: a client that does
    may see the end of the connection beside its last bytes, and takes that for an error."""
    both = " ".join([program, "-p {port} -T v", *options, f"-S {size} -C {count} -I {iterations}"])
    return cm(both + " -T a" * polls, both + " -s {server}",
              [rf"^custom +\S+ +\S+ +{iterations} +\S+ +\d+\.\d+s "], both_report=True,
              hosts=hosts, **more)


def io_stream(*options, **more):
    """riostream sets the number of its mappings after rlisten(): a client before that has none."""
    return stream("riostream", *options, sets_options_late=True, **more)


def forking_stream():
    """A server that forks listens by TCP, and makes an rsocket of what it accepts: rsocket(7)."""
    found = stream("rstream", "-T s", preload=RSPRELOAD)
    found.arguments += ["-T", "f"]
    return dataclasses.replace(found, environment={"RDMAV_FORK_SAFE": "1"}, by_cm=False,
                               ready_by="tcp")


def fio(verb):
    """fio's rdma engine: the server takes what the client's verb brings. Both have to agree. What
    is sent to the server it verifies; a READ or WRITE completes on the client alone, which has
    nothing to verify."""
    same = ["--ioengine=rdma", "--port={port}", "--bs=64k", "--size=2m"]
    server, client, counted = [], [], "0,32"
    if verb == "send":
        counted = "(0,32|32,0)"  # The client's, or the server's.
        same += ["--verify=crc32c", "--verify_state_save=0"]  # The state would be a file.
        # fio tries once (rnr_retry_count 0), so the server has a receive for each of the 32.
        server, client = ["--iodepth=32", "--verify_fatal=1"], ["--do_verify=0"]
    return Program(
        ["fio", "--name=server", "--rw=read", *same, *server],
        [rf"issued rwts: total={counted},0,0 short"], [r"(?i)\berror\b|verify:"],
        client=["fio", "--name=client", "--rw=write", *same, *client, "--hostname={server}",
                f"--verb={verb}", "--iodepth=4"],
        both_report=verb == "send", by_cm=True, hosts=True)


def fi_pingpong(provider, endpoint, **more):
    """libfabric's, all its sizes; -c has it look at the bytes that came."""
    arguments = ["fi_pingpong", "-p", provider, "-e", endpoint, "-I", "50", "-c"]
    return Program(
        [*arguments, "-B", "{port}"],
        [rf"^{size} +50 +=50 .* \d" for size in ("64", "4k", "1m")], [r"(?i)error"],
        client=[*arguments, "-P", "{port}", "{server}"],
        both_report=True, hosts=True, **more)


def mpi(*options, **more):
    """Open MPI: two ranks of mpi_check.c, which checks all data, and no other way between them."""
    environment = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_btl": "self", **more.pop("environment", {})}
    return Program(
        ["mpirun", "--oversubscribe", "-n", "2", *options, "{check}"],
        [r"^2 ranks: all data is right$"], [r"(?i)\berror\b|warn"],
        pair=False, is_mpi=True, hosts=True, environment=environment, **more)


TABLE = {
    "ibv_devices": Program(["ibv_devices"], [r"^ +{device} +\t[0-9a-f]{{16}}$"], pair=False),
    "ibv_devinfo": Program(
        ["ibv_devinfo", "-v", "-d", "{device}"],
        [r"^hca_id:\t{device}$", r"^\ttransport:\s+InfiniBand \(0\)$", r"^\tphys_port_cnt:\s+1$",
         r"^\t\t\tstate:\s+PORT_ACTIVE \(4\)$", r"^\t\t\tlink_layer:\s+Ethernet$",
         r"^\t\t\tGID\[ *\d+\]:\s+::ffff:\d+\.\d+\.\d+\.\d+, RoCE v2$"],
        [r"(?i)failed"], pair=False),
    "rc_pingpong": pingpong("rc", on_hosts=True),
    "rc_pingpong_events": pingpong("rc", "-e"),
    "rc_pingpong_new_send": pingpong("rc", "-N"),
    "rc_pingpong_large": pingpong("rc", "-m", "1024", size=(1 << 20) + 1, iterations=50),
    "uc_pingpong": pingpong("uc", on_hosts=True),
    "uc_pingpong_events": pingpong("uc", "-e"),
    "ud_pingpong": pingpong("ud", size=1024, on_hosts=True),
    "ud_pingpong_events": pingpong("ud", "-e", size=1024),
    "srq_pingpong": pingpong("srq", on_hosts=True),
    "srq_pingpong_events": pingpong("srq", "-e"),
    "xsrq_pingpong": xsrq_pingpong("-n", "200", hosts=True),
    "xsrq_pingpong_events": xsrq_pingpong("-n", "200", "-e"),
    "send_lat_rc": perftest("send_lat"),
    "send_lat_rc_events": perftest("send_lat", "-e"),
    "send_lat_rc_large": perftest("send_lat", sizes=[LARGEST], iterations=5),
    "send_lat_uc": perftest("send_lat", "-c", "UC"),
    "send_lat_ud": perftest("send_lat", "-c", "UD", on_hosts=True),
    "send_lat_rc_srq": perftest("send_lat", "--use-srq"),
    "send_bw_rc": perftest("send_bw", on_hosts=True),
    "send_bw_rc_events": perftest("send_bw", "-e"),
    "send_bw_rc_bidirectional": perftest("send_bw", "-b"),
    "send_bw_rc_four_qps": perftest("send_bw", sizes=[4096], qps=4),
    "send_bw_rc_post_list": perftest("send_bw", "-l", "10", sizes=[4096]),
    "send_bw_rc_old_post_send": perftest("send_bw", "--use_old_post_send"),
    "send_bw_uc": perftest("send_bw", "-c", "UC"),
    "send_bw_ud": perftest("send_bw", "-c", "UD", sizes=[1024]),
    "write_lat_rc": perftest("write_lat", on_hosts=True),
    "write_lat_rc_inline": perftest("write_lat", "-I", "64", sizes=[64]),
    "write_lat_rc_large": perftest("write_lat", sizes=[LARGEST], iterations=5),
    "write_lat_uc": perftest("write_lat", "-c", "UC"),
    "write_bw_rc": perftest("write_bw"),
    "write_bw_rc_bidirectional": perftest("write_bw", "-b"),
    "write_bw_rc_all_sizes": perftest("write_bw", sizes=SIZES_OF_ALL, iterations=5),
    "write_bw_uc": perftest("write_bw", "-c", "UC"),
    "read_lat_rc": perftest("read_lat"),
    "read_lat_rc_events": perftest("read_lat", "-e"),
    "read_lat_rc_large": perftest("read_lat", sizes=[LARGEST], iterations=5),
    "read_bw_rc": perftest("read_bw", on_hosts=True),
    "read_bw_rc_bidirectional": perftest("read_bw", "-b"),
    "atomic_lat_compare_swap": perftest("atomic_lat", "-A", "CMP_AND_SWAP"),
    "atomic_lat_fetch_add": perftest("atomic_lat", "-A", "FETCH_AND_ADD", on_hosts=True),
    "atomic_bw_compare_swap": perftest("atomic_bw", "-A", "CMP_AND_SWAP"),
    "atomic_bw_fetch_add": perftest("atomic_bw", "-A", "FETCH_AND_ADD"),
    "send_lat_multicast": perftest("send_lat", "-c", "UD", "-g", on_hosts=True),
    "send_bw_multicast": perftest("send_bw", "-c", "UD", "-g", "-M", IPV4_MGID, sizes=[1024],
                                  iterations=100, in_group=True, on_hosts=True),
    "rc_pingpong_lid": pingpong("rc", by_lid=True, on_hosts=True),
    "uc_pingpong_lid": pingpong("uc", by_lid=True),
    "ud_pingpong_lid": pingpong("ud", size=1024, by_lid=True, on_hosts=True),
    "srq_pingpong_lid": pingpong("srq", by_lid=True),
    "send_lat_ud_lid": perftest("send_lat", "-c", "UD", by_lid=True),
    "write_bw_rc_lid": perftest("write_bw", by_lid=True, on_hosts=True),
    "qperf_lat_lid": qperf("rc_lat", "uc_lat", "ud_lat"),
    "qperf_bw_lid": qperf("rc_bw", "uc_bw", "ud_bw", "rc_rdma_read_bw", "rc_rdma_write_bw",
                          "rc_compare_swap_mr", "ver_rc_fetch_add"),
    "ucx_tag_rc": ucx("tag_lat", "rc"),
    "ucx_tag_rc_sleep": ucx("tag_lat", "rc", "-E", "sleep"),
    "ucx_tag_ud": ucx("tag_lat", "ud_verbs"),
    "ucx_tag_ud_sleep": ucx("tag_lat", "ud_verbs", "-E", "sleep"),
    "ucx_am_rc": ucx("ucp_am_lat", "rc"),
    "ucx_am_rc_sleep": ucx("ucp_am_lat", "rc", "-E", "sleep"),
    "ucx_am_ud": ucx("ucp_am_lat", "ud_verbs"),
    "ucx_am_ud_sleep": ucx("ucp_am_lat", "ud_verbs", "-E", "sleep"),
    "ucx_put_rc": ucx("ucp_put_bw", "rc", "-s", "65536"),
    "ucx_put_ud": ucx("ucp_put_bw", "ud_verbs", "-s", "65536"),
    "ucx_put_ud_sleep": ucx("ucp_put_bw", "ud_verbs", "-s", "65536", "-E", "sleep"),
    "ucx_get_rc": ucx("ucp_get", "rc", "-s", "65536"),
    "ucx_get_ud": ucx("ucp_get", "ud_verbs"),
    "ucx_fetch_add_rc": ucx("ucp_fadd", "rc"),
    "ucx_fetch_add_ud": ucx("ucp_fadd", "ud_verbs"),
    "ucx_compare_swap_rc": ucx("ucp_cswap", "rc"),
    "ucx_compare_swap_ud": ucx("ucp_cswap", "ud_verbs"),
    "uct_fetch_add": ucx("fadd", "rc", *UCT_OPTIONS),
    "uct_compare_swap": ucx("cswap", "rc", *UCT_OPTIONS),
    "ucx_rdma_cm_rc": ucx_by_cm("rc", hosts=True),
    "ucx_rdma_cm_ud": ucx_by_cm("ud_verbs", "-A", hosts=True),
    "fi_pingpong_rxd": fi_pingpong("verbs;ofi_rxd", "rdm"),
    "fi_pingpong_msg": fi_pingpong("verbs", "msg", needs_cm=True, needs_address=True),
    "fi_pingpong_rxm": fi_pingpong("verbs;ofi_rxm", "rdm", needs_cm=True, needs_address=True),
    "mpi_ucx": mpi("--mca", "pml", "ucx", "--mca", "osc", "ucx", needs_device_file=True,
                   environment={"UCX_TLS": "rc,self", "UCX_NET_DEVICES": "{device}:1"}),
    "mpi_ofi": mpi("--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "osc", "pt2pt",
                   "--mca", "mtl_ofi_provider_include", "verbs;ofi_rxd"),
    "send_bw_rdma_cm": perftest("send_bw", cm="-R", on_hosts=True),
    "send_bw_rdma_cm_four_qps": perftest("send_bw", sizes=[4096], qps=4, cm="-R", on_hosts=True),
    "send_lat_ud_rdma_cm": perftest("send_lat", "-c", "UD", cm="-R", on_hosts=True),
    "send_lat_rdma_cm_events": perftest("send_lat", "-e", cm="-R", on_hosts=True),
    "read_lat_rdma_cm": perftest("read_lat", cm="-R", on_hosts=True),
    "atomic_bw_rdma_cm": perftest("atomic_bw", cm="-R", on_hosts=True),
    "write_bw_rdma_cm_exchange": perftest("write_bw", cm="-z", on_hosts=True),
    "send_lat_ud_rdma_cm_exchange": perftest("send_lat", "-c", "UD", cm="-z", on_hosts=True),
    "qperf_rdma_cm": qperf("rc_lat", "rc_bw", "rc_rdma_read_bw", by_cm=True),
    "rping": rping("-p {port}", "-a {server} -p {port}", hosts=True),
    "rping_address": rping("-a {server} -p {port}", "-a {server} -p {port}", hosts=True),
    "rping_ipv6": rping("-a ::1 -p {port}", "-a ::1 -p {port}", needs_soft=True),
    "ucmatose": cm("ucmatose -c 4", "ucmatose -s {server} -c 4", [r"^return status 0$"],
                   both_report=True, port=7471, hosts=True),
    "udaddy": cm("udaddy -c 2", "udaddy -s {server} -c 2", [r"^return status 0$"],
                 both_report=True, port=7174, hosts=True),
    "cmtime": cm("cmtime -c 20", "cmtime -s {server} -c 20", [r"^disconnect +:( +\d+\.\d+)+$"],
                 port=7471, server_stays=True, hosts=True),
    "rdma_client": cm("rdma_server -p {port}", "rdma_client -s {server} -p {port}",
                      [r"^rdma_client: end 0$"], hosts=True),
    "rdma_xclient": cm("rdma_xserver -p {port}", "rdma_xclient -s {server} -p {port}",
                       [r"^rdma_xclient: end 0$"], hosts=True),
    "rdma_xclient_xrc": cm("rdma_xserver -c x -p {port}", "rdma_xclient -c x -s {server} -p {port}",
                           [r"^rdma_xclient: end 0$"], hosts=True, needs_soft=True),
    "rstream": stream("rstream"),
    "rstream_blocking": stream("rstream", "-T b", size=(1 << 20) + 1, count=5, iterations=2),
    "rstream_async": stream("rstream", "-k 1", polls=True, size=65536, count=20),
    "rstream_resolve": stream("rstream", "-T r -T n", size=64, count=1, iterations=50),
    **{f"rstream_{size}": stream("rstream", size=size, count=10, iterations=1, hosts=False)
       for size in SIZES_OF_STREAM},
    "rstream_preload": stream("rstream", "-T s", preload=RSPRELOAD),
    "rstream_fork": forking_stream(),
    "riostream": io_stream(),
    "riostream_blocking": io_stream("-T b", size=(1 << 20) + 1, count=5, iterations=2),
    "riostream_async": io_stream(polls=True, size=65536, count=20),
    "udpong": Program(
        ["udpong", "-b", "{server}", "-p", "{port}"], [r"^rconnect: "], [r"Gb/sec.*\n\d"],
        client=["udpong", "-s", "{server}", "-p", "{port}"], ready_by="udp", needs_cm=True,
        needs_address=True, server_stays=True, is_refused=True),
    "rcopy": cm("rcopy -p {port}", "rcopy {source} {server}:{copy} -p {port}", [],
                server_stays=True, copies=True, hosts=True),
    "mckey": cm(f"mckey -m {GROUP} -b {{server}}", f"mckey -m {GROUP} -b {{client}} -s",
                [r"^return status 0$"], both_report=True, ready_by="group", hosts=True),
    "fio_write": fio("write"),
    "fio_read": fio("read"),
    "fio_send": fio("send"),
}


def names():
    """All names: that of each program, and those between hosts."""
    return [*TABLE, *(name + ON_HOSTS for name, program in TABLE.items() if program.hosts)]


def find(name):
    return TABLE[name.removesuffix(ON_HOSTS)]


# The begin of a program's name tells the project that it comes from.
PROJECTS = {"ibv_": "libibverbs", "ib_": "perftest", "qperf": "qperf", "ucx_": "ucx",
            "io_demo": "ucx", "fi_": "libfabric", "mpi": "openmpi", "fio": "fio"}


def families():
    """The names by project. Those that come with librdmacm have no beginning in common."""
    found = {}
    for name in names():
        command = find(name).arguments[0]
        project = next((project for start, project in PROJECTS.items()
                        if command.startswith(start)), "librdmacm")
        found.setdefault(project, []).append(name)
    return found


if __name__ == "__main__":  # For Meson, which adds a test for each.
    print(*families(), sep="\n")
