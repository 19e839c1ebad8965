#include <cordma/detail/request/requester.hpp>

#include "support/loopback.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using test::loopback;

namespace {

struct user_of_a_queue : requester<user_of_a_queue> {
  explicit user_of_a_queue(send_queue& queue) : queue_{queue} {}
  [[nodiscard]] send_queue& sends() noexcept { return queue_; }

 private:
  send_queue& queue_;
};

}  // namespace

TEST_CASE("whatever has a send queue makes each kind of request in it", "[request][device]") {
  loopback link;
  local_mr mine = link.pattern(64);
  local_mr there = link.memory(64);
  const remote_mr_slice remote = there.remote_slice(), word = remote.first(8);
  user_of_a_queue user{link.a->sends()};
  const auto posted = [&](request_kind kind) { return link.driver.requests().of(kind).posted; };
  for (int n = 0; n < 3; ++n) link.b->post_recv(there);

  link.run(user.send(mine));
  link.run(user.send_with_imm(mine, 1));
  CHECK(posted(request_kind::send) == 2);
  link.run(user.write(mine, remote));
  link.run(user.write_with_imm(mine, remote, 1));
  link.run(user.await(write(mine, remote)));
  link.run(user.post(write(mine, remote)));
  CHECK(posted(request_kind::write) == 4);
  link.run(user.read(mine, remote));
  link.run(user.post_all(read(mine, remote), read(mine, remote)));
  CHECK(posted(request_kind::read) == 3);
  link.run(user.compare_swap(word, 0, 1));
  link.run(user.fetch_add(word, 1));
  CHECK(posted(request_kind::atomic) == 2);
}
