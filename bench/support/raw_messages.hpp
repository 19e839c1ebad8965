#pragma once

#include "raw_loopback.hpp"

namespace bench {

/// Messages of raw verbs, there and back.
class raw_messages {
 public:
  explicit raw_messages(std::size_t message_bytes) : message_bytes_{message_bytes} {}
  void round_trips(std::uint64_t n) {
    loop_.raw.run_ping_pong([this] { return loop_.receive(message_bytes_); },
                            [this] { return loop_.request(IBV_WR_SEND, message_bytes_); }, n);
  }

 private:
  const std::size_t message_bytes_;
  raw_loopback loop_;
};

}  // namespace bench
