#pragma once

#include <cordma/coro/frame_cache.hpp>
#include <cordma/transfer/request_pack.hpp>
#include <cordma/transfer/send_queue.hpp>

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
  static constexpr request_kind kind = pack::kinds[0];  // Of one alone.
  static constexpr std::size_t slices_max = pack::sges_max;
  static constexpr auto each = pack::each;
  using references = typename pack::references;
  using sharing = typename pack::sharing;

 public:
  using value_type = typename pack::value_type;

  /// To be awaited.
  request_op(send_queue& queue, const Requests&... requests) noexcept : submission{queue, count} {
    keep(requests...);
  }
  /// To be posted.
  explicit request_op(send_queue& queue) noexcept : submission{queue, count} {}
  request_op(request_op&& other) noexcept : submission{static_cast<submission&&>(other)} {
    if (state_ == state::ended || state_ == state::in_flight) {
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
    if (post_at_once(requests...)) [[likely]]
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
  [[gnu::noinline]] bool begin(const environment& env) noexcept {
    return submission::post(env, [this] {
      if (post_kept<false>(*queue_)) [[likely]]
        return true;
      ask_for_entry();
      return false;
    });
  }
  [[gnu::noinline]] bool begin_and_look(const environment& env) noexcept {
    return begin_and_look_as(*this, env);
  }
  using submission::wait;
  bool start(waiter& w, const environment& env) noexcept { return begin(env) || wait(w, env); }
  [[gnu::always_inline]] value_type take() {
    if (failed()) [[unlikely]]
      return take_failed();
    return pack::values(values_);
  }
  result<value_type> take_result() noexcept {
    if (was_stopped()) return cancelled_result;
    if (failed()) return failure_.to_failure(qp_num_);
    return pack::values(values_);
  }

 private:
  friend class submission;
  [[gnu::noinline]] bool begin_any_and_look(const environment& env) noexcept {
    return begin(env) || look(env);
  }
  [[gnu::always_inline]] bool post_alone(send_queue& queue) noexcept {
    return post_kept<true>(queue);
  }
  template <bool IsAlone>
  [[gnu::always_inline]] bool post_kept(send_queue& queue) noexcept {
    return std::apply(
        [this, &queue](const auto&... all) {
          return this->template post_all<IsAlone, true>(queue, all...);
        },
        requests_);
  }
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
  template <std::size_t I>
  [[nodiscard, gnu::always_inline]] static request_shape shape(const references& all) noexcept {
    return pack::template shape<I>(all);
  }
  [[nodiscard]] typename pack::shapes shapes() const noexcept { return pack::shapes_of(requests_); }
  template <std::size_t I>
  [[nodiscard, gnu::always_inline]] static bool is_in_run(const references& all) noexcept {
    if constexpr (I == 0) {
      return false;
    } else {
      return send_queue::is_one_run(shape<I - 1>(all), shape<I>(all));
    }
  }

  /// False: nothing has happened, somebody waits, or they are not like most. Once for each kind of
  /// request, not for each `co_await`.
  [[gnu::noinline]] bool post_at_once(const Requests&... requests) noexcept {
    return post_all<false, false>(*queue_, requests...);
  }
  /// `IsAwaited`: each that is not of a batch has an entry.
  template <bool IsAlone, bool IsAwaited>
  [[gnu::always_inline]] bool post_all(send_queue& queue, const Requests&... requests) noexcept {
    const references all{requests...};
    sharing runs;
    if (!queue.has_room_for(count) || !try_hold(queue, all, runs, each)) [[unlikely]]
      return false;
    post_each<true, IsAlone, IsAwaited>(queue, all, runs, each);
    return true;
  }
  template <std::size_t... I>
  [[gnu::always_inline]] bool try_hold(send_queue& queue, const references& all, sharing& runs,
                                       std::index_sequence<I...>) noexcept {
    std::size_t held = 0;
    const bool is_done =
        ((try_hold<I>(queue, all, runs[I] = is_in_run<I>(all)) && ++held > 0) && ...);
    if constexpr (pack::is_batch) {
      if (!is_done) [[unlikely]]
        let_go_of_first(held, all, each);
    }
    return is_done;
  }
  template <std::size_t I>
  [[gnu::always_inline]] static bool try_hold(send_queue& queue, const references& all,
                                              bool is_in_run) noexcept {
    const request_shape its = shape<I>(all);
    return queue.is_like_most(its) &&
           (is_in_run || (queue.lease_refusal(its) == errc{} && queue.try_hold(its)));
  }
  template <std::size_t... I>
  [[gnu::noinline]] void let_go_of_first(std::size_t held, const references& all,
                                         std::index_sequence<I...>) noexcept {
    ((I < held && !is_in_run<I>(all) ? queue_->let_go(shape<I>(all)) : void()), ...);
  }
  std::optional<request_outcome> hold() noexcept override { return queue_->hold(shapes()); }
  void let_go() noexcept override { queue_->let_go(shapes()); }
  void destroy() noexcept override { delete this; }
  void post_now() noexcept override {
    post_each<false, false, false>(*queue_, references{requests_}, {}, each);
  }
  /// `IsLikeMost`: `try_hold` took hold of them.
  template <bool IsLikeMost, bool IsAlone, bool IsAwaited, std::size_t... I>
  [[gnu::always_inline]] void post_each(send_queue& queue, const references& all,
                                        const sharing& runs, std::index_sequence<I...>) noexcept {
    if constexpr (!IsLikeMost) {
      if (((queue.lease_refusal(shape<I>(all)) != errc{}) || ...)) return refuse();
    }
    ((values_[I] = pack::value_to_be(std::get<I>(all))), ...);
    if constexpr (pack::has_atomic) values_before_ = values_.data();
    if constexpr (IsLikeMost && !IsAlone && pack::can_wait_for_others) {
      if (!is_handle_ && queue.batches(shape<0>(all)))
        return queue.batch(*this, std::get<0>(all), pack::template shape<0, true>(all));
    }
    send_queue::posting posting =
        IsAlone ? queue.begin_post_alone(*this, count) : queue.begin_post(*this, count);
    if constexpr (IsLikeMost && pack::has_one_slice) {
      described_request& one = queue.describes(pack::kinds[0]);
      std::get<0>(all).fill(one.wr);
      queue.template place<true, true>(posting, pack::template shape<0, IsAwaited>(all), one.wr,
                                       &one.sge, true, false);
      ring(queue, posting, std::span<ibv_send_wr, 1>{&one.wr, 1});
    } else {
      std::array<ibv_send_wr, count> wrs;
      std::array<std::array<ibv_sge, pack::sges_max>, count> sges;
      ((send_queue::clear(wrs[I]), std::get<I>(all).fill(wrs[I]),
        wrs[I].next = I + 1 < count ? &wrs[I + 1] : nullptr,
        queue.template place<IsLikeMost>(posting, pack::template shape<I, IsAwaited>(all), wrs[I],
                                         sges[I].data(), !IsLikeMost || I + 1 == count, runs[I])),
       ...);
      ring(queue, posting, wrs);
    }
  }
  [[gnu::always_inline]] void ring(send_queue& queue, const send_queue::posting& posting,
                                   std::span<ibv_send_wr, count> wrs) noexcept {
    ibv_send_wr* bad = nullptr;
    if (const int rc = queue.ring(count, wrs[0], bad); rc != 0) [[unlikely]]
      return post_failed({posting.signaled_before, rc, bad}, wrs);
    queue.template count_posted<pack::kinds>(first_);
  }
  [[gnu::noinline]] void refuse() noexcept { queue_->post_refused(*this, shapes()); }
  [[gnu::noinline]] void post_failed(const send_queue::post_failure& why,
                                     std::span<const ibv_send_wr> wrs) noexcept {
    queue_->post_failed(*this, why, wrs);
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

  union {
    std::tuple<Requests...> requests_;  // Unless they were posted at once.
  };
  typename pack::words values_;  // Once they are posted.
};

}  // namespace cordma
