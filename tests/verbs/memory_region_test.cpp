#include <cordma/verbs/memory_region.hpp>

#include <cordma/base/error.hpp>
#include "support/child.hpp"
#include "support/verbs_faults.hpp"
#include "verbs/loopback.hpp"

#include <catch2/catch.hpp>

#include <cerrno>
#include <cstddef>
#include <string>
#include <vector>

using namespace cordma::verbs;
using namespace cordma::verbs::test;
namespace verbs = cordma::verbs;  // access(2) is there too.
using Catch::Matchers::Contains;

namespace {

/// Runs `body` in a child that may lock `limit_bytes`, and returns what it says.
template <class Body>
std::string in_child_with_memlock(rlim_t limit_bytes, Body body) {
  return cordma::test::text_of_child([&]() -> std::string {
    return cordma::test::limit_memlock(limit_bytes) ? body() : "cannot drop capabilities";
  });
}

}  // namespace

TEST_CASE("a memory region holds its keys and refuses access that makes no sense",
          "[verbs][device]") {
  loopback l;
  CHECK(l.mr.address() == l.bytes.data());
  CHECK(l.mr.length() == l.bytes.size());
  CHECK(l.mr.flags() == verbs::access::local_write);
  const auto text = failure_of([&] {
                      memory_region mr(l.pd, l.bytes.data(), 64, verbs::access::remote_write);
                    }).to_string();
  CHECK_THAT(text, Contains("remote_write needs local_write"));
}

TEST_CASE("a call that may lack locked memory names the limit", "[verbs][device][M5]") {
  loopback l;
  const struct {
    const char* call;
    void (*make)(loopback&);
  } cases[] = {
      {"ibv_reg_mr",
       [](loopback& on) { memory_region(on.pd, on.bytes.data(), 64, verbs::access::local_write); }},
      {"ibv_create_cq", [](loopback& on) { completion_queue(on.ctx, 16); }},
      {"ibv_create_qp", [](loopback& on) { queue_pair(on.pd, on.cq, on.cq, {}); }},
  };
  for (const auto& c : cases) {
    verbs_faults::fail_call(1, ENOMEM);
    const auto text = failure_of([&] { c.make(l); }).to_string();
    CHECK_THAT(text, Contains(c.call) && Contains("RLIMIT_MEMLOCK is"));
  }
  verbs_faults::fail_call(0, 0);
}

TEST_CASE("registering more than the memlock limit fails with the limit and the way out",
          "[verbs][device][M5]") {
  const auto registering_64_mib = [] {
    // Opened in the child: a device opened before fork counts its parent's locked memory.
    context ctx{device_name()};
    protection_domain pd{ctx};
    std::vector<std::byte> bytes(64u << 20);
    if (cordma::test::is_soft()) verbs_faults::fail_call(1, ENOMEM);  // It locks no memory.
    try {
      memory_region mr{pd, bytes.data(), bytes.size(), verbs::access::local_write};
    } catch (const cordma::error& e) {
      return std::string{e.what()};
    }
    return std::string{"registered"};
  };
  CHECK_THAT(in_child_with_memlock(1u << 20, registering_64_mib),
             Contains("65536 KiB: RLIMIT_MEMLOCK is 1024 KiB; raise it (ulimit -l unlimited)"));
  CHECK_THAT(in_child_with_memlock(0, registering_64_mib), Contains("RLIMIT_MEMLOCK is 0 KiB"));
}
