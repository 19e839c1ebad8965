// cordma-doctor as people run it, on a good device and under faults that are made for it.

#include "support/child.hpp"
#include "support/commands.hpp"
#include "support/device.hpp"
#include "tools/folders.hpp"

#include <catch2/catch.hpp>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <string>

using namespace cordma::test;
using Catch::Matchers::Contains;

namespace {

std::string doctor_command(const std::string& arguments) {
  return CORDMA_DOCTOR " --device " + device_name() + ' ' + arguments;
}

/// Runs a command in a child after `prepare`, which the child cannot take back. Gives the output,
/// and a last line with the exit status.
template <class Prepare>
std::string run_after(Prepare prepare, const std::string& command) {
  return text_of_child([&]() -> std::string {
    if (!prepare()) return "the fault could not be made";
    const outcome ran = run(command);
    return ran.output + "status " + std::to_string(ran.exit_status);
  });
}

/// Also a program that root starts afterwards may not lock more.
bool take_ipc_lock(rlim_t limit_bytes) {
  const bool is_dropped = ::prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0) == 0 || ::geteuid() != 0;
  return is_dropped && limit_memlock(limit_bytes);
}

/// io_uring_setup fails from here on, as in many containers.
bool filter_io_uring() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog filter{.len = std::size(program), .filter = program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

}  // namespace

TEST_CASE("cordma-doctor finds a good device good, and tries each operation", "[tools][device]") {
  const outcome ran = run(doctor_command(""));
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Contains("0 error, "));
  for (const char* check : {"device",
                            "port",
                            "gid",
                            "memlock",
                            "waiting",
                            "try.runtime",
                            "try.register",
                            "try.dma_buf",
                            "try.send",
                            "try.send_with_imm",
                            "try.write",
                            "try.write_with_imm",
                            "try.read",
                            "try.compare_swap",
                            "try.fetch_add",
                            "try.atomic_write",
                            "try.lend",
                            "try.stream",
                            "try.datagram",
                            "try.multicast",
                            "try.uc.send",
                            "try.uc.write",
                            "try.xrc",
                            "try.windows",
                            "try.event_mode.io_uring",
                            "try.event_mode.epoll"}) {
    CHECK_THAT(ran.output, Contains(std::string{" "} + check + ' '));
  }
}

TEST_CASE("cordma-doctor that only reads tries nothing", "[tools][device]") {
  const outcome ran = run(doctor_command("--read-only --verbose"));
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output,
             Contains(" port ") && Contains("why:  only an ACTIVE port") && !Contains(" try."));
}

TEST_CASE("cordma-doctor prints JSON that programs read", "[tools][device]") {
  const outcome ran =
      run(doctor_command("--json") +
          " | python3 -c 'import json, sys; d = json.load(sys.stdin); f = d[\"findings\"];"
          "print(d[\"device\"], d[\"peer\"], len(f) > 20, "
          "sorted({k for one in f for k in one}), {one[\"severity\"] for one in f} <= "
          "{\"ok\", \"note\", \"warning\"})'");
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output,
             Contains(device_name()) &&
                 Contains("None True ['check', 'mend', 'severity', 'value', 'why'] True"));
}

TEST_CASE("cordma-doctor names a wrong GID, and its exit status tells", "[tools][device]") {
  const outcome ran = run(doctor_command("--gid-index 200"));
  INFO(ran.output);
  CHECK(ran.exit_status == 1);
  CHECK_THAT(ran.output, Contains("error    gid ") && Contains("gid_index 200") &&
                             Contains("error    try.send ") && Contains("--gid-index"));
}

TEST_CASE("cordma-doctor names a device that is not there", "[tools][device]") {
  const outcome ran = run(CORDMA_DOCTOR " --device nonesuch0");
  INFO(ran.output);
  CHECK(ran.exit_status == 1);
  CHECK_THAT(ran.output, Contains("error    device ") && Contains("nonesuch0") &&
                             Contains("mend:") && !Contains("try."));
}

TEST_CASE("cordma-doctor names a wrong variable of the environment", "[tools][device]") {
  const outcome ran = run("CORDMA_MTU=9000 " + doctor_command(""));
  INFO(ran.output);
  CHECK(ran.exit_status == 1);
  CHECK_THAT(ran.output, Contains("error    environment ") && Contains("CORDMA_MTU") &&
                             Contains("unset the variable"));
}

TEST_CASE("cordma-doctor names too low a limit of locked memory", "[tools][device]") {
  // Enough for the rings, which some kernels count as locked, and too little for a runtime.
  const std::string said = run_after([] { return take_ipc_lock(1024 * 1024); }, doctor_command(""));
  INFO(said);
  CHECK_THAT(said, Contains(" memlock ") && Contains("RLIMIT_MEMLOCK is 1.0 MiB") &&
                       Contains("limits.d/rdma.conf") && !Contains("CAP_IPC_LOCK lifts"));
  if (is_soft()) {  // A soft device locks none, so all tries succeed.
    CHECK_THAT(said, Contains("warning  memlock ") && Contains("status 0"));
  } else {
    CHECK_THAT(said, Contains("error    memlock ") && Contains("status 1"));
  }
}

TEST_CASE("cordma-doctor names a seccomp filter that forbids io_uring", "[tools][device]") {
  const std::string said = run_after(filter_io_uring, doctor_command(""));
  INFO(said);
  CHECK_THAT(said, Contains("warning  waiting ") &&
                       Contains("epoll, because a seccomp filter forbids io_uring_setup") &&
                       Contains("--security-opt seccomp=") && Contains("waits with epoll") &&
                       Contains("note     try.event_mode.io_uring ") &&
                       Contains("ok       try.event_mode.epoll ") && Contains("status 0"));
}

TEST_CASE("cordma-doctor refuses wrong arguments by exit status 2", "[tools]") {
  for (const char* arguments : {"--nonesuch", "--gid-index 256", "--gid-index x", "a b",
                                "--serve host", "--read-only host", "host:99999", "unix:"}) {
    const outcome ran = run(std::string{CORDMA_DOCTOR " "} + arguments);
    INFO(arguments << ": " << ran.output);
    CHECK(ran.exit_status == 2);
    CHECK_THAT(ran.output, Contains("cordma-doctor: "));
  }
  const outcome help = run(CORDMA_DOCTOR " --help");
  CHECK(help.exit_status == 0);
  CHECK_THAT(help.output, Contains("--json") && Contains("Exit status: 0 unless"));
}
