// A rank that does not run for a while, and what the others send it meanwhile.
#include "group/group_context.hpp"

#include "ranks.hpp"
#include "support/until.hpp"

#include <latch>
#include <optional>
#include <thread>
#include <vector>

using namespace cordma;
using test::expect;

namespace {

constexpr unsigned members = 4;
constexpr unsigned idle = members - 1;
/// Scatters of each other rank. More than a rank may send ahead; all together, as many as may run.
constexpr unsigned scatters = 21;
constexpr unsigned tags = 40;
constexpr std::size_t large_bytes = 100'000;

/// A sender that finds no receive loses its connection at once, and there are as few as can be.
group_options without_retries() {
  group_options options{.connections = {.rnr_retry = 0}, .connect_at_once = true};
  options.receive_buffers = 2 * (members - 1) * 8;
  options.algorithms = "scatter=linear";
  return options;
}

/// One rank on a thread of its own.
class flooded_rank {
 public:
  flooded_rank(runtime& rt, meeting how, std::latch& all_sent)
      : rt_{rt}, how_{std::move(how)}, all_sent_{all_sent} {}
  flooded_rank(const flooded_rank&) = delete;
  ~flooded_rank() {
    if (!has_sent_ && !is_idle_) all_sent_.count_down();
  }

  task<> live() {
    group_ = co_await group::join(rt_, std::move(how_), without_retries());
    co_await group_.barrier();
    // The thread waits for those of the others: nothing is received, polled or answered.
    is_idle_ = group_.rank() == idle;
    if (is_idle_) all_sent_.wait();
    co_await with_scope([this](scope& running) -> task<> {
      for (unsigned n = 0; n < scatters; ++n)
        for (unsigned root = 0; root < idle; ++root) running.spawn(scatter(root, n));
      if (is_idle_) {
        running.spawn(take_all());
        co_return;
      }
      for (unsigned tag = 0; tag < tags; ++tag) running.spawn(send(tag));
      co_await test::until(rt_.executor(), [this] { return is_stuck(); });
      has_sent_ = true;
      all_sent_.count_down();
    });
    co_await group_.barrier();
    co_await std::exchange(group_, group{}).leave();
  }

 private:
  static std::size_t length_of(unsigned tag) { return tag % 4 == 3 ? large_bytes : 8; }
  static std::byte value_of(unsigned rank, unsigned n) { return std::byte(rank * 64 + n + 1); }
  /// All that was begun waits for the idle rank, for which there is no credit left.
  [[nodiscard]] bool is_stuck() const {
    const group::statistics now = group_.counters();
    return now.credit_waits >= scatters - detail::group_context::eager_window &&
           begun_ == scatters * idle + tags;
  }
  task<> scatter(unsigned root, unsigned n) {
    const bool is_root = group_.rank() == root;
    local_mr in = rt_.memory().allocate_zeroed(members);
    local_mr out = rt_.memory().allocate_zeroed(1);
    std::ranges::fill(in.bytes(), value_of(root, n));
    ++begun_;
    co_await group_.scatter(is_root ? in.slice() : local_mr_slice{}, out.slice(), root);
    expect(out.bytes()[0] == value_of(root, n), "a block");
  }
  task<> send(unsigned tag) {
    local_mr data = rt_.memory().allocate_zeroed(length_of(tag));
    std::ranges::fill(data.bytes(), value_of(group_.rank(), tag));
    ++begun_;
    co_await group_.send(data.slice(), idle, tag);
  }
  task<> take_all() {
    local_mr data = rt_.memory().allocate_zeroed(large_bytes);
    for (unsigned tag = 0; tag < tags; ++tag) {
      for (unsigned from = 0; from < idle; ++from) {
        const group::message got = co_await group_.receive(data.slice(), from, tag);
        expect(got.size_bytes == length_of(tag), "a length");
        expect(data.bytes()[got.size_bytes - 1] == value_of(from, tag), "the bytes");
      }
    }
  }

  runtime& rt_;
  meeting how_;
  std::latch& all_sent_;
  group group_;
  unsigned begun_ = 0;
  bool is_idle_ = false;
  bool has_sent_ = false;
};

}  // namespace

TEST_CASE("a rank that does not run has a receive for all that others send it meanwhile",
          "[group][device]") {
  const std::vector<meeting> meetings = meeting::in_process(members);
  std::vector<result<void>> outcomes(members, cancelled_result);
  std::latch all_sent{idle};
  std::vector<std::jthread> threads;
  for (unsigned r = 0; r < members; ++r) {
    threads.emplace_back([&, r] {
      runtime rt{test::on_test_device()};
      flooded_rank rank{rt, meetings[r], all_sent};
      outcomes[r] = rt.run(as_result(rank.live()));
    });
  }
  threads.clear();
  for (const result<void>& one : outcomes) {
    INFO((one.has_failure() ? one.failure().to_string() : ""));
    CHECK(one.has_value());
  }
}
