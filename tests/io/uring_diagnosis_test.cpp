#include "../../lib/io/uring_diagnosis.hpp"

#include <cordma/io/executor.hpp>

#include "support/child.hpp"

#include <catch2/catch.hpp>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <string>

using namespace cordma;
using namespace cordma::test;
using Catch::Matchers::Contains;

TEST_CASE("a refused ring is explained by what refused it, with the way out", "[io]") {
  const auto text = [](int errno_value, int disabled) {
    return diagnose_uring(errno_value, {.disabled = disabled, .memlock_bytes = 65536}, 256)
        .to_string();
  };
  CHECK_THAT(text(EPERM, 2), Contains("io_uring_disabled is 2") && Contains("sysctl"));
  CHECK_THAT(text(EPERM, 1), Contains("io_uring_disabled is 1") && Contains("io_uring_group"));
  CHECK_THAT(text(EPERM, 0), Contains("seccomp") && Contains("allow"));
  CHECK_THAT(text(EPERM, -1), Contains("seccomp"));
  CHECK_THAT(text(EACCES, 0), Contains("seccomp"));
  CHECK_THAT(text(ENOSYS, -1), Contains("Linux 5.13") && Contains("seccomp"));
  CHECK_THAT(text(ENOMEM, 0), Contains("takes 28 KiB") && Contains("RLIMIT_MEMLOCK is 64 KiB") &&
                                  Contains("ulimit -l"));
  CHECK_THAT(text(ENFILE, 0), Contains("ulimit -n"));
  CHECK_THAT(text(EINVAL, 0), Contains("ring_entries"));
  CHECK_THAT(text(EMFILE, 0), Contains("ulimit -n"));
  CHECK_THAT(text(EIO, 0), Contains("io_uring_setup"));
}

TEST_CASE(
    "what a ring takes is what the kernel counts, where that is not the limit's fault it says so",
    "[io]") {
  const auto text = [](unsigned entries, std::uint64_t limit) {
    return diagnose_uring(ENOMEM, {.disabled = 0, .memlock_bytes = limit}, entries).to_string();
  };
  CHECK_THAT(text(1, 0), Contains("takes 8 KiB"));
  CHECK_THAT(text(200, 0), Contains("takes 28 KiB"));
  CHECK_THAT(text(4096, 0), Contains("takes 404 KiB"));
  CHECK_THAT(text(256, RLIM_INFINITY), Contains("no memory for a ring of 28 KiB"));
}

TEST_CASE("no explanation is cut off", "[io]") {
  for (const int errno_value : {EPERM, ENOSYS, ENOMEM, EINVAL, EMFILE}) {
    for (const int disabled : {-1, 0, 1, 2}) {
      const uring_surroundings here{.disabled = disabled, .memlock_bytes = UINT64_MAX - 1};
      const failure f = diagnose_uring(errno_value, here, UINT_MAX);
      CHECK_FALSE(f.detail.view().ends_with("..."));
    }
  }
}

namespace {

/// From here on `io_uring_setup` fails with that errno in this process.
bool forbid_io_uring(unsigned errno_value) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | errno_value),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog filter{.len = std::size(program), .filter = program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

}  // namespace

TEST_CASE("an executor under a seccomp filter waits with epoll, or says why not", "[io]") {
  const unsigned errno_value = GENERATE(as<unsigned>{}, EPERM, ENOSYS, EACCES, EINVAL, ENOMEM);
  const bool insists = GENERATE(false, true);
  const std::string said = text_of_child([&]() -> std::string {
    try {
      if (!forbid_io_uring(errno_value)) return "no filter";
      executor exec{{.backend = insists ? io_backend::io_uring : io_backend::automatic}};
      exec.run(exec.sleep_for(std::chrono::microseconds{1}));
      return exec.reactor().name();
    } catch (const error& e) {
      return e.what();
    }
  });
  if (insists || errno_value == ENOMEM) {  // There may be memory next time.
    CHECK_THAT(said, Contains("io_uring_setup"));
    if (errno_value == EPERM) CHECK_THAT(said, Contains("seccomp filter forbids"));
  } else {
    CHECK(said == "epoll");
  }
}
