#include "pair.hpp"

#include "watch.hpp"

#include <support/connected_pair.hpp>
#include <support/two_hosts.hpp>

#include <cordma/coro/when_all.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace walk {

using namespace cordma;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t failures_max = 10;

/// Polls as a program in manual mode has to.
class hand final : public poller {
 public:
  explicit hand(runtime& rt) : rt_{rt} { rt.executor().add_restless(*this); }

 private:
  std::size_t poll() noexcept override { return rt_.poll(); }
  bool prepare_wait() noexcept override { return false; }
  runtime& rt_;
};

/// A runtime in the mode of the walks.
struct walk_runtime {
  explicit walk_runtime(completion_mode mode) : rt{test::on_test_device({.cq = {.mode = mode}})} {
    if (mode == completion_mode::manual) polls.emplace(rt);
  }
  runtime rt;
  std::optional<hand> polls;
};

[[noreturn]] void end_badly(side& me, const std::exception& why) {
  me.fails(why.what());
  ::_exit(1);
}
/// Ends the process at once on an exception, before what `work` leaves open is closed.
task<> live_or_end(side& me, task<> work) {
  try {
    co_await std::move(work);
  } catch (const std::exception& e) {
    end_badly(me, e);
  }
}

/// Walks of one place and mode, and what both ends have from their parent.
class pair {
 public:
  pair(std::span<const cell> walks, board& b) : walks_{walks}, board_{b} {
    std::array<int, 2> ends{};
    check(::pipe2(ends.data(), O_CLOEXEC) == 0, "pipe2");
    from_answering_ = unique_fd{ends[0]}, to_asking_ = unique_fd{ends[1]};
    if (where() == setting::two_hosts) hosts_.emplace();
  }
  [[nodiscard]] walkers start() const {
    walkers all;
    if (where() == setting::one_thread) {
      all.push_back(std::make_unique<walker>([this] { be_both(); }));
    } else if (where() == setting::two_threads) {
      all.push_back(std::make_unique<walker>([this] {
        const std::jthread other{[this] { answer(); }};
        ask();
      }));
    } else {
      all.push_back(std::make_unique<walker>([this] {
        settle(0);
        answer();
      }));
      all.push_back(std::make_unique<walker>([this] {
        settle(1);
        ask();
      }));
    }
    return all;
  }

 private:
  [[nodiscard]] setting where() const { return walks_.front().where; }
  [[nodiscard]] std::string host() const {
    return hosts_.has_value() ? test::two_hosts::addresses[0] : "127.0.0.1";
  }
  /// Moves this process to its place.
  void settle(std::size_t which) const {
    if (hosts_.has_value()) hosts_->enter(which);
    if (where() == setting::tcp_link)
      ::setenv("SOFTVERBS_LINK", "tcp", 1);  // NOLINT(concurrency-mt-unsafe)
  }
  void tell(const acceptors& d) const {
    check(::write(to_asking_.get(), &d, sizeof d) == sizeof d, "write");
  }
  [[nodiscard]] acceptors hear() const {
    acceptors d{};
    check(::read(from_answering_.get(), &d, sizeof d) == sizeof d, "read");
    return d;
  }

  // A life each. The process ends with what it throws.
  void answer() const noexcept {
    try {
      walk_runtime here{walks_.front().answering_mode};
      answering_end end{here.rt, board_.answering, walks_, host()};
      tell(end.listens_at());
      here.rt.run(live_or_end(board_.answering, end.live()));
    } catch (const std::exception& e) {
      end_badly(board_.answering, e);
    }
  }
  void ask() const noexcept {
    try {
      walk_runtime here{walks_.front().mode};
      asking_end end{here.rt, board_.asking, walks_};
      here.rt.run(live_or_end(board_.asking, end.live(host(), hear())));
    } catch (const std::exception& e) {
      end_badly(board_.asking, e);
    }
  }
  void be_both() const {
    walk_runtime here{walks_.front().mode};
    answering_end answering{here.rt, board_.answering, walks_, host()};
    asking_end asking{here.rt, board_.asking, walks_};
    here.rt.run(when_all(live_or_end(board_.answering, answering.live()),
                         live_or_end(board_.asking, asking.live(host(), answering.listens_at()))));
  }

  std::span<const cell> walks_;
  board& board_;
  unique_fd from_answering_, to_asking_;
  std::optional<test::two_hosts> hosts_;
};

}  // namespace

std::vector<std::string> walk_all(std::span<const cell> walks, std::chrono::milliseconds patience) {
  std::vector<std::string> failures;
  while (!walks.empty() && failures.size() < failures_max) {
    const auto other = std::ranges::find_if(
        walks, [&first = walks.front()](const cell& c) { return !c.goes_with(first); });
    const auto together = walks.first(std::size_t(other - walks.begin()));
    const std::shared_ptr<board> b = make_board();
    const pair both{together, *b};
    const auto failure = watch(*b, both.start(), patience);
    if (!failure.has_value()) {
      walks = walks.subspan(together.size());
      continue;
    }
    const cell& at = together[std::min(b->asking.walk, b->answering.walk)];
    failures.push_back(to_string(at) + ": " + *failure);
    std::fprintf(stderr, "%s\n", failures.back().c_str());
    walks = walks.subspan(std::size_t(&at - walks.data()) + 1);
  }
  return failures;
}

}  // namespace walk
