#pragma once

#include "cm/message.hpp"
#include "node/service.hpp"

#include <cstdint>
#include <memory>

// Names of this host, and conversations with other processes. All calls are made under the mutex of
// the room, and so are those of the interfaces below.

namespace softverbs::cm {

/// A bound name: (port space, address, port). Destroying it frees the name and stops listening.
class binding {
 public:
  virtual ~binding() = default;
  [[nodiscard]] virtual const endpoint& at() const noexcept = 0;  ///< with the port that was chosen
  /// From now on, requests for the name go to the transport's `listener`. errno value, or 0.
  virtual int listen() noexcept = 0;
};

/// One side of a connection: a socket to the peer, from the request to the end. Destroying it
/// closes the socket; what was sent before still arrives.
class conversation {
 public:
  /// The receiver of the peer's messages. The engine's thread calls it, never inside a call to the
  /// conversation.
  class user {
   public:
    /// A message of the peer, whose fields were checked (kind, private_bytes, ranges of 24 bits).
    /// The user may destroy the conversation in this call.
    virtual void on_message(const message& from_peer) noexcept = 0;
    /// The socket ended: errno value (ECONNREFUSED: nobody has the name; ETIMEDOUT, EHOSTUNREACH
    /// and the like; ECONNRESET: the peer is gone). No call follows.
    virtual void on_end(int error) noexcept = 0;

   protected:
    ~user() = default;
  };

  virtual ~conversation() = default;
  virtual void set_user(user&) noexcept = 0;
  /// Sends, or queues what the socket does not take now. Never blocks. After the end, does nothing.
  virtual void send(const message&) noexcept = 0;
  /// The peer's address where the socket knows it, else all zero (this host).
  [[nodiscard]] virtual in6_addr peer_host() const noexcept = 0;
};

/// The calls of node_service are made under the mutex, too. Bindings and conversations end before
/// their transport does. In a forked child they do nothing after abandon().
class transport : public node_service {
 public:
  /// The receiver of each request for a name of ours that listens.
  class listener {
   public:
    virtual void on_request(binding& name, std::unique_ptr<conversation> from,
                            const message& request) noexcept = 0;

   protected:
    ~listener() = default;
  };

  virtual ~transport() = default;
  /// Binds a name; port 0 chooses a free one. `v6_only`: the IPv6 wildcard leaves IPv4 to others.
  /// `reuse`: RDMA_OPTION_ID_REUSEADDR. On failure null, and `error` is the kernel's: EADDRINUSE;
  /// EADDRNOTAVAIL where a wildcard is involved, or no port is free.
  virtual std::unique_ptr<binding> bind(std::uint16_t space, const endpoint& wanted, bool v6_only,
                                        bool reuse, int& error) noexcept = 0;
  /// Starts a conversation with whoever has the request's `destination`, from its `source`. Null:
  /// out of memory or descriptors, or 8192 conversations. Every other failure is told by on_end().
  virtual std::unique_ptr<conversation> start(const message& request,
                                              conversation::user&) noexcept = 0;
};

/// Makes the transport of this process. Null: out of memory or descriptors.
std::unique_ptr<transport> make_transport(transport::listener&) noexcept;

}  // namespace softverbs::cm
