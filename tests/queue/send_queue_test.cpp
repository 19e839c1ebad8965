#include "queue/send_queue.hpp"

#include "support/allocations.hpp"
#include "support/detached.hpp"
#include "support/device.hpp"
#include "support/held.hpp"
#include "support/loopback.hpp"
#include "support/skip.hpp"

#include <catch2/catch.hpp>

#include <vector>

using namespace cordma;
using test::held;
using test::held_by;
using test::loopback;
using test::nothing;

namespace {

template <class Op>
std::error_code refusal(loopback& link, Op op) {
  const std::uint32_t posted_before = link.a->sends().posted_total();
  const auto outcome = link.outcome(std::move(op));
  CHECK(link.a->sends().posted_total() == posted_before);
  CHECK(held_by(*link.a) == nothing);
  CHECK_FALSE(link.a->has_failed());
  return outcome.has_failure() ? outcome.failure().code : std::error_code{};
}

}  // namespace

TEST_CASE("what cannot work is refused before it is posted", "[queue][device][M10][D9]") {
  loopback link;
  local_mr mr = link.memory(4096);
  const remote_mr_slice remote = mr.remote_slice();

  local_mr freed = link.memory(64);
  const local_mr_slice stale = freed.slice();
  freed.reset();
  CHECK(refusal(link, link.a->send(stale)) == errc::stale_slice);
  CHECK(refusal(link, link.a->read(stale, remote)) == errc::stale_slice);
  CHECK(refusal(link, link.a->write(gather(mr.slice(0, 64), stale), remote)) == errc::stale_slice);
  CHECK(held_by(mr) == nothing);  // The good slice of the refused request too.

  verbs::protection_domain other_pd{link.ctx};
  mr_allocator other_memory{other_pd};
  const local_mr other = other_memory.allocate_zeroed(64);
  CHECK(refusal(link, link.a->send(other)) == errc::wrong_protection_domain);

  const local_mr read_only = link.memory(64, verbs::access::none);
  local_mr& unconst = const_cast<local_mr&>(read_only);
  CHECK(refusal(link, link.a->read(unconst, remote)) == errc::access_denied);

  CHECK(refusal(link, link.a->write(mr, remote.first(4095))) == errc::out_of_range);
  CHECK(refusal(link, link.a->read(mr, remote.first(0))) == errc::out_of_range);
}

TEST_CASE("as many slices as the device takes are gathered, and one more is refused",
          "[queue][device][D8]") {
  loopback link;
  const std::size_t most = link.a->verbs().capabilities().send_sge_max;
  std::array<const_local_mr_slice, 64> slices;  // The empty ones at the end do not count.
  REQUIRE(most < slices.size());
  const local_mr from = link.pattern(slices.size());
  local_mr to = link.memory(slices.size());
  for (std::size_t i = 0; i < most; ++i) slices[i] = from.slice(most - 1 - i, 1);
  CHECK(link.run(link.a->write(slices, to.remote_slice())) == most);
  for (std::size_t i = 0; i < most; ++i) CHECK(to.bytes()[i] == from.bytes()[most - 1 - i]);
  slices[most] = from.slice(0, 1);
  CHECK(refusal(link, link.a->write(slices, to.remote_slice())) == errc::too_many_slices);
  CHECK(refusal(link, link.a->send(slices)) == errc::too_many_slices);
  CHECK(held_by(from) == nothing);
}

TEST_CASE("a message above the port's limit is refused before it is posted",
          "[queue][device][D9]") {
  loopback link;
  if (!test::is_soft()) CORDMA_SKIP("to register that much takes as much memory");
  const local_mr mr = link.allocator(test::all_access)
                          .allocate_uninitialized(std::size_t{link.port.message_max_bytes} + 1);
  const auto outcome = link.outcome(link.a->send(mr));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == errc::wrong_length);
  CHECK(outcome.failure().to_string().find(std::to_string(link.port.message_max_bytes)) !=
        std::string::npos);
  CHECK(held_by(*link.a) == nothing);
}

