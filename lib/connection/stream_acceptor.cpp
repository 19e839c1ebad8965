#include "stream_acceptor.hpp"

#include "bootstrap.hpp"
#include "link.hpp"
#include "shake_hands.hpp"

#include <optional>
#include <utility>

namespace cordma::detail {
namespace {

class socket_arrival final : public arrival {
 public:
  explicit socket_arrival(stream_socket socket)
      : arrival{socket.peer_address()}, socket_{std::move(socket).release()} {}

  [[nodiscard]] bool may_move_to(const connection_resources&) const noexcept override {
    return true;
  }
  void move_to(const connection_resources&) override {}  // No executor watches the socket yet.
  task<connection> shake_hands(const handshake_terms& terms) override {
    link_.emplace(stream_socket{terms.resources.executor, std::move(socket_)}, std::string{},
                  socket_origin::own);
    co_return co_await shake_hands_as_server(terms.resources, terms.options, *link_, terms.admit);
  }
  task<> refuse(failure why) override {
    if (link_) co_await bootstrap::refuse(link_->refusal_channel(), link_->for_peer(why));
  }

 private:
  unique_socket socket_;  // Until `link_` has it.
  std::optional<link> link_;
};

}  // namespace

task<std::unique_ptr<arrival>> stream_acceptor::accept() {
  for (;;) {
    stream_socket socket = co_await sockets_.accept();
    try {
      co_return std::make_unique<socket_arrival>(std::move(socket));
    } catch (const error&) {
      // The client has gone already.
    }
  }
}

}  // namespace cordma::detail
