#include <cordma/verbs/memory_region.hpp>

#include <cordma/base/error.hpp>
#include "support/child.hpp"
#include "support/skip.hpp"
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

namespace {

const struct {
  const char* call;
  const char* objects;
  void (*make)(loopback&);
} lacking_calls[] = {
    {"ibv_reg_mr", "memory regions",
     [](loopback& on) { memory_region(on.pd, on.bytes.data(), 64, verbs::access::local_write); }},
    {"ibv_create_cq", "completion queues", [](loopback& on) { completion_queue(on.ctx, 16); }},
    {"ibv_create_qp", "queue pairs", [](loopback& on) { queue_pair(on.pd, on.cq, on.cq, {}); }},
    {"ibv_create_srq", "shared receive queues",
     [](loopback& on) { shared_receive_queue(on.pd, {.wr_max = 4}); }},
};

/// Gives the errors of the calls, a line each, in a process that may lock so much.
std::string lacking_with(int error, rlim_t limit_bytes) {
  return in_child_with_memlock(limit_bytes, [error] {
    std::string said;
    loopback l;
    for (const auto& c : lacking_calls) {
      verbs_faults::fail_call(1, error);
      said += failure_of([&] { c.make(l); }).to_string() + '\n';
    }
    return said;
  });
}

}  // namespace

TEST_CASE("a call that may lack locked memory names the limit", "[verbs][device][M5]") {
  if (!cordma::test::is_soft()) CORDMA_SKIP("the device itself needs locked memory");
  for (const std::string& said : {lacking_with(ENOMEM, 64u << 10), lacking_with(EPERM, 4u << 20)}) {
    for (const auto& c : lacking_calls) {
      INFO(said);
      const auto line = said.substr(said.find(c.call), said.find('\n', said.find(c.call)));
      CHECK_THAT(line, Contains("RLIMIT_MEMLOCK is") && !Contains("used up"));
    }
  }
}

TEST_CASE("objects that are used up are not taken for locked memory", "[verbs][device][M5]") {
  if (!cordma::test::is_soft()) CORDMA_SKIP("the device itself needs locked memory");
  const std::string said = lacking_with(ENOMEM, 4u << 20);
  CHECK_THAT(said, !Contains("MEMLOCK"));
  for (const auto& c : lacking_calls)
    CHECK_THAT(said, Contains(c.call) && Contains(c.objects + std::string{" are used up"}));
}

TEST_CASE("registering more than the memlock limit fails with the limit and the way out",
          "[verbs][device][M5]") {
  const auto registering_64_mib = [] {
    // Opened in the child: a device opened before fork counts its parent's locked memory.
    context ctx{device_name()};
    protection_domain pd{ctx};
    std::vector<std::byte> bytes(64u << 20);
    if (cordma::test::is_soft()) verbs_faults::fail_call(1, ENOMEM);  // soft0 locks no memory.
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

TEST_CASE("a flag of a vendor, as for physical addresses, names what it needs", "[verbs][device]") {
  loopback l;
  const auto register_for = [&](cordma::verbs::access flags) {
    const memory_region region{l.pd, l.bytes.data(), l.bytes.size(), flags};
    CHECK(region.flags() == flags);
  };
  const auto physical = cordma::verbs::access(1u << 18);
  const cordma::failure why =
      failure_of([&] { register_for(cordma::verbs::access::local_write | physical); });
  CHECK(why.code == cordma::errc::not_supported);
  CHECK_THAT(why.to_string(), Contains("0x40000") && Contains("physical addresses"));
  // A device that lacks an optional flag ignores it.
  CHECK_NOTHROW(register_for(cordma::verbs::access::relaxed_ordering));
}
