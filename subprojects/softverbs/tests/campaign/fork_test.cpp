#include "process.hpp"
#include "rig.hpp"

#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

// A role of its own process forks: the test program itself may have any threads.

namespace {

/// A queue pair with one receive posted, and what it needs.
struct speaker {
  rig::device device;
  std::uint64_t word[2] = {};
  rig::mr_ptr mr = device.reg(word, sizeof word);
  rig::cq_ptr cq = device.make_cq(16);
  rig::qp_ptr qp = rig::make_qp(device, cq.get(), cq.get());

  speaker() {
    rig::to_init(qp.get());
    listen();
  }
  void listen() { rig::post_recv(qp.get(), 1, rig::piece(mr.get(), &word[1], 8)); }
  rig::card mine() const { return {qp->qp_num, mr->rkey, 0, device.gid, 0}; }
  int post() { return rig::request{IBV_WR_SEND, 2, rig::piece(mr.get(), word, 8)}.post(qp.get()); }
  void say(std::uint64_t what) {
    word[0] = what;
    rig::check(post(), "ibv_post_send");
  }
  std::uint64_t hear() {
    while (rig::wait_success(cq.get()).wr_id != 1) {
    }
    return word[1];
  }
};

void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error{what};
}

int child_of_fork(speaker& inherited, int control) {
  expect(inherited.post() == EIO, "an inherited QP does not answer EIO to a post");
  ibv_wc wc{};
  expect(ibv_poll_cq(inherited.cq.get(), 1, &wc) < 0, "an inherited CQ answers a poll");
  errno = 0;
  expect(ibv_alloc_pd(inherited.device.context.get()) == nullptr && errno == EIO,
         "an inherited context does not answer EIO");
  speaker own;
  rig::put(control, own.mine());
  rig::connect(own.qp.get(), own.device, rig::get<rig::card>(control));
  rig::put(control, 'r');
  expect(own.hear() == 41, "the parent's word");
  own.say(42);
  rig::get<char>(control);  // The parent has it.
  return 0;
}

int parent_of_fork(const std::vector<std::string>&) {
  speaker self;  // Connected with itself.
  rig::connect(self.qp.get(), self.device, self.mine());
  self.say(1);
  expect(self.hear() == 1, "a word to itself, before the fork");
  speaker other;
  rig::socket_pair control;
  const pid_t pid = ::fork();
  if (pid == 0) {
    int status = 1;
    try {
      status = child_of_fork(self, control.theirs.get());
    } catch (const std::exception& error) {
      ::dprintf(2, "child of fork: %s\n", error.what());
    }
    ::_exit(status);
  }
  control.theirs.close();
  rig::connect(other.qp.get(), other.device, rig::get<rig::card>(control.ours.get()));
  rig::put(control.ours.get(), other.mine());
  rig::get<char>(control.ours.get());
  other.say(41);
  expect(other.hear() == 42, "the child's word");
  rig::put(control.ours.get(), 'd');
  int status = 0;
  expect(::waitpid(pid, &status, 0) == pid && status == 0, "the child failed");
  self.listen();
  self.say(2);
  expect(self.hear() == 2, "a word to itself, after the child's end");
  return 0;
}
const rig::role forking_role{"forking", parent_of_fork};

}  // namespace

TEST_CASE(
    "a child of fork talks to its parent through its own device, not through inherited objects",
    "[campaign]") {
  CHECK(rig::child{"forking", {}}.wait() == 0);
}
