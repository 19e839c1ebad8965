#include "meeting_kinds.hpp"
#include "meeting_member.hpp"

#include "base/failures.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/group/joining.hpp>
#include <cordma/runtime/runtime.hpp>

#include <mutex>
#include <utility>

namespace cordma::detail {
namespace {

endpoint loopback() { return {"127.0.0.1", 0}; }

class single_meeting final : public meeting_kind {
 public:
  [[nodiscard]] unsigned size() const noexcept override { return 1; }
  task<endpoint> where_to_listen(runtime&) override { co_return loopback(); }
  task<roster> meet(runtime&, const group_options&, group_member self) override {
    roster all{.name = random_name()};
    all.members.push_back(std::move(self));
    co_return all;
  }
};

/// Tells a rank, on the executor of that rank, that all have come.
struct notice {
  explicit notice(cordma::executor& executor) noexcept : has_come{executor} {}
  event has_come;
};

/// The ranks of one process. \thread any.
class gathering {
 public:
  explicit gathering(unsigned size) : slots_(size), missing_{size} {}

  /// One rank that waits for the others, until it is destroyed.
  class presence {
   public:
    presence(gathering& all, unsigned rank, cordma::executor& executor, group_member self)
        : all_{all}, rank_{rank}, notice_{std::make_shared<notice>(executor)} {
      all_.seat(rank, executor, notice_, std::move(self));
    }
    presence(const presence&) = delete;
    ~presence() { all_.leave(rank_); }
    [[nodiscard]] event& has_come() const noexcept { return notice_->has_come; }

   private:
    gathering& all_;
    const unsigned rank_;
    const std::shared_ptr<notice> notice_;
  };

  [[nodiscard]] std::vector<unsigned> missing() const {
    const std::lock_guard lock{mutex_};
    std::vector<unsigned> ranks;
    for (unsigned rank = 0; missing_ > 0 && rank < slots_.size(); ++rank)
      if (!slots_[rank].has_come) ranks.push_back(rank);
    return ranks;
  }
  /// Returns the result; all have come.
  [[nodiscard]] roster roster_of(unsigned rank) const {
    const std::lock_guard lock{mutex_};
    roster all{.rank = rank, .name = name_};
    for (const slot& one : slots_) all.members.push_back(one.member);
    return all;
  }

 private:
  struct slot {
    bool has_come = false;
    cordma::executor* executor = nullptr;  // While the rank waits.
    std::shared_ptr<detail::notice> notice;
    group_member member;
  };

  void seat(unsigned rank, cordma::executor& executor, std::shared_ptr<notice> told,
            group_member self) {
    const std::lock_guard lock{mutex_};
    slot& own = slots_[rank];
    if (own.has_come)
      throw_failure(errc::refused, "meeting::in_process",
                    detail_text("rank %u has come already: a meeting serves one group", rank));
    own = {true, &executor, std::move(told), std::move(self)};
    if (--missing_ > 0) return;
    // A rank leaves under the lock, so each executor lives that is posted to.
    for (const slot& one : slots_)
      one.executor->post([notice = one.notice]() noexcept { notice->has_come.set(); });
  }
  void leave(unsigned rank) noexcept {
    const std::lock_guard lock{mutex_};
    slot& own = slots_[rank];
    own.executor = nullptr;
    own.notice.reset();
    if (missing_ == 0) return;
    own.has_come = false;
    ++missing_;
  }

  mutable std::mutex mutex_;
  std::vector<slot> slots_;
  std::size_t missing_;
  const group_name name_ = random_name();
};

class in_process_meeting final : public meeting_kind {
 public:
  in_process_meeting(std::shared_ptr<gathering> all, unsigned rank, unsigned size)
      : all_{std::move(all)}, rank_{rank}, size_{size} {}

  [[nodiscard]] unsigned size() const noexcept override { return size_; }
  task<endpoint> where_to_listen(runtime&) override { co_return loopback(); }
  task<roster> meet(runtime& rt, const group_options& options, group_member self) override {
    check_own(self);
    const gathering::presence here{*all_, rank_, rt.executor(), std::move(self)};
    const time_span limit = options.join_timeout;
    const result<void> told =
        co_await as_result(with_timeout(here.has_come().wait(), limit, &rt.executor()));
    if (told.is_cancelled()) throw_cancelled();
    const std::vector<unsigned> missing = all_->missing();
    if (!missing.empty()) throw_error(missing_ranks("meeting::in_process", missing, size_, limit));
    co_return all_->roster_of(rank_);
  }

 private:
  const std::shared_ptr<gathering> all_;
  const unsigned rank_;
  const unsigned size_;
};

}  // namespace

std::shared_ptr<meeting_kind> make_single_meeting() { return std::make_shared<single_meeting>(); }

std::vector<std::shared_ptr<meeting_kind>> make_in_process_meetings(unsigned size) {
  check_rank("meeting::in_process", 0, size);
  const auto all = std::make_shared<gathering>(size);
  std::vector<std::shared_ptr<meeting_kind>> ranks;
  ranks.reserve(size);
  for (unsigned rank = 0; rank < size; ++rank)
    ranks.push_back(std::make_shared<in_process_meeting>(all, rank, size));
  return ranks;
}

}  // namespace cordma::detail
