#include "checks.hpp"

#include "io/uring_diagnosis.hpp"

#include <cordma/io/executor.hpp>
#include <cordma/memory/mr_allocator.hpp>
#include <cordma/queue/completion.hpp>

namespace doctor {
namespace {

constexpr std::uint64_t cqe_bytes = 64;

std::string need_text() {
  return "one runtime needs " + bytes_text(runtime_bytes_min()) + ", with its queues and ring " +
         bytes_text(runtime_bytes());
}

std::string raise_memlock(const process_facts& p) {
  const std::string lasting =
      "for good: \"* - memlock unlimited\" in /etc/security/limits.d/rdma.conf, of a service "
      "LimitMEMLOCK=infinity, of a container --ulimit memlock=-1";
  return p.memlock_bytes < p.memlock_bytes_hard
             ? "ulimit -l " +
                   (p.memlock_bytes_hard == process_facts::unlimited ? std::string{"unlimited"}
                                                                     : std::string{"hard"}) +
                   "; " + lasting
             : lasting;
}

void check_memlock(const subject& s, report& r) {
  const process_facts& p = s.process;
  const std::string value = "RLIMIT_MEMLOCK is " + bytes_text(p.memlock_bytes) + "; " + need_text();
  const std::string why =
      "registered memory is locked, of all processes of a user together: with too little, "
      "registering fails with ENOMEM";
  if (p.may_lock_all) {
    r.ok("memlock", value + "; CAP_IPC_LOCK lifts the limit", why);
  } else if (p.memlock_bytes == process_facts::unlimited) {
    r.ok("memlock", value, why);
  } else if (p.memlock_bytes >= runtime_bytes()) {
    r.note("memlock", value + ", and more as it allocates", why, raise_memlock(p));
  } else if (p.memlock_bytes >= runtime_bytes_min()) {
    r.warning("memlock", value + ", which some drivers and kernels count", why, raise_memlock(p));
  } else if (s.device && !s.device->is_in_kernel) {
    r.warning("memlock", value + "; " + s.device->info.name + " locks none, a real device would",
              why, raise_memlock(p));
  } else {
    r.error("memlock", value, why, raise_memlock(p));
  }
}

void check_descriptors(const subject& s, report& r) {
  const std::string value = "RLIMIT_NOFILE is " + (s.process.descriptors == process_facts::unlimited
                                                       ? std::string{"unlimited"}
                                                       : std::to_string(s.process.descriptors));
  const std::string why = "a runtime needs some " + std::to_string(runtime_descriptors) +
                          " descriptors, and each connection one for its bootstrap socket";
  constexpr std::uint64_t many = 1024;
  if (s.process.descriptors < runtime_descriptors) {
    r.error("descriptors", value, why, "ulimit -n 65536");
  } else if (s.process.descriptors < many) {
    r.warning("descriptors", value, why, "ulimit -n 65536");
  } else {
    r.ok("descriptors", value, why);
  }
}

}  // namespace

std::uint64_t runtime_bytes_min() { return cordma::mr_allocator_options{}.chunk_bytes; }

std::uint64_t runtime_bytes() {
  return runtime_bytes_min() + cordma::completion_queue_options{}.depth * cqe_bytes +
         cordma::ring_bytes(cordma::executor_options{}.ring_entries);
}

void check_limits(const subject& s, report& r) {
  check_memlock(s, r);
  check_descriptors(s, r);
}

}  // namespace doctor
