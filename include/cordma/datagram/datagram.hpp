#pragma once

#include <cordma/datagram/datagram_address.hpp>
#include <cordma/queue/message.hpp>

namespace cordma {

/// A datagram that was received. Its bytes are those of the message.
struct datagram : message {
  /// Address for an answer. Its Q_Key is this socket's: a datagram does not name its sender's.
  datagram_address sender{};
  bool was_multicast = false;  ///< The datagram was sent to a group.
};

}  // namespace cordma
