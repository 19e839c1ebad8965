#pragma once

#include <cordma/transfer/queue_pair_base.hpp>
#include <cordma/transfer/receive_queue.hpp>
#include <cordma/transfer/request_op.hpp>

namespace cordma {

/// A reliable-connection queue pair whose operations are awaited. Setup and states are its
/// `verbs()`; everything else goes through here. Must not be gone when an operation starts; those
/// in progress, and handles, may outlive it.
/// Thread: the executor's.
class queue_pair final : public queue_pair_base {
 public:
  /// \param message_max_bytes  the port's limit (`port_info::message_max_bytes`).
  /// \errors  what `verbs::queue_pair` throws; errc::limit_exceeded when the completion queue has
  ///   no room for all that this one can have outstanding.
  queue_pair(completion_queue_driver& driver, verbs::protection_domain& pd,
             const verbs::queue_pair_capabilities& wanted, std::size_t message_max_bytes);
  /// Whoever still waits ends with `errc::closed`; the memory in flight is let go of after
  /// `ibv_destroy_qp` has returned. One bounded system call; waits for no peer and no completion.
  ~queue_pair();

  // Awaited: `co_await qp.write(local, remote)`. Arguments as in
  // <cordma/transfer/work_request.hpp>.
  template <class Request>
  request_op<Request> await(const Request& request) noexcept {
    return {sends_, request};
  }
  auto send(auto&& local, request_flags f = {}) noexcept { return await(cordma::send(local, f)); }
  auto send_with_imm(auto&& local, std::uint32_t immediate, request_flags f = {}) noexcept {
    return await(cordma::send_with_imm(local, immediate, f));
  }
  auto write(auto&& local, const remote_mr_slice& remote, request_flags f = {}) noexcept {
    return await(cordma::write(local, remote, f));
  }
  auto write_with_imm(auto&& local, const remote_mr_slice& remote, std::uint32_t immediate,
                      request_flags f = {}) noexcept {
    return await(cordma::write_with_imm(local, remote, immediate, f));
  }
  auto read(auto&& local, const remote_mr_slice& remote, request_flags f = {}) noexcept {
    return await(cordma::read(local, remote, f));
  }
  auto compare_swap(const remote_mr_slice& remote, std::uint64_t expected, std::uint64_t desired,
                    request_flags f = {}) noexcept {
    return await(cordma::compare_swap(remote, expected, desired, f));
  }
  auto fetch_add(const remote_mr_slice& remote, std::uint64_t addend,
                 request_flags f = {}) noexcept {
    return await(cordma::fetch_add(remote, addend, f));
  }

  /// Posts it now (or queues it for room) and gives a handle to await, move or drop.
  template <class Request>
  request_op<Request> post(const Request& request) noexcept {
    return post_all(request);
  }
  /// The same for several, with one doorbell and one completion entry; at most
  /// `send_queue::batch_max`.
  template <class... Requests>
  request_op<Requests...> post_all(const Requests&... requests) noexcept {
    request_op<Requests...> handle{sends_, requests...};
    handle.post();
    return handle;
  }

  /// The last `slots` of the send queue are for `post_urgent`. Before anything is posted.
  void reserve_sends(std::uint32_t slots) noexcept { sends_.reserve(slots); }
  /// Posts it ahead of all that waits for room.
  template <class Request>
  request_op<Request> post_urgent(const Request& request) noexcept {
    request_op<Request> handle{sends_, request};
    handle.post_urgent();
    return handle;
  }

  void post_recv(const local_mr_slice& buffer) { receives_.post({&buffer, 1}); }
  void post_recv(std::span<const local_mr_slice> buffer) { receives_.post(buffer); }
  receive_queue::next_message_op next_message() noexcept { return receives_.next_message(); }
  receive_queue::recv_op recv(const local_mr_slice& buffer) noexcept {
    return receives_.recv(std::array{buffer});
  }
  template <std::size_t N>
  receive_queue::recv_op recv(const std::array<local_mr_slice, N>& buffer) noexcept {
    return receives_.recv(buffer);
  }

  /// Set once it no longer works and the device has none of its requests. That is never, when the
  /// completion queue lost entries: wait with a deadline.
  [[nodiscard]] event& drained_event() noexcept { return drained_; }
  /// Waits until everything posted to send has ended, or the queue pair no longer works. One that
  /// was posted unsignaled ends with a later one only.
  event::wait_op sends_idle() noexcept;

  [[nodiscard]] const send_queue& sends() const noexcept { return sends_; }
  [[nodiscard]] const receive_queue& receives() const noexcept { return receives_; }
  /// Requests that the device has.
  [[nodiscard]] std::uint32_t slots_in_use() const noexcept {
    return sends_.in_flight() + receives_.posted();
  }

 private:
  void complete(bool is_receive, std::uint32_t sequence, const ibv_wc& wc) noexcept override;
  void on_failure() noexcept override;
  void end_all(const request_outcome& why) noexcept override { sends_.end_all(why); }

  send_queue sends_;
  receive_queue receives_;
  event drained_;
  event sends_idle_;
  bool idle_is_awaited_ = false;
};

}  // namespace cordma
