#include "queue/post_chain.hpp"

#include "support/held.hpp"
#include "support/loopback.hpp"
#include "support/skip.hpp"

#include <catch2/catch.hpp>

#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

using namespace cordma;
using Catch::Matchers::Contains;
using test::held_by;
using test::loopback;
using test::nothing;

namespace {

std::uint64_t word_in(const local_mr& memory, std::size_t index = 0) {
  std::uint64_t word = 0;
  std::memcpy(&word, &memory.bytes()[index * sizeof word], sizeof word);
  return word;
}

/// While alive, the device makes no queue pairs for ibv_wr_*.
class no_extended_queue_pairs {
 public:
  explicit no_extended_queue_pairs(const verbs::context& ctx)
      : create_{verbs_get_ctx(ctx.native_handle())->create_qp_ex},
        real_{std::exchange(create_, &refuse)} {}
  ~no_extended_queue_pairs() { create_ = real_; }
  no_extended_queue_pairs(const no_extended_queue_pairs&) = delete;

 private:
  using create = ibv_qp*(ibv_context*, ibv_qp_init_attr_ex*);
  static ibv_qp* refuse(ibv_context*, ibv_qp_init_attr_ex*) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  create*& create_;
  create* const real_;
};

/// Refuses each batch of ibv_wr_*.
int refuse_batch(ibv_qp_ex* qp) {
  ibv_wr_abort(qp);
  return ENOMEM;
}

task<> write_one(queue_pair& qp, remote_mr_slice to, std::uint64_t value) {
  const std::size_t bytes = co_await qp.atomic_write(to, value);
  CHECK(bytes == 8);
}

task<> copy(queue_pair& qp, const_local_mr_slice from, remote_mr_slice to) {
  const std::size_t bytes = co_await qp.write(from, to);
  CHECK(bytes == from.size_bytes());
}

}  // namespace

TEST_CASE("an atomic write replaces one word, or says what the device lacks", "[queue][device]") {
  loopback link;
  local_mr there = link.memory(24);
  const remote_mr_slice word = there.remote_slice().slice(8, 8);
  const auto outcome = link.outcome(link.a->atomic_write(word, 0x0102030405060708));
  CHECK(held_by(*link.a) == nothing);
  const request_counters counted = link.driver.requests().of(request_kind::atomic);
  if (!link.ctx.limits().atomic_write) {
    CHECK(outcome.failure().code == errc::not_supported);
    CHECK(counted.refused == 1);
    CHECK_FALSE(link.a->has_failed());
    return;
  }
  CHECK(*outcome == 8);
  CHECK(counted.completed == 1);
  CHECK(word_in(there, 0) == 0);
  CHECK(word_in(there, 1) == 0x0102030405060708);
  CHECK(word_in(there, 2) == 0);
}

TEST_CASE("a queue pair that takes no atomic write names what one needs", "[queue][device]") {
  loopback link;
  {
    const no_extended_queue_pairs none{link.ctx};
    link.reconnect();
  }
  CHECK_FALSE(link.a->verbs().has_atomic_write());
  local_mr there = link.memory(8);
  const failure why = link.outcome(link.a->atomic_write(there.remote_slice(), 1)).failure();
  CHECK(why.code == errc::not_supported);
  CHECK_THAT(why.to_string(), Contains("atomic_write") && Contains("compare_swap"));
  CHECK(link.a->sends().posted_total() == 0);
  CHECK(word_in(there) == 0);
}

TEST_CASE("a masked atomic, or another request of a vendor, names whose interface it needs",
          "[queue][soft0]") {
  loopback link;
  local_mr there = link.memory(8);
  const remote_mr_slice word = there.remote_slice();
  // MLX5_OPCODE_ATOMIC_MASKED_CS, which is no opcode of libibverbs.
  const atomic_request masked{.opcode = std::bit_cast<ibv_wr_opcode>(0x14u),
                              .remote = word,
                              .compare_or_add = 0,
                              .send_flags = 0};
  const failure why = link.outcome(link.a->await(masked)).failure();
  CHECK(why.code == errc::not_supported);
  CHECK_THAT(why.to_string(), Contains("masked atomics") && Contains("mlx5dv"));
  CHECK(link.a->sends().posted_total() == 0);
  auto memory_key = write(there, word);
  memory_key.opcode = IBV_WR_DRIVER1;
  const failure refused = link.outcome(link.a->await(memory_key)).failure();
  CHECK(refused.code == errc::not_supported);
  CHECK_THAT(refused.to_string(), Contains("UMR") && Contains("mlx5dv"));
  auto message = send(there);
  message.opcode = IBV_WR_DRIVER1;
  CHECK(link.outcome(link.a->await(message)).failure().code == errc::not_supported);
  const failure among =
      link.outcome(link.a->post_all(write(there, word), memory_key, write(there, word))).failure();
  CHECK(among.code == errc::not_supported);
  CHECK(among.index == 1);
  CHECK(link.a->sends().posted_total() == 0);
  CHECK(held_by(there) == nothing);
  CHECK(held_by(*link.a) == nothing);
  CHECK(link.run(link.a->write(there, word)) == 8);
}

