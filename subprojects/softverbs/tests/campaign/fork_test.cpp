#include "process.hpp"
#include "rig.hpp"
#include "soak.hpp"

#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#if defined(__SANITIZE_THREAD__)
#define SOFTVERBS_HAS_TSAN 1
#elif defined(__has_feature)
#define SOFTVERBS_HAS_TSAN __has_feature(thread_sanitizer)
#else
#define SOFTVERBS_HAS_TSAN 0
#endif

// A role of its own process forks: the test program itself may have any threads.

namespace {

constexpr bool has_thread_sanitizer = SOFTVERBS_HAS_TSAN != 0;

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

int child_of_fork(speaker& inherited, int control) {
  rig::expect(inherited.post() == EIO, "an inherited QP does not answer EIO to a post");
  ibv_wc wc{};
  rig::expect(ibv_poll_cq(inherited.cq.get(), 1, &wc) < 0, "an inherited CQ answers a poll");
  errno = 0;
  rig::expect(ibv_alloc_pd(inherited.device.context.get()) == nullptr && errno == EIO,
              "an inherited context does not answer EIO");
  speaker own;
  rig::put(control, own.mine());
  rig::connect(own.qp.get(), own.device, rig::get<rig::card>(control));
  rig::put(control, 'r');
  rig::expect(own.hear() == 41, "the parent's word");
  own.say(42);
  rig::get<char>(control);  // The parent has it.
  return 0;
}

int parent_of_fork(const std::vector<std::string>&) {
  speaker self;  // Connected with itself.
  rig::connect(self.qp.get(), self.device, self.mine());
  self.say(1);
  rig::expect(self.hear() == 1, "a word to itself, before the fork");
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
  rig::expect(other.hear() == 42, "the child's word");
  rig::put(control.ours.get(), 'd');
  int status = 0;
  rig::expect(::waitpid(pid, &status, 0) == pid && status == 0, "the child failed");
  self.listen();
  self.say(2);
  rig::expect(self.hear() == 2, "a word to itself, after the child's end");
  return 0;
}
const rig::role forking_role{"forking", parent_of_fork};

/// Threads in what is the whole process's, as often as they can be, while it forks.
int busy_parent_of_fork(const std::vector<std::string>&) {
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int n = 0; n < 2; ++n) {
    threads.emplace_back([&over] {
      while (!over.load()) ibv_free_device_list(ibv_get_device_list(nullptr));
    });
    threads.emplace_back([&over] {
      while (!over.load()) const rig::device opened;
    });
  }
  bool well = true;
  for (int n = 0; n < 50 && well; ++n) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      constexpr unsigned seconds_max = 60;  // A hang is a failure, too.
      ::alarm(seconds_max);
      int status = 1;
      try {
        speaker self;
        rig::connect(self.qp.get(), self.device, self.mine());
        self.say(7);
        status = self.hear() == 7 ? 0 : 1;
      } catch (const std::exception& error) {
        ::dprintf(2, "child of a busy fork: %s\n", error.what());
      }
      ::_exit(status);
    }
    int status = 0;
    well = ::waitpid(pid, &status, 0) == pid && status == 0;
  }
  over.store(true);
  for (std::thread& one : threads) one.join();
  return well ? 0 : 1;
}
const rig::role busy_forking_role{"forking-busy", busy_parent_of_fork};

}  // namespace

TEST_CASE(
    "a child of fork talks to its parent through its own device, not through inherited objects",
    "[campaign]") {
  CHECK(rig::child{"forking", {}}.wait() == 0);
}

TEST_CASE("a child of fork opens a device of its own, whatever its parent's threads were at",
          "[campaign]") {
  if (has_thread_sanitizer) return soak::skip("a child may inherit ThreadSanitizer's own locks");
  CHECK(rig::child{"forking-busy", {}}.wait() == 0);
}
