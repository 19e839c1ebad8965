"""The programs of the conformance suite: how each is called, and what its output must have."""

import dataclasses
import sys

ITERATIONS = 1000
LATENCY_ITERATIONS = 100  # Two that spin on fewer CPUs than they need take turns by time slices.
SIZES_OF_ALL = [2**exponent for exponent in range(1, 24)]  # perftest's -a


@dataclasses.dataclass
class Program:
    """`{device}` and `{gid}` in the arguments are filled in. A pair is a server and a client."""

    arguments: list
    expected: list
    forbidden: list = dataclasses.field(default_factory=list)
    pair: bool = True
    both_report: bool = False  # The server prints its results, too.


def pingpong(kind, *options, size=4096, iterations=ITERATIONS):
    """rdma-core's; -c has it look at the bytes that came."""
    return Program(
        [f"ibv_{kind}_pingpong", "-d", "{device}", "-g", "{gid}", "-c", "-s", str(size),
         "-n", str(iterations), *options],
        [rf"^{size * iterations * 2} bytes in \d+\.\d+ seconds",
         rf"^{iterations} iters in \d+\.\d+ seconds"],
        [r"invalid data", r"Failed", r"Couldn't"],
        both_report=True)


def perftest(test, *options, sizes=None, iterations=None, qps=1):
    """perftest's: a line of figures for each size, not all of them zero. Its standard deviation can
    be -nan on any device: it takes the root of a rounding error."""
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
        [f"ib_{test}", "-d", "{device}", "-x", "{gid}", "-F", "-n", str(iterations), *size_options,
         *options],
        rows, [r"(?i)\berror\b", r"Problems", r"(?i)couldn't|failed"])


TABLE = {
    "ibv_devices": Program(["ibv_devices"], [r"^ +{device} +\t[0-9a-f]{{16}}$"], pair=False),
    "ibv_devinfo": Program(
        ["ibv_devinfo", "-v", "-d", "{device}"],
        [r"^hca_id:\t{device}$", r"^\ttransport:\s+InfiniBand \(0\)$", r"^\tphys_port_cnt:\s+1$",
         r"^\t\t\tstate:\s+PORT_ACTIVE \(4\)$", r"^\t\t\tlink_layer:\s+Ethernet$",
         r"^\t\t\tGID\[ *\d+\]:\s+::ffff:\d+\.\d+\.\d+\.\d+, RoCE v2$"],
        [r"(?i)failed"], pair=False),
    "rc_pingpong": pingpong("rc"),
    "rc_pingpong_events": pingpong("rc", "-e"),
    "rc_pingpong_new_send": pingpong("rc", "-N"),
    "rc_pingpong_large": pingpong("rc", "-m", "1024", size=(1 << 20) + 1, iterations=50),
    "uc_pingpong": pingpong("uc"),
    "uc_pingpong_events": pingpong("uc", "-e"),
    "ud_pingpong": pingpong("ud", size=1024),
    "ud_pingpong_events": pingpong("ud", "-e", size=1024),
    "srq_pingpong": pingpong("srq"),
    "srq_pingpong_events": pingpong("srq", "-e"),
    "send_lat_rc": perftest("send_lat"),
    "send_lat_rc_events": perftest("send_lat", "-e"),
    "send_lat_rc_all_sizes": perftest("send_lat", sizes=SIZES_OF_ALL, iterations=5),
    "send_lat_uc": perftest("send_lat", "-c", "UC"),
    "send_lat_ud": perftest("send_lat", "-c", "UD"),
    "send_lat_rc_srq": perftest("send_lat", "--use-srq"),
    "send_bw_rc": perftest("send_bw"),
    "send_bw_rc_events": perftest("send_bw", "-e"),
    "send_bw_rc_bidirectional": perftest("send_bw", "-b"),
    "send_bw_rc_four_qps": perftest("send_bw", sizes=[4096], qps=4),
    "send_bw_rc_post_list": perftest("send_bw", "-l", "10", sizes=[4096]),
    "send_bw_rc_old_post_send": perftest("send_bw", "--use_old_post_send"),
    "send_bw_uc": perftest("send_bw", "-c", "UC"),
    "send_bw_ud": perftest("send_bw", "-c", "UD", sizes=[1024]),
    "write_lat_rc": perftest("write_lat"),
    "write_lat_rc_inline": perftest("write_lat", "-I", "64", sizes=[64]),
    "write_lat_rc_all_sizes": perftest("write_lat", sizes=SIZES_OF_ALL, iterations=5),
    "write_lat_uc": perftest("write_lat", "-c", "UC"),
    "write_bw_rc": perftest("write_bw"),
    "write_bw_rc_bidirectional": perftest("write_bw", "-b"),
    "write_bw_rc_all_sizes": perftest("write_bw", sizes=SIZES_OF_ALL, iterations=5),
    "write_bw_uc": perftest("write_bw", "-c", "UC"),
    "read_lat_rc": perftest("read_lat"),
    "read_lat_rc_events": perftest("read_lat", "-e"),
    "read_lat_rc_all_sizes": perftest("read_lat", sizes=SIZES_OF_ALL, iterations=5),
    "read_bw_rc": perftest("read_bw"),
    "read_bw_rc_bidirectional": perftest("read_bw", "-b"),
    "atomic_lat_compare_swap": perftest("atomic_lat", "-A", "CMP_AND_SWAP"),
    "atomic_lat_fetch_add": perftest("atomic_lat", "-A", "FETCH_AND_ADD"),
    "atomic_bw_compare_swap": perftest("atomic_bw", "-A", "CMP_AND_SWAP"),
    "atomic_bw_fetch_add": perftest("atomic_bw", "-A", "FETCH_AND_ADD"),
}

if __name__ == "__main__":  # For Meson, which adds a test for each.
    sys.stdout.write("\n".join(TABLE))