TEST_CASE("an atomic write of a wrong size or place is refused before it is posted",
          "[queue][device]") {
  loopback link;
  if (!link.ctx.limits().atomic_write) CORDMA_SKIP("the device has no ATOMIC WRITE");
  local_mr there = link.memory(24);
  const auto code_of = [&](const remote_mr_slice& to) {
    return link.outcome(link.a->atomic_write(to, 1)).failure().code;
  };
  CHECK(code_of(there.remote_slice().slice(0, 16)) == errc::wrong_length);
  CHECK(code_of(there.remote_slice().slice(4, 8)) == errc::misaligned);
  CHECK(link.a->sends().posted_total() == 0);
  CHECK_FALSE(link.a->has_failed());
}

TEST_CASE("atomic writes keep their place among requests that are posted together",
          "[queue][device]") {
  loopback link;
  if (!link.ctx.limits().atomic_write) CORDMA_SKIP("the device has no ATOMIC WRITE");
  local_mr from = link.pattern(8);
  local_mr before = link.memory(8), between = link.memory(8), after = link.memory(8);
  local_mr there = link.memory(8);
  const remote_mr_slice word = there.remote_slice();
  const auto [first, sum, one, two, wrote, three, last] = link.run(link.a->post_all(
      write(from, word), fetch_add(word, 0), atomic_write(word, 1), read(before, word),
      atomic_write(word, 2), read(between, word), write(from, word)));
  CHECK(first == 8);
  CHECK(sum == word_in(from));
  CHECK(one == 8);
  CHECK(two == 8);
  CHECK(wrote == 8);
  CHECK(three == 8);
  CHECK(last == 8);
  CHECK(word_in(before) == 1);
  CHECK(word_in(between) == 2);
  CHECK(word_in(there) == word_in(from));
  CHECK(held_by(*link.a) == nothing);
  CHECK(held_by(from) == nothing);
}

TEST_CASE("atomic writes that tasks await in one turn keep their order and their words",
          "[queue][device]") {
  loopback link;
  if (!link.ctx.limits().atomic_write) CORDMA_SKIP("the device has no ATOMIC WRITE");
  local_mr there = link.memory(24);
  local_mr from = link.pattern(8);
  scope tasks{link.executor};
  tasks.spawn(copy(*link.a, from, there.remote_slice().slice(0, 8)));
  tasks.spawn(write_one(*link.a, there.remote_slice().slice(0, 8), 5));
  tasks.spawn(write_one(*link.a, there.remote_slice().slice(8, 8), 6));
  tasks.spawn(copy(*link.a, from, there.remote_slice().slice(16, 8)));
  link.run(tasks.join());
  CHECK(word_in(there, 0) == 5);
  CHECK(word_in(there, 1) == 6);
  CHECK(word_in(there, 2) == word_in(from));
}

TEST_CASE("an atomic write that the device refuses ends with its number among those posted",
          "[queue][device]") {
  loopback link;
  if (!link.ctx.limits().atomic_write) CORDMA_SKIP("the device has no ATOMIC WRITE");
  local_mr from = link.pattern(8);
  local_mr there = link.memory(8);
  const remote_mr_slice word = there.remote_slice();
  auto& complete = ibv_qp_to_qp_ex(link.a->verbs().native_handle())->wr_complete;
  auto* const real = std::exchange(complete, &refuse_batch);
  auto batch = link.a->post_all(write(from, word), atomic_write(word, 1), write(from, word));
  complete = real;
  const failure why = link.outcome(batch).failure();
  CHECK(why.code == std::error_code{ENOMEM, std::system_category()});
  CHECK(why.index == 1);
  CHECK(std::string{why.call} == "ibv_wr_complete");
  // The first has no CQE of its own: a later request ends it.
  CHECK(link.run(link.a->atomic_write(word, 7)) == 8);
  CHECK(word_in(there) == 7);
  CHECK(held_by(from) == nothing);
  CHECK(held_by(*link.a) == nothing);
}

TEST_CASE(
    "an atomic write stays with the device when it does not say which later request it refuses",
    "[queue][device]") {
  loopback link;
  if (!link.ctx.limits().atomic_write) CORDMA_SKIP("the device has no ATOMIC WRITE");
  local_mr from = link.pattern(8);
  local_mr there = link.memory(8);
  const remote_mr_slice word = there.remote_slice();
  auto& post_send = link.ctx.native_handle()->ops.post_send;
  auto* const real =
      std::exchange(post_send, [](ibv_qp*, ibv_send_wr*, ibv_send_wr**) { return ENOMEM; });
  auto batch = link.a->post_all(atomic_write(word, 1), write(from, word));
  post_send = real;
  const failure why = link.outcome(batch).failure();
  CHECK(why.code == std::error_code{ENOMEM, std::system_category()});
  CHECK(std::string{why.call} == "ibv_post_send");
  CHECK(link.a->sends().in_flight() == 2);
  CHECK(link.run(link.a->write(from, word)) == 8);
  CHECK(held_by(from) == nothing);
  CHECK(held_by(*link.a) == nothing);
}
