#include <cordma/detail/memory/lease_block.hpp>

#include <cordma/memory/slice.hpp>

#include <catch2/catch.hpp>

#include <chrono>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

constexpr lease_block::time_point now{1000s};
const int queue = 0;
const int other_queue = 0;

}  // namespace

TEST_CASE("a lease says why a request may not be posted", "[memory][R2]") {
  lease_block& lease = lease_block::make(&queue);
  const std::uint32_t generation = lease.generation();
  lease.grant(verbs::access::remote_read, now + 10s);
  const auto refusal = [&](const int& on, verbs::access wanted) {
    return lease.refusal(generation, &on, wanted);
  };
  CHECK(lease.usable_until() == now + 10s);
  CHECK(refusal(queue, verbs::access::remote_read) == errc{});
  CHECK(refusal(other_queue, verbs::access::remote_read) == errc::wrong_connection);
  CHECK(refusal(queue, verbs::access::remote_write) == errc::access_denied);
  lease.refuse(errc::lease_ended);
  lease.refuse(errc::disconnected);
  CHECK(refusal(queue, verbs::access::remote_read) == errc::lease_ended);
  lease.release();
}

TEST_CASE("a slice of a lease that is gone is refused, whatever became of its block",
          "[memory][R2]") {
  lease_block& lease = lease_block::make(&queue);
  lease.grant(verbs::access::remote_read, now + 10s);
  const remote_mr_slice slice{4096, 64, 7, lease};
  const remote_mr_slice part = slice.slice(32, 8);
  CHECK(part.lease() == &lease);
  CHECK(part.generation() == slice.generation());
  CHECK(part.address() == 4128);
  lease.used();
  lease.release();
  CHECK(lease.refusal(slice.generation(), &queue, verbs::access::remote_read) == errc{});
  lease.release();  // The request's.
  CHECK(lease.refusal(slice.generation(), &queue, verbs::access::remote_read) == errc::lease_ended);
  lease_block& next = lease_block::make(&queue);
  next.grant(verbs::access::remote_read, now + 10s);
  CHECK(&next == &lease);
  CHECK(next.refusal(slice.generation(), &queue, verbs::access::remote_read) == errc::lease_ended);
  next.release();
}

TEST_CASE("a lease knows whether it was used", "[memory]") {
  lease_block& lease = lease_block::make(&queue);
  CHECK_FALSE(lease.take_use());
  lease.used();
  lease.release();
  CHECK(lease.take_use());
  CHECK_FALSE(lease.take_use());
  lease.release();
}
