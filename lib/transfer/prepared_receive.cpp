#include <cordma/detail/transfer/prepared_receive.hpp>

#include <utility>

namespace cordma {

prepared_receive::prepared_receive(receive_queue& queue, std::span<const local_mr_slice> buffer)
    : queue_{&queue} {
  queue.prepare(*this, buffer);
}

prepared_receive::~prepared_receive() {
  if (queue_ == nullptr) return;
  list_hook<prepared_receive>::unlink();
  leave_queue();
}

void prepared_receive::leave_queue() noexcept { std::exchange(queue_, nullptr)->part_from(*this); }

}  // namespace cordma
