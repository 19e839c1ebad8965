#pragma once

#include <cordma/detail/coro/frame_cache.hpp>
#include <cordma/detail/transfer/request_pack.hpp>
#include <cordma/detail/transfer/send_queue.hpp>

#include <array>
#include <memory>
#include <new>
#include <tuple>
#include <utility>

namespace cordma {

/// One request, or several posted with one doorbell, as an operation; and as a handle, once posted.
///
/// Awaited directly it is posted when it starts. A stop before that means it never happens; after
/// it, only the waiting ends (`cancelled`): a posted request cannot be recalled, and its slot keeps
/// the memory until the completion. As a handle (`post`) it is on its way when it is made, can be
/// moved, awaited later (and again, after a stopped or timed-out wait), or dropped, which detaches
/// it and recalls nothing.
///
/// Gives the request's value; several: a tuple of them. Errors: `wc_errc::*` of the request that
/// failed (`failure::index` says which), and before posting `errc::stale_slice`,
/// `wrong_protection_domain`, `access_denied`, `too_many_slices`, `out_of_range`, `wrong_length`,
/// `misaligned`, `limit_exceeded`, `disconnected`, `not_supported` (the peer serves no READs); of
/// borrowed memory `lease_expired`, `lease_ended`, `wrong_connection`; of a handle that was posted
/// unsignaled `not_signaled`.
/// Thread: the executor's. Cost: one slot and one doorbell; no allocation, no system call of ours.
template <class... Requests>
class [[nodiscard]] request_op final : public operation_base<request_op<Requests...>>,
                                       public submission,
                                       public frame_cache::recycled {
  using pack = request_pack<Requests...>;
  static constexpr std::size_t count = pack::count;
  static constexpr request_kind kind = pack::kinds[0];  // Of all in one slot.
  static constexpr std::size_t slices_max = pack::sges_max;
  using references = typename pack::references;

 public:
  using value_type = typename pack::value_type;

  /// To be awaited.
  request_op(send_queue& queue, const Requests&... requests) noexcept : submission{queue, count} {
    keep(requests...);
  }
  /// To be posted.
  explicit request_op(send_queue& queue) noexcept : submission{queue, count} {}
  request_op(request_op&& other) noexcept : submission{static_cast<submission&&>(other)} {
    if (has_failure()) {
      std::construct_at(&failure_, other.failure_);
    } else if (state_ == state::ended || state_ == state::in_flight) {
      values_ = other.values_;
      if constexpr (pack::has_atomic) values_before_ = values_.data();
    } else {
      std::construct_at(&requests_, other.requests_);
    }
  }
  ~request_op() {
    if (state_ >= state::queued) [[unlikely]]
      leave();
  }

  /// Posts them now, or queues them behind those that wait for room.
  void post(const Requests&... requests) noexcept {
    is_handle_ = true;
    if (post_at_once(pack::refer(requests...))) [[likely]]
      return;
    keep(requests...);
    submit();
  }

  /// The same, and a reserved slot will do (`send_queue::reserve`).
  void post_urgent(const Requests&... requests) noexcept {
    is_urgent_ = true;
    post(requests...);
  }

  /// Its waiter is told in the middle of a reap, or of the queue pair's failure, rather than in a
  /// turn of its own. It may destroy this, and post.
  void tell_at_once() noexcept { tells_at_once_ = true; }

  // As an operation.
  bool start(waiter& w, const environment& env) noexcept {
    if (state_ != state::idle) [[unlikely]]
      return start_posted(w, env);
    forget_stop();
    if (env.stop.stop_requested()) [[unlikely]]
      return stopped();
    if (!post_kept() && !(queue_->gets_slots_for(count) && post_kept())) [[unlikely]] {
      ask_for_entry();
      submit();
    }
    return has_ended() || wait(w, env);
  }
  [[gnu::always_inline]] value_type take() {
    if (failed()) [[unlikely]]
      return take_failed();
    return pack::values(values_);
  }
  result<value_type> take_result() noexcept {
    if (was_stopped()) return cancelled_result;
    if (failed()) return failure_.to_failure();
    return pack::values(values_);
  }

 private:
  bool post_kept() noexcept { return post_all<true>(*queue_, pack::refer(requests_)); }
  [[gnu::noinline, gnu::cold]] value_type take_failed() { return take_result().value(); }
  /// What is not posted at once: it is awaited, or waits for room.
  void keep(const Requests&... requests) noexcept { std::construct_at(&requests_, requests...); }
  void ask_for_entry() noexcept override {
    if constexpr (!pack::is_batch) std::get<0>(requests_).send_flags |= IBV_SEND_SIGNALED;
  }
  /// Nobody holds it any more, and it has not ended.
  [[gnu::noinline]] void leave() noexcept {
    forget_waiter();
    if (state_ == state::in_flight) return detach();
    if (is_handle_ && go_on_alone()) return;
    queue_->withdraw(*this);
  }
  [[nodiscard]] typename pack::shapes shapes() const noexcept {
    return pack::shapes_of(pack::refer(requests_));
  }

  /// False: nothing has happened, somebody waits, or they are not like most. Once for each kind of
  /// request, not for each `co_await`.
  [[gnu::noinline]] bool post_at_once(const references& all) noexcept {
    return post_all<false>(*queue_, all);
  }
  /// `IsAwaited`: each that is not of a batch has an entry.
  template <bool IsAwaited>
  [[gnu::always_inline]] bool post_all(send_queue& queue, const references& all) noexcept {
    if (!queue.has_room_for(count) || !try_hold(queue, all)) [[unlikely]]
      return false;
    post_each<true, IsAwaited>(queue, all);
    return true;
  }
  [[gnu::always_inline]] static bool try_hold(send_queue& queue, const references& all) noexcept {
    std::size_t held = 0;
    const bool are_all = pack::all_of(all, [&](const auto& request, std::size_t i) {
      held = i;
      const request_shape its = request.shape();
      return queue.is_like_most(its) && queue.lease_refusal(its) == errc{} && queue.try_hold(its);
    });
    if (!are_all) [[unlikely]]
      let_go_of_first(queue, held, all);
    return are_all;
  }
  [[gnu::noinline]] static void let_go_of_first(send_queue& queue, std::size_t held,
                                                const references& all) noexcept {
    pack::all_of(all, [&](const auto& request, std::size_t i) {
      if (i < held) queue.let_go(request.shape());
      return i < held;
    });
  }
  std::optional<request_outcome> hold() noexcept override { return queue_->hold(shapes()); }
  void let_go() noexcept override { queue_->let_go(shapes()); }
  void destroy() noexcept override { delete this; }
  void post_now() noexcept override {
    const bool is_allowed =
        pack::all_of(pack::refer(requests_), [this](const auto& request, std::size_t) {
          return queue_->lease_refusal(request.shape()) == errc{};
        });
    if (!is_allowed) return queue_->post_refused(*this, shapes());
    post_each<false, false>(*queue_, pack::refer(requests_));
  }
  /// `IsLikeMost`: `try_hold` took hold of them.
  template <bool IsLikeMost, bool IsAwaited>
  [[gnu::always_inline]] void post_each(send_queue& queue, const references& all) noexcept {
    if constexpr (pack::has_atomic) values_before_ = values_.data();
    if constexpr (pack::is_batch) {
      post_batch<IsLikeMost>(queue, all);
    } else {
      post_one<IsLikeMost, IsAwaited>(queue, std::get<0>(all));
    }
  }
  template <bool IsLikeMost, bool IsAwaited>
  [[gnu::always_inline]] void post_one(send_queue& queue, const auto& request) noexcept {
    request_shape its = request.shape();
    if constexpr (IsAwaited) its.set_signaled(true);
    values_[0] = pack::value_to_be(request);
    if constexpr (IsLikeMost && pack::has_one_slice) {
      if (!is_handle_ && queue.batches(its)) return queue.batch(*this, request, its);
    }
    send_queue::posting posting = queue.begin_post(*this, count);
    if constexpr (IsLikeMost && pack::has_one_slice) {
      described_request& one = queue.describes(kind);
      request.fill(one.wr);
      queue.template place<true, true>(posting, its, one.wr, &one.sge, true);
      ring(queue, posting, std::span<ibv_send_wr, 1>{&one.wr, 1});
    } else {
      std::array<ibv_send_wr, 1> wr;
      std::array<ibv_sge, pack::sges_max> sges;
      fill(request, wr[0]);
      wr[0].next = nullptr;
      queue.template place<IsLikeMost>(posting, its, wr[0], sges.data(), true);
      ring(queue, posting, wr);
    }
  }
  template <bool IsLikeMost>
  [[gnu::always_inline]] void post_batch(send_queue& queue, const references& all) noexcept {
    std::array<ibv_send_wr, count> wrs;
    std::array<std::array<ibv_sge, pack::sges_max>, count> sges;
    send_queue::posting posting = queue.begin_post(*this, count);
    pack::all_of(all, [&](const auto& request, std::size_t i) {
      values_[i] = pack::value_to_be(request);
      fill(request, wrs[i]);
      wrs[i].next = &wrs[i] + 1;
      request_shape its = request.shape();
      its.set_signaled(!IsLikeMost && i + 1 == count);
      queue.template place<IsLikeMost>(posting, its, wrs[i], sges[i].data(), !IsLikeMost);
      return true;
    });
    wrs.back().next = nullptr;
    if constexpr (IsLikeMost) wrs.back().send_flags |= queue.entry_flag(posting.sequence - 1, true);
    ring(queue, posting, wrs);
  }
  [[gnu::always_inline]] static void fill(const auto& request, ibv_send_wr& wr) noexcept {
    clear_rest(wr);
    request.fill(wr);
  }
  [[gnu::always_inline]] void ring(send_queue& queue, const send_queue::posting& posting,
                                   std::span<ibv_send_wr, count> wrs) noexcept {
    ibv_send_wr* bad = nullptr;
    if (const int rc = queue.ring(count, wrs[0], bad); rc != 0) [[unlikely]]
      return post_failed({posting.signaled_before, rc, bad}, wrs[0]);
    queue.template count_posted<pack::kinds>(first_);
  }
  [[gnu::noinline]] void post_failed(const send_queue::post_failure& why,
                                     const ibv_send_wr& first) noexcept {
    queue_->post_failed(*this, why, first);
  }
  [[nodiscard]] request_kind kind_of(std::uint32_t index) const noexcept override {
    return pack::kinds[index];
  }

  /// Dropped while it waits for room: moves to a block of its own, to be posted in its turn.
  /// Without memory for that it is withdrawn.
  bool go_on_alone() noexcept {
    try {
      auto* const alone = new request_op{std::move(*this)};
      alone->owns_itself_ = true;
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  [[nodiscard]] request_failure* place_of_failure() noexcept override { return &failure_; }

  union {
    std::tuple<Requests...> requests_;  // Unless they were posted at once.
    request_failure failure_;
  };
  typename pack::words values_;  // Once they are posted.
};

}  // namespace cordma