TEST_CASE("who finds the send queue full goes on in the order of asking", "[queue][device][E6]") {
  static constexpr std::size_t writers = 200;
  loopback link{{.capabilities = {.send_wr_max = 8, .recv_wr_max = 8}}};
  local_mr mr = link.memory(writers * 8);
  std::vector<std::size_t> order;
  std::uint32_t most = 0;
  scope all{link.executor};
  const auto writer = [](loopback& on, local_mr& m, std::size_t i, std::vector<std::size_t>& to,
                         std::uint32_t& high) -> task<> {
    co_await on.a->write(m.slice(i * 8, 8), m.remote_slice());
    high = std::max(high, on.a->slots_in_use());
    to.push_back(i);
  };
  for (std::size_t i = 0; i < writers; ++i) all.spawn(writer(link, mr, i, order, most));
  link.run(all.join());
  REQUIRE(order.size() == writers);
  for (std::size_t i = 0; i < writers; ++i) REQUIRE(order[i] == i);
  CHECK(most <= link.a->sends().depth());
}

TEST_CASE("a batch that waits for room is not overtaken, and cannot wait for ever",
          "[queue][device][E6]") {
  loopback link{{.capabilities = {.send_wr_max = 4, .recv_wr_max = 8}}};
  const std::uint32_t depth = link.a->sends().depth();
  local_mr mr = link.memory(64);
  const auto one = [&](bool signaled = true) {
    return write(mr.slice(0, 8), mr.remote_slice(), {.signaled = signaled});
  };
  // The most unsignaled requests that can be without an entry of their own.
  for (std::uint32_t i = 0; i + 1 < (depth + 1) / 2; ++i) {
    static_cast<void>(link.a->post(one(false)));
  }
  auto batch = link.a->post_all(one(), one(), one());
  auto after = link.a->post(one());
  if (depth >= 4) {
    CHECK(link.run(batch) == std::tuple{8u, 8u, 8u});
    CHECK(link.run(after) == 8);
  }
  if (depth < 14) {
    auto too_large = link.a->post_all(one(), one(), one(), one(), one(), one(), one(), one());
    CHECK(link.outcome(too_large).failure().code == errc::limit_exceeded);
  }
  CHECK(link.a->sends().is_idle());
}

TEST_CASE("a request that is stopped while it waits for room is never posted",
          "[queue][device][E6]") {
  loopback link{{.capabilities = {.send_wr_max = 1, .recv_wr_max = 8}}};
  const std::uint32_t depth = link.a->sends().depth();
  local_mr mr = link.memory(64);
  local_mr target = link.memory(64);
  mr.bytes()[0] = std::byte{1};
  for (std::uint32_t i = 0; i < depth; ++i) {
    static_cast<void>(link.a->post(write(mr.slice(0, 0), target.remote_slice())));
  }
  scope waiting{link.executor};
  waiting.spawn(link.a->write(mr, target.remote_slice()));
  static_cast<void>(link.executor.run_ready());  // The task starts, and finds no room.
  CHECK(held_by(mr) == held{.block_uses = 1});
  waiting.request_stop();
  CHECK(held_by(mr) == nothing);
  link.run(waiting.join());
  link.run_until([&] { return link.a->sends().is_idle(); });
  CHECK(target.bytes()[0] == std::byte{0});
}

namespace {

/// Stands in for the provider's post_send: takes the first request of a list and refuses the rest.
int (*real_post_send)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;
int post_first_only(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  ibv_send_wr first = *wr;
  first.next = nullptr;
  if (const int rc = real_post_send(qp, &first, bad); rc != 0) return rc;
  *bad = wr->next;
  return ENOMEM;
}

}  // namespace

TEST_CASE("a batch that the device takes in part names the first it refused, and loses no slot",
          "[queue][device][C6]") {
  loopback link;
  local_mr mr = link.memory(256);
  local_mr of_batch = link.memory(128);
  // The batch has a block of its own, so that each of its slots shows.
  memory_block& block = *of_batch.slice().block();
  const auto one = write(of_batch, mr.remote_slice());
  auto before = link.a->post(write(mr.slice(0, 128), mr.remote_slice(), {.signaled = false}));
  auto& post_send = link.ctx.native_handle()->ops.post_send;
  real_post_send = std::exchange(post_send, &post_first_only);
  auto batch = link.a->post_all(one, one, one);
  post_send = real_post_send;
  const failure why = link.outcome(batch).failure();
  CHECK(why.code == std::error_code{ENOMEM, std::system_category()});
  CHECK(why.index == 1);
  CHECK(held_by(*link.a, block) == held{.slots = 2, .block_uses = 1});
  // The posted requests have no CQE of their own: awaiting says so, and a later request ends them.
  CHECK(link.outcome(before).failure().code == errc::not_signaled);
  CHECK(link.run(link.a->write(mr, mr.remote_slice())) == 256);
  CHECK(held_by(*link.a, block) == nothing);
  CHECK(held_by(mr) == nothing);
  const request_counters counted = link.driver.requests().of(request_kind::write);
  CHECK(counted.posted == 3);
  CHECK(counted.completed == 3);
  CHECK(counted.refused == 2);
}

