#pragma once

#include "cm_event.hpp"
#include "event_channel.hpp"
#include "id.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/task.hpp>

namespace cordma::cm {

/// States of an id, what moves it, and the next state:
///
/// | state | what moves it | next state |
/// | --- | --- | --- |
/// | idle | `resolve` | resolving_address |
/// | resolving_address | ADDR_RESOLVED | resolving_route, by `resolve` |
/// | resolving_route | ROUTE_RESOLVED | resolved |
/// | resolved | `connect` | connecting |
/// | connecting | CONNECT_RESPONSE | replied |
/// | replied | `establish` | established |
/// | requested (where a request begins) | `accept` | accepted |
/// | | `reject` | ended |
/// | accepted | ESTABLISHED | established |
/// | any but ended | an error, REJECTED, UNREACHABLE, DISCONNECTED, DEVICE_REMOVAL | ended |
enum class id_phase : unsigned char {
  idle,
  resolving_address,
  address_resolved,
  resolving_route,
  resolved,
  connecting,
  replied,
  requested,
  accepted,
  established,
  ended,
};

/// The part of an `id` to which rdma_cm's identifier points.
class id_state final : public event_target {
 public:
  explicit id_state(event_channel& channel);
  id_state(event_channel& channel, owned_id request, const peer_message& message);
  id_state(const id_state&) = delete;
  id_state& operator=(const id_state&) = delete;

  task<> resolve(socket_address to, std::optional<socket_address> from, time_span limit);
  task<> connect(std::uint32_t qpn, std::span<const std::byte> data, parameters own);
  void establish();
  void accept(std::uint32_t qpn, std::span<const std::byte> data, const parameters& own);
  task<> established() { return left(id_phase::accepted); }
  [[nodiscard]] bool awaits_answer() const noexcept { return phase_ == id_phase::requested; }
  void reject(std::span<const std::byte> data);
  // Fails where there is no connection.
  void disconnect() noexcept { static_cast<void>(rdma_disconnect(id_.get())); }
  [[nodiscard]] ibv_qp_attr attributes(ibv_qp_state state) const;
  /// Moves the identifier to `channel`. The former state only remains to be destroyed.
  std::unique_ptr<id_state> moved_to(event_channel& channel);

  [[nodiscard]] socket_address local() const noexcept;
  [[nodiscard]] socket_address peer() const noexcept;
  [[nodiscard]] rdma_cm_id* native_handle() const noexcept { return id_.get(); }

  callback<void(notice)> told;
  peer_message from_peer;
  std::optional<failure> why_ended;

 private:
  void on_event(const cm_event& event) noexcept override;
  void on_end(const cm_event& event) noexcept;
  void tell(notice what) noexcept;
  void enter(id_phase next) noexcept;
  /// Ends when the phase is another one. \errors why the id ended.
  task<> left(id_phase phase);
  /// Asserts that a call comes in its turn. \errors why the id ended.
  void expect(id_phase phase) const;

  // The call that the present phase answers, for the text of an error.
  const char* call_ = "rdma_cm";
  socket_address target_;
  id_phase phase_ = id_phase::idle;
  event changed_;
  owned_id id_;
};

}  // namespace cordma::cm
