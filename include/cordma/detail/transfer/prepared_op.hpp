#pragma once

#include <cordma/detail/transfer/request_pack.hpp>
#include <cordma/detail/transfer/send_queue.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>

namespace cordma {

/// What all `prepared_op`s have in common. Thread: the executor's.
class prepared_submission : public submission, private list_hook<prepared_submission> {
 public:
  prepared_submission(prepared_submission&&) = delete;

 protected:
  prepared_submission(send_queue& queue, std::span<const request_shape> requests) noexcept
      : submission{queue, std::uint16_t(requests.size())}, requests_{requests} {}
  ~prepared_submission() override;
  /// Takes hold of their memory. \errors  what is wrong with one of them, or their queue.
  void prepare();
  /// Whether a lease that one of them names does not allow it now.
  [[nodiscard]] bool is_refused_by_lease() const noexcept;
  /// The outcome is being taken: it can be posted again.
  [[gnu::always_inline]] void begin_anew() noexcept {
    CORDMA_ASSERT(state_ == state::ended, "what was prepared is awaited by one at a time");
    state_ = queue_ != nullptr ? state::idle : state::gone;
  }
  [[nodiscard, gnu::cold]] failure take_failure() noexcept;

  /// The first time, when they are prepared, they are checked.
  std::optional<request_outcome> hold() noexcept override;
  void let_go() noexcept override { queue_->let_go(requests_); }
  void destroy() noexcept override {}  // It never owns itself.
  [[nodiscard]] request_failure* place_of_failure() noexcept override { return &failure_; }

  const std::span<const request_shape> requests_;
  bool has_leases_ = false;

 private:
  friend class intrusive_list<prepared_submission>;
  friend class send_queue;
  /// The device is done with all that was posted.
  void leave_queue() noexcept;

  union {
    request_failure failure_;
  };
};

namespace detail {

/// What a `prepared_submission` is given, and therefore before it.
template <class... Requests>
struct prepared_parts {
  using pack = request_pack<Requests...>;

  explicit prepared_parts(const Requests&... all) noexcept : requests{all...} {
    std::get<pack::count - 1>(requests).send_flags |= IBV_SEND_SIGNALED;
    shapes = pack::shapes_of(pack::refer(requests));
  }