namespace {

struct doorbell {
  std::vector<unsigned> send_flags;  // flags of each work request
};
std::vector<doorbell> rung;

/// Writes down what reaches the provider, and passes it on.
int write_down(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  doorbell& now = rung.emplace_back();
  for (const ibv_send_wr* each = wr; each != nullptr; each = each->next) {
    now.send_flags.push_back(each->send_flags);
  }
  return real_post_send(qp, wr, bad);
}

}  // namespace

TEST_CASE("a batch rings one doorbell, and the flags reach the device", "[queue][device]") {
  loopback link;
  local_mr mr = link.memory(1024);
  REQUIRE(link.a->verbs().capabilities().inline_max < mr.size_bytes());
  const remote_mr_slice remote = mr.remote_slice();
  auto& post_send = link.ctx.native_handle()->ops.post_send;
  real_post_send = std::exchange(post_send, &write_down);
  rung.clear();
  link.b->post_recv(mr);
  auto batch = link.a->post_all(write(mr, remote), read(mr, remote),
                                read(mr, remote, {.fence = true}), send(mr, {.solicited = true}));
  auto single = link.a->post(write(mr, remote));
  post_send = real_post_send;
  REQUIRE(rung.size() == 2);
  CHECK(rung[0].send_flags ==
        std::vector<unsigned>{0, 0, IBV_SEND_FENCE, IBV_SEND_SOLICITED | IBV_SEND_SIGNALED});
  CHECK(rung[1].send_flags == std::vector<unsigned>{IBV_SEND_SIGNALED});
  CHECK(link.run(batch) == std::tuple{1024u, 1024u, 1024u, 1024u});
  CHECK(link.run(single) == 1024);
}

TEST_CASE(
    "borrowed memory is refused on another queue, for more than was granted, and once it is over",
    "[queue][device][R2]") {
  loopback link;
  local_mr mine = link.memory(8);
  local_mr theirs = link.memory(8);
  const remote_mr_slice raw = theirs.remote_slice();
  lease_block& lease = lease_block::make(&link.a->sends());
  lease.grant(verbs::access::remote_read, link.executor.now() + std::chrono::hours{1});
  const remote_mr_slice borrowed{raw.address(), raw.size_bytes(), raw.rkey(), lease};

  CHECK(link.run(link.a->read(mine, borrowed)) == 8);
  CHECK(refusal(link, link.b->read(mine, borrowed)) == errc::wrong_connection);
  CHECK(refusal(link, link.a->write(mine, borrowed)) == errc::access_denied);
  CHECK(refusal(link, link.a->fetch_add(borrowed, 1)) == errc::access_denied);
  auto batch = link.a->post_all(read(mine, raw), read(mine, borrowed), write(mine, borrowed));
  const auto outcome = link.outcome(batch);
  CHECK(outcome.failure().code == errc::access_denied);
  CHECK(outcome.failure().index == 2);
  lease.grant(verbs::access::remote_read, link.executor.now());
  CHECK(refusal(link, link.a->read(mine, borrowed)) == errc::lease_expired);
  lease.refuse(errc::lease_ended);
  CHECK(refusal(link, link.a->read(mine, borrowed)) == errc::lease_ended);
  CHECK(held_by(mine) == nothing);
  CHECK(link.a->sends().is_idle());
  lease.release();
}

