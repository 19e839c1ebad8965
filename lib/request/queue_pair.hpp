#pragma once

#include "queue/message_handler.hpp"
#include "queue/queue_pair_base.hpp"
#include "queue/receive_queue.hpp"

#include <cordma/detail/request/receive_op.hpp>
#include <cordma/detail/request/requester.hpp>

#include <memory>
#include <memory_resource>

namespace cordma {

/// A reliable-connection queue pair whose operations are awaited. Setup and states are its
/// `verbs()`; everything else goes through here. Must not be gone when an operation starts; those
/// in progress, and handles, may outlive it.
/// Thread: the executor's.
class queue_pair final : public queue_pair_base, public requester<queue_pair> {
 public:
  /// \param message_max_bytes  the port's limit (`port_info::message_max_bytes`).
  /// \param pool  where it takes its receives from, which outlives it: its messages are for a
  ///   `message_handler` only, and `wanted` says nothing about receives. It must not go in the
  ///   middle of a reap, and makes one of its own then, in manual mode, too.
  /// \errors  what `verbs::queue_pair` throws; errc::limit_exceeded when the completion queue has
  ///   no room for all that this one can have outstanding, or the pool no buffers for it;
  ///   errc::wrong_protection_domain: the pool's is not `pd`.
  queue_pair(completion_queue_driver& driver, verbs::protection_domain& pd,
             const verbs::queue_pair_capabilities& wanted, std::size_t message_max_bytes,
             shared_receives* pool = nullptr);
  /// Whoever still waits ends with `errc::closed`; the memory in flight is let go of after
  /// `ibv_destroy_qp` has returned. One bounded system call; waits for no peer and no completion.
  ~queue_pair();

  /// The last `slots` of the send queue are for `post_urgent`. Before anything is posted.
  void reserve_sends(std::uint32_t slots) noexcept;
  /// Posts it, as the handle `into`, ahead of all that waits for room.
  template <class Request>
  void post_urgent(std::optional<request_op<Request>>& into, const Request& request) noexcept {
    into.emplace(*sends_, request).post_urgent();
  }

  void post_recv(const local_mr_slice& buffer) { receives_.post({&buffer, 1}); }
  void post_recv(std::span<const local_mr_slice> buffer) { receives_.post(buffer); }
  next_message_op next_message() noexcept { return {receives_, {}}; }
  receive_op<1> recv(const local_mr_slice& buffer) noexcept { return {receives_, {buffer}}; }
  template <std::size_t N>
  receive_op<N> recv(const std::array<local_mr_slice, N>& buffer) noexcept {
    return {receives_, buffer};
  }

  /// Gives all of its receives to `handler`, before any is posted: operations that want a message
  /// end with errc::refused from then on, and so do those that would take a receive of the peer's:
  /// SENDs, and WRITEs with immediate data. `post_detached` is the handler's.
  void hand_messages_to(message_handler& handler) noexcept;
  /// Receives of the handler's, at least one, with one doorbell: it has chosen their numbers, which
  /// are in `wr_id`. In INIT or later. Not with a pool.
  void post_recvs(std::span<ibv_recv_wr> wrs) noexcept;
  /// Whether there is room for so many requests of `post_detached`.
  [[nodiscard]] bool can_post_detached(std::size_t count = 1) const noexcept;
  /// Posts requests that nobody awaits, ahead of all that waits for room. False: there is no room
  /// for them. What the device refuses breaks the queue pair.
  [[nodiscard]] bool post_detached(const wr_list& list) noexcept;

  /// Set once it no longer works and the device has none of its requests. That is never, when the
  /// completion queue lost entries: wait with a deadline.
  [[nodiscard]] event& drained_event() noexcept { return drained_; }
  /// Waits until everything posted to send has ended, or the queue pair no longer works. One that
  /// was posted unsignaled ends with a later one only.
  event::wait_op sends_idle() noexcept;

  [[nodiscard]] send_queue& sends() noexcept { return *sends_; }
  [[nodiscard]] const send_queue& sends() const noexcept { return *sends_; }
  [[nodiscard]] receive_queue& receives() noexcept { return receives_; }
  [[nodiscard]] const receive_queue& receives() const noexcept { return receives_; }
  /// Requests that the device has, or that wait for their doorbell.
  [[nodiscard]] std::uint32_t slots_in_use() const noexcept;

 private:
  friend class completion_queue_driver;
  void complete(bool is_receive, std::uint32_t sequence, const ibv_wc& wc) noexcept override;
  void complete_shared(std::uint32_t number, const ibv_wc& wc) noexcept override;
  void shrink_wanted() noexcept override;
  void growth_possible() noexcept override;
  /// A receive, to the handler. Apart, so that a message pays for no other completion's registers.
  [[gnu::noinline]] void hand_over(std::uint32_t number, const ibv_wc& wc) noexcept;
  [[gnu::noinline]] void complete_watched(bool is_receive, std::uint32_t sequence,
                                          const ibv_wc& wc) noexcept;
  bool complete_receive(std::uint32_t sequence, const ibv_wc& wc) noexcept;
  void count_receive(std::uint32_t number, const ibv_wc& wc) noexcept;
  void on_failure(const request_outcome& unposted) noexcept override;
  void end_all(const request_outcome& why) noexcept override;
  void watch(bool is_watched) noexcept {
    if (is_watched)
      set_unwatched(nullptr, nullptr);
    else
      set_unwatched(sends_.get(), &receives_);
  }

  /// Of the send queue, to its completion queue's memory.
  struct give_back {
    std::pmr::memory_resource* memory;
    void operator()(send_queue* queue) const noexcept;
  };

  const std::shared_ptr<held_by_queues> held_;
  const std::unique_ptr<send_queue, give_back> sends_;
  receive_queue receives_;
  message_handler* handler_ = nullptr;
  std::uint32_t handled_receives_ = 0;  ///< of the handler's, that the device has
  event drained_;
  event sends_idle_;
  bool idle_is_awaited_ = false;
};

}  // namespace cordma