  typename pack::shapes shapes;  // Not looked at each time, as the requests are.
  std::tuple<Requests...> requests;
  std::array<ibv_send_wr, pack::count> wrs;  // As the device reads them.
  std::array<std::array<ibv_sge, pack::sges_max>, pack::count> sges;
};

}  // namespace detail

/// Requests that are posted together, time and again, as an operation that can be awaited as often
/// as one likes. They are checked, and made into what the device reads, once, and hold their local
/// memory as long as this lives.
///
///     auto publish = conn.prepare(write(record, slot), write(head, pointer));
///     for (;;) co_await publish;
///
/// Awaiting posts them, with one doorbell and one completion entry, and waits; after `post`, or a
/// wait whose outcome nobody took, it gives the outcome of what was posted last. One coroutine
/// awaits it at a time. Values and errors are those of `request_op`. What is wrong with them from
/// the start is thrown where they are prepared; leases are asked each time. Destroying it recalls
/// nothing that is under way, and withdraws what waits for room. Contract: its queue pair is there
/// when it is awaited.
///
/// Thread: the executor's. Cost: of `request_op`'s what is not the same each time.
template <class... Requests>
class [[nodiscard]] prepared_op final : public operation_base<prepared_op<Requests...>>,
                                        private detail::prepared_parts<Requests...>,
                                        public prepared_submission {
  using pack = request_pack<Requests...>;
  using kept = detail::prepared_parts<Requests...>;
  static constexpr std::uint32_t count = pack::count;
  static constexpr request_kind kind = pack::kinds[0];  // Of all in one slot.
  static constexpr std::size_t slices_max = pack::sges_max;
  static_assert(
      ((Requests::kind != request_kind::bind && Requests::kind != request_kind::invalidate) && ...),
      "a window's key is good for one bind and one end");

 public:
  using value_type = typename pack::value_type;

  prepared_op(send_queue& queue, const Requests&... requests)
      : kept{requests...},
        prepared_submission{queue, kept::shapes},
        values_{pack::value_to_be(requests)...} {
    if constexpr (pack::has_atomic) values_before_ = values_.data();
    fill(pack::each);
    prepare();
  }

  /// Posts them now, or queues them behind those that wait for room; awaiting it waits for these.
  /// Contract: the outcome of those before has been taken.
  void post() noexcept {
    CORDMA_ASSERT(state_ == state::idle, "what was posted before was awaited");
    forget_stop();
    is_handle_ = true;
    if (!post_at_once()) submit();
  }

  /// Posts them, and is done with them: nobody is told what becomes of them, and the last has a
  /// completion entry only when the queue needs one. False: they were not posted, and awaiting this
  /// tells why, or waits for room.
  /// Contract: the outcome of those before has been taken.
  [[nodiscard]] bool try_post() noexcept {
    CORDMA_ASSERT(state_ == state::idle, "what was posted before was awaited");
    if (!queue_->has_slots_for(count) || (has_leases_ && is_refused_by_lease())) [[unlikely]]
      return false;
    send_queue::posting posting = queue_->begin_post_detached(*this);
    // Behind a long run without an entry.
    if (pack::is_batch && !queue_->has_room_for(count)) [[unlikely]]
      kept::wrs[0].send_flags |= queue_->entry_flag(first_, true);
    give_slots(posting, has_leases_, true);
    kept::wrs.back().send_flags &= ~unsigned{IBV_SEND_SIGNALED};
    kept::wrs.back().send_flags |= queue_->entry_flag(first_ + count - 1, false);
    ring(posting, pack::each);
    if constexpr (pack::is_batch) kept::wrs[0].send_flags &= ~unsigned{IBV_SEND_SIGNALED};
    kept::wrs.back().send_flags |= IBV_SEND_SIGNALED;
    return !has_ended();
  }

  // As an operation.
  bool begin(const environment& env) noexcept { return begin_as(*this, env); }
  [[gnu::noinline]] bool begin_and_look(const environment& env) noexcept {
    return begin_and_look_as(*this, env);
  }
  using submission::wait;
  bool start(waiter& w, const environment& env) noexcept { return begin(env) || wait(w, env); }
  [[gnu::always_inline]] value_type take() {
    if (state_ != state::ended || trouble_ != 0) [[unlikely]]
      return take_seldom();
    become(state::idle);
    return pack::values(values_);
  }
  result<value_type> take_result() noexcept {
    if (was_stopped()) return cancelled_result;
    if (failed()) return take_failure();
    begin_anew();
    return pack::values(values_);
  }

 private:
  friend class submission;
  [[gnu::noinline]] bool begin_idle(const environment& env) noexcept {
    return begin_idle_as(*this, env);
  }
  [[gnu::noinline]] bool begin_alone_and_look(const environment& env) noexcept {
    return begin_alone_and_look_as(*this, env);
  }
  [[gnu::noinline]] bool begin_any_and_look(const environment& env) noexcept {
    return begin(env) || look(env);
  }
  [[gnu::noinline, gnu::cold]] value_type take_seldom() { return take_result().value(); }
  template <std::size_t... I>
  void fill(std::index_sequence<I...>) noexcept {
    ((kept::wrs[I] = {}, std::get<I>(kept::requests).fill(kept::wrs[I]),
      kept::wrs[I].next = I + 1 < count ? &kept::wrs[I + 1] : nullptr,
      queue_->template describe<false>(kept::shapes[I], kept::wrs[I], kept::sges[I].data())),
     ...);
    kept::wrs.back().send_flags |= IBV_SEND_SIGNALED;
    for (std::uint32_t i = 1, head = 0; i < count; ++i) {
      // Of an empty one the slot would hold nothing.
      if (queue_->is_like_most(kept::shapes[i - 1]) &&
          kept::shapes[i].is_one_run_with(kept::shapes[i - 1]))
        ++followers_[head];
      else
        head = i;
    }
  }

  [[nodiscard, gnu::always_inline]] decltype(auto) shape(std::uint32_t i) const noexcept {
    if constexpr (pack::is_batch) {
      return static_cast<const request_shape&>(kept::shapes[i]);
    } else {
      return pack::shape(std::get<0>(kept::requests), 0);
    }
  }
  [[gnu::always_inline]] bool post_at_once() noexcept {
    if (!queue_->has_room_for(count) || (has_leases_ && is_refused_by_lease())) return false;
    if constexpr (pack::has_one_slice) {
      if (!is_handle_ && queue_->batches(shape(0))) {
        queue_->batch_described(*this, kept::wrs[0], shape(0), has_leases_);
        return true;
      }
    }
    post_each(queue_->begin_post(*this, count), has_leases_);
    return true;
  }
  [[gnu::always_inline]] bool post_awaited() noexcept {
    is_handle_ = false;
    return post_at_once();
  }
  [[gnu::always_inline]] bool post_alone(send_queue& queue) noexcept {
    if (has_leases_ || !queue.has_room_for(count)) [[unlikely]]
      return false;
    post_each(queue_->begin_post_alone(*this, count), false);
    return true;
  }
  [[gnu::always_inline]] void post_each(send_queue::posting posting, bool has_leases) noexcept {
    give_slots(posting, has_leases, false);
    // The last time that of another, behind which it went, may have told of it.
    if constexpr (pack::has_one_slice) kept::wrs[0].send_flags |= IBV_SEND_SIGNALED;
    queue_->has_entry(first_ + count - 1);
    ring(posting, pack::each);
  }
  [[gnu::always_inline]] void give_slots(send_queue::posting& posting, bool has_leases,
                                         bool are_detached) noexcept {
    for (std::uint32_t i = 0; i < count; i += posting.run->state.followers + 1u) {
      posting.sequence = first_ + i;
      queue_->give_bare_slot(posting, pack::kinds[pack::is_batch ? i : 0], are_detached);
      if (has_leases) queue_->use_lease(posting, shape(i));
      if constexpr (pack::is_batch) posting.run->state.followers = followers_[i];
    }
  }
  /// Each has a slot of its own, and an entry if the queue needs one.
  void post_now() noexcept override {
    if (is_refused_by_lease()) return queue_->post_refused(*this, requests_);
    send_queue::posting posting = queue_->begin_post(*this, count);
    for (std::uint32_t i = 0; i < count; ++i) {
      posting.sequence = first_ + i;
      queue_->template give_slot<false>(posting, shape(i));
      kept::wrs[i].send_flags |= queue_->entry_flag(posting.sequence, i + 1 == count);
    }
    ring(posting, pack::each);
    for (std::size_t i = 0; i + 1 < count; ++i)
      kept::wrs[i].send_flags &= ~unsigned{IBV_SEND_SIGNALED};
  }
  template <std::size_t... I>
  [[gnu::always_inline]] void ring(const send_queue::posting& posting,
                                   std::index_sequence<I...>) noexcept {
    (queue_->number(first_ + std::uint32_t(I), pack::kinds[I], kept::wrs[I]), ...);
    if constexpr (pack::has_one_slice) kept::wrs[0].next = nullptr;
    ibv_send_wr* bad = nullptr;
    if (const int rc = queue_->ring(count, kept::wrs[0], bad); rc != 0) [[unlikely]]
      return queue_->post_failed(*this, {posting.signaled_before, rc, bad}, kept::wrs[0]);
    queue_->template count_posted<pack::kinds>(first_);
  }
  [[nodiscard]] request_kind kind_of(std::uint32_t index) const noexcept override {
    return pack::kinds[index];
  }

  typename pack::words values_;
  std::array<std::uint16_t, count> followers_{};  // Of each, how many behind it share its slot.
};

}  // namespace cordma