TEST_CASE("a request whose lease ends while it waits for room is never posted",
          "[queue][device][R2]") {
  loopback link{{.capabilities = {.send_wr_max = 4, .recv_wr_max = 8}}};
  local_mr mine = link.memory(8);
  local_mr theirs = link.memory(8);
  const remote_mr_slice raw = theirs.remote_slice();
  lease_block& lease = lease_block::make(&link.a->sends());
  lease.grant(test::all_access, link.executor.now() + std::chrono::hours{1});
  std::vector<request_op<write_request<1>>> ahead;
  for (std::uint32_t i = 0; i < link.a->sends().depth(); ++i)
    ahead.push_back(link.a->post(write(mine, raw)));
  auto late = link.a->post(
      write(mine, remote_mr_slice{raw.address(), raw.size_bytes(), raw.rkey(), lease}));
  auto last = link.a->post(write(mine, raw));
  lease.refuse(errc::lease_ended);
  CHECK(link.outcome(late).failure().code == errc::lease_ended);
  CHECK(link.run(last) == 8);
  CHECK(held_by(mine) == nothing);
  lease.release();
}

TEST_CASE("reserved slots take urgent requests however many others wait", "[queue][device][R7]") {
  loopback link{{.capabilities = {.send_wr_max = 8, .recv_wr_max = 8}}};
  link.a->sends().reserve(2);
  local_mr mr = link.memory(8);
  const auto one = [&] { return write(mr, mr.remote_slice()); };
  const std::uint32_t depth = link.a->sends().depth();
  std::vector<request_op<write_request<1>>> others;
  for (std::uint32_t i = 0; i < depth + 3; ++i) others.push_back(link.a->post(one()));
  CHECK(link.a->sends().in_flight() == depth);
  CHECK_FALSE(link.a->sends().has_room());
  std::array<std::optional<request_op<write_request<1>>>, 3> urgent;
  urgent[0].emplace(link.a->sends(), one()).post_urgent();
  urgent[1].emplace(link.a->sends(), one()).post_urgent();
  CHECK(link.a->sends().in_flight() == depth + 2);
  // The third request is one too many: it waits like others.
  urgent[2].emplace(link.a->sends(), one()).post_urgent();
  CHECK(link.a->sends().in_flight() == depth + 2);
  for (auto& one_of : urgent) CHECK(link.run(*one_of) == 8);
  for (auto& other : others) CHECK(link.run(other) == 8);
  CHECK(link.a->sends().has_room());
}

TEST_CASE("a queue has one slot until two requests are in flight, and then one for each",
          "[queue][device]") {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted here");
  loopback link;
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  const auto post = [&] { return link.a->post(write(from, to.remote_slice())); };
  for (int n = 0; n < 2; ++n) link.run(link.a->write(from, to.remote_slice()));
  const std::uint64_t before = support::thread_allocation_count();
  auto first = post();
  const std::uint64_t with_one = support::thread_allocation_count();
  auto second = post();
  const std::uint64_t with_two = support::thread_allocation_count();
  auto third = post();
  const std::uint64_t with_three = support::thread_allocation_count();
  CHECK(with_one == before);
  CHECK(with_two == before + 1);
  CHECK(with_three == with_two);
  CHECK(link.a->sends().in_flight() == 3);
  for (auto* each : {&first, &second, &third}) CHECK(link.run(*each) == 64);
  CHECK(held_by(from) == nothing);
}

TEST_CASE("without memory for more slots requests go one after another, and none is lost",
          "[queue][device]") {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted here");
  loopback link;
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  const auto one = write(from, to.remote_slice());
  {
    const auto post = [&] {
      const support::no_memory none;
      return link.a->post(one);
    };
    auto first = post();
    auto second = post();
    CHECK(link.a->sends().in_flight() == 1);
    CHECK(link.run(second) == 64);
    CHECK(first.has_ended());
  }
  auto both = [&] {
    const support::no_memory none;
    return link.a->post_all(one, one);
  }();
  const auto outcome = link.outcome(std::move(both));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == std::errc::not_enough_memory);
  CHECK_FALSE(link.a->has_failed());
  CHECK(held_by(from) == nothing);

  const auto last = link.a->post(one);
  bool was_posted = true;
  {
    const support::no_memory none;
    was_posted = test::post_detached(*link.a, send(const_local_mr_slice{}));
  }
  CHECK_FALSE(was_posted);
  CHECK(link.a->failure_reason().code == std::errc::not_enough_memory);
}
