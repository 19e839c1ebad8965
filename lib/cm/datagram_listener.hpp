#pragma once

#include "event_channel.hpp"

#include <cordma/io/socket_address.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <cstdint>

namespace cordma::cm {

/// Answers everybody who asks, by rdma_cm, for the queue pair that takes datagrams (SIDR, IBTA
/// 12.11). Destroying it frees the port. \thread the channel's executor's.
class datagram_listener final : public event_target {
 public:
  static constexpr int backlog = 128;  ///< Requests that wait for the next event-loop iteration.

  /// Listens on `local`, and answers with the number of `qp` and rdma_cm's Q_Key. With port 0 the
  /// kernel chooses. Requests on other devices and ports than the queue pair's are refused.
  /// \errors as `listener`.
  datagram_listener(event_channel& channel, const socket_address& local, verbs::queue_pair& qp);
  datagram_listener(const datagram_listener&) = delete;
  datagram_listener& operator=(const datagram_listener&) = delete;
  ~datagram_listener() = default;

  [[nodiscard]] const socket_address& local_address() const noexcept { return address_; }

  void on_event(const cm_event& event) noexcept override;

 private:
  verbs::queue_pair& qp_;
  socket_address address_;
  owned_id id_;
};

}  // namespace cordma::cm
