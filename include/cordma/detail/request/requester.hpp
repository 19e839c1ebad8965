#pragma once

#include <cordma/detail/request/request_op.hpp>

namespace cordma {

/// Request functions of a class with a send queue, `Self::sends()`: a queue pair, or a connection.
/// Arguments are as in <cordma/queue/work_request.hpp>. \thread the executor's.
template <class Self>
class requester {
 public:
  /// Awaits `request`, which one of the functions in <cordma/queue/work_request.hpp> made.
  /// `co_await` gives the number of bytes that it moved, or the value before an atomic.
  /// \errors errors of cordma's checks and of the device: docs/errors.md lists both.
  template <class Request>
  request_op<Request> await(const Request& request) noexcept {
    return request_op<Request>{queue(), request};
  }
  /// Sends these bytes to the next receive of the peer: `co_await conn.send(local)`.
  auto send(auto&& local, request_flags f = {}) noexcept {
    return self().await(cordma::send(local, f));
  }
  /// Sends these bytes, with 32 bits of immediate data beside them.
  auto send_with_imm(auto&& local, std::uint32_t immediate, request_flags f = {}) noexcept {
    return self().await(cordma::send_with_imm(local, immediate, f));
  }
  /// Copies local bytes to the start of `remote`: `co_await conn.write(local, remote)`.
  auto write(auto&& local, const remote_mr_slice& remote, request_flags f = {}) noexcept {
    return self().await(cordma::write(local, remote, f));
  }
  /// Writes as `write` does, then completes one receive of the peer with 32 bits of immediate data.
  auto write_with_imm(auto&& local, const remote_mr_slice& remote, std::uint32_t immediate,
                      request_flags f = {}) noexcept {
    return self().await(cordma::write_with_imm(local, remote, immediate, f));
  }
  /// Fills local memory from the start of `remote`: `co_await conn.read(local, remote)`.
  auto read(auto&& local, const remote_mr_slice& remote, request_flags f = {}) noexcept {
    return self().await(cordma::read(local, remote, f));
  }
  /// Swaps the 8 bytes at `remote` for `desired` if they equal `expected`, and gives the value
  /// before.
  auto compare_swap(const remote_mr_slice& remote, std::uint64_t expected, std::uint64_t desired,
                    request_flags f = {}) noexcept {
    return self().await(cordma::compare_swap(remote, expected, desired, f));
  }
  /// Adds to the 8 bytes at `remote`, wrapping at 2^64, and gives the value before.
  auto fetch_add(const remote_mr_slice& remote, std::uint64_t addend,
                 request_flags f = {}) noexcept {
    return self().await(cordma::fetch_add(remote, addend, f));
  }
  /// Replaces the 8 bytes at `remote`, which nobody sees in part: `co_await conn.atomic_write(word,
  /// 1)`.
  auto atomic_write(const remote_mr_slice& remote, std::uint64_t value,
                    request_flags f = {}) noexcept {
    return self().await(cordma::atomic_write(remote, value, f));
  }

  /// Posts `request` now, or queues it for room, and gives a handle to await, move or drop: `auto h
  /// = conn.post(write(…)); … co_await h`.
  template <class Request>
  auto post(const Request& request) noexcept {
    return self().post_all(request);
  }
  /// Posts several requests with one doorbell and one CQE, and gives a handle. At most
  /// `send_queue::batch_max` requests.
  template <class... Requests>
  request_op<Requests...> post_all(const Requests&... requests) noexcept {
    request_op<Requests...> handle{queue(), requests...};
    handle.post();
    return handle;
  }

 protected:
  ~requester() = default;

 private:
  [[nodiscard]] Self& self() noexcept { return static_cast<Self&>(*this); }
  [[nodiscard]] send_queue& queue() noexcept { return self().sends(); }
};

namespace detail {

/// A request to one receive queue of an XRC target's domain.
template <class Request>
struct xrc_request {
  using value_type = typename Request::value_type;
  static constexpr request_kind kind = Request::kind;
  static constexpr std::size_t sge_count = Request::sge_count;

  Request request;
  request_destination to;

  [[nodiscard]] wr_summary summary() const noexcept {
    wr_summary made = request.summary();
    made.to = &to;
    return made;
  }
  [[nodiscard]] value_type value() const noexcept
    requires requires(const Request& r) { r.value(); }
  {
    return request.value();
  }
};

/// Request functions of an XRC initiator, for one receive queue. Operations and handles outlive it.
class xrc_requester : public requester<xrc_requester> {
 public:
  xrc_requester(send_queue& sends, std::uint32_t receive_queue) noexcept
      : sends_{sends}, to_{.number = receive_queue} {}

  template <class Request>
  request_op<xrc_request<Request>> await(const Request& request) noexcept {
    return request_op<xrc_request<Request>>{sends_, {request, to_}};
  }
  template <class... Requests>
  request_op<xrc_request<Requests>...> post_all(const Requests&... requests) noexcept {
    return requester::post_all(xrc_request<Requests>{requests, to_}...);
  }

 private:
  friend class requester<xrc_requester>;
  [[nodiscard]] send_queue& sends() const noexcept { return sends_; }
  send_queue& sends_;
  request_destination to_;
};

}  // namespace detail

}  // namespace cordma
