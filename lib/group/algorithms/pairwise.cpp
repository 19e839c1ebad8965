#include "pairwise.hpp"

#include "in_flight.hpp"

namespace cordma::detail {

task<> send_parts(exchange& x, message_parts parts, const_local_mr_slice message,
                  std::size_t segment_bytes) {
  in_flight<outgoing, pairwise_window> sends;
  part_cursor part{parts, x.rank()};
  for (unsigned others = x.size() - 1; others > 0; --others) {
    part.forward();
    const const_local_mr_slice sent = part.part_of(message);
    for (std::size_t i = 0; i < segments_of(sent.size_bytes(), segment_bytes); ++i) {
      if (sends.is_full()) co_await sends.oldest();
      sends.post(x, part.index(), std::uint32_t(i), segment_of(sent, i, segment_bytes));
    }
  }
  while (!sends.is_empty()) co_await sends.oldest();
}

task<> receive_parts(exchange& x, message_parts parts, local_mr_slice message,
                     std::size_t segment_bytes) {
  in_flight<incoming, pairwise_window> receives;
  part_cursor part{parts, x.rank()};
  for (unsigned others = x.size() - 1; others > 0; --others) {
    part.backward();
    const local_mr_slice into = part.part_of(message);
    for (std::size_t i = 0; i < segments_of(into.size_bytes(), segment_bytes); ++i) {
      if (receives.is_full()) co_await receives.oldest();
      receives.post(x, part.index(), std::uint32_t(i), segment_of(into, i, segment_bytes));
    }
  }
  while (!receives.is_empty()) co_await receives.oldest();
}

}  // namespace cordma::detail
