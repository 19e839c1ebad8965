#pragma once

#include <cordma/detail/base/counter.hpp>
#include <cordma/queue/transfer_counters.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace cordma {

/// Counters of one completion queue's queue pairs and of their pools, which it outlives. Each
/// counter is an array, so that indexing by kind needs no multiplication. \thread the executor's;
/// `read` any.
class transfer_tally {
 public:
  using by_kind = std::array<counter, detail::request_kinds>;

  void posted(request_kind kind, std::uint64_t n = 1) noexcept { add(posted_, kind, n); }
  void completed(request_kind kind, std::uint64_t n = 1) noexcept { add(completed_, kind, n); }
  void failed(request_kind kind, std::uint64_t n = 1) noexcept { add(failed_, kind, n); }
  void refused(request_kind kind) noexcept { add(refused_, kind, 1); }
  void cancelled(request_kind kind) noexcept { add(cancelled_, kind, 1); }
  void stalled(std::uint64_t n) noexcept { stalls_.add(n); }
  void waited_for_credit() noexcept { credit_waits_.add(); }
  void exceeded_rnr() noexcept { rnr_exceeded_.add(); }

  [[nodiscard]] transfer_counters read() const noexcept {
    transfer_counters now;
    for (std::size_t kind = 0; kind < detail::request_kinds; ++kind) {
      now.requests[kind] = {.posted = posted_[kind].value(),
                            .completed = completed_[kind].value(),
                            .failed = failed_[kind].value(),
                            .refused = refused_[kind].value(),
                            .cancelled = cancelled_[kind].value()};
    }
    now.stalls = stalls_.value();
    now.credit_waits = credit_waits_.value();
    now.rnr_exceeded = rnr_exceeded_.value();
    return now;
  }

 private:
  static void add(by_kind& to, request_kind kind, std::uint64_t n) noexcept {
    to[std::size_t(kind)].add(n);
  }

  by_kind posted_;
  by_kind completed_;
  by_kind failed_;
  by_kind refused_;
  by_kind cancelled_;
  counter stalls_;
  counter credit_waits_;
  counter rnr_exceeded_;
};

}  // namespace cordma
