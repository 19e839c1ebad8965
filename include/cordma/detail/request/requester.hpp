#pragma once

#include <cordma/detail/request/request_op.hpp>

namespace cordma {

/// Request functions of a class with a send queue, `Self::sends()`: a queue pair, or a connection.
/// Arguments are as in <cordma/queue/work_request.hpp>. \thread the executor's.
template <class Self>
class requester {
 public:
  // The following functions are awaited: `co_await conn.write(local, remote)`.
  template <class Request>
  request_op<Request> await(const Request& request) noexcept {
    return request_op<Request>{queue(), request};
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

  /// Posts `request` now, or queues it for room, and gives a handle to await, move or drop: `auto h
  /// = conn.post(write(…)); … co_await h`.
  template <class Request>
  request_op<Request> post(const Request& request) noexcept {
    return post_all(request);
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
  [[nodiscard]] send_queue& queue() noexcept { return static_cast<Self&>(*this).sends(); }
};

}  // namespace cordma
