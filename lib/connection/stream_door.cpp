#include "stream_door.hpp"

#include "bootstrap.hpp"

namespace cordma::detail {
namespace {

class socket_arrival final : public arrival {
 public:
  socket_arrival(stream_socket socket, const handshake_function& shake_hands)
      : host_{peer_host(socket.fd())}, way_{std::move(socket)}, shake_hands_{shake_hands} {}

  [[nodiscard]] client_host host() const noexcept override { return host_; }
  task<connection> shake_hands() override { return shake_hands_(way_); }
  task<> refuse(failure why) override {
    return bootstrap::refuse(way_.refusal_channel(), way_.for_peer(why));
  }

 private:
  const client_host host_;
  link way_;
  const handshake_function& shake_hands_;  // The door's, which outlives its handshakes.
};

}  // namespace

task<std::unique_ptr<arrival>> stream_door::accept() {
  for (;;) {
    stream_socket socket = co_await sockets_.accept();
    try {
      co_return std::make_unique<socket_arrival>(std::move(socket), shake_hands_);
    } catch (const error&) {
      // The client has gone already.
    }
  }
}

}  // namespace cordma::detail
