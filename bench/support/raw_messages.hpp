#pragma once

#include "raw_loopback.hpp"

namespace bench {

/// Messages of raw verbs, there and back.
class raw_messages {
 public:
  explicit raw_messages(std::size_t message_bytes) {
    const auto piece = [&](const cordma::local_mr& mr) {
      return ibv_sge{.addr = reinterpret_cast<std::uint64_t>(mr.bytes().data()),
                     .length = std::uint32_t(message_bytes),
                     .lkey = mr.slice().lkey()};
    };
    from_ = piece(loop_.local);
    to_ = piece(loop_.remote);
    wr_.sg_list = &from_;
    receive_.sg_list = &to_;
    wr_.num_sge = receive_.num_sge = 1;
    wr_.opcode = IBV_WR_SEND;
    wr_.send_flags = IBV_SEND_SIGNALED;
    if (message_bytes <= loop_.raw_a.capabilities().inline_max) wr_.send_flags |= IBV_SEND_INLINE;
  }
  void round_trips(std::uint64_t n) { loop_.run_raw_ping_pong(wr_, receive_, n); }

 private:
  raw_loopback loop_;
  ibv_sge from_{}, to_{};
  ibv_send_wr wr_{};
  ibv_recv_wr receive_{};
};

}  // namespace bench
