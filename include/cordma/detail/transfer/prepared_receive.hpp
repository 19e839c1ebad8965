#pragma once

#include <cordma/detail/base/assert.hpp>
#include <cordma/detail/base/intrusive_list.hpp>
#include <cordma/detail/transfer/receive_queue.hpp>
#include <cordma/memory/slice.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <span>

namespace cordma {

/// A receive buffer that is posted time and again. It is checked, and made into what the device
/// reads, once, and its memory is held as long as this lives.
///
///     auto buffer = conn.prepare_recv(slice);
///     buffer.post();
///     for (;; buffer.post()) handle(co_await conn.next_message());
///
/// Messages come in the order in which buffers were posted; `message::slices` says which it is in.
/// One that is posted may be posted again: for messages without bytes, and WRITEs with immediate,
/// one is enough. Destroying it recalls nothing: what is posted, or holds a message that nobody
/// took, keeps the memory. Contract: its queue pair is there when it is posted.
/// Thread: the executor's. Cost: of `post_recv`'s what is not the same each time.
class [[nodiscard]] prepared_receive : private list_hook<prepared_receive> {
 public:
  /// \errors  as `receive_queue::post`, but for receive_queue_full and what ibv_post_recv(3) says.
  prepared_receive(receive_queue& queue, std::span<const local_mr_slice> buffer);
  prepared_receive(prepared_receive&&) = delete;
  ~prepared_receive();

  /// As `receive_queue::post`. \errors errc::receive_queue_full, disconnected; an errno of
  /// ibv_post_recv(3), if it goes at once.
  void post() {
    CORDMA_ASSERT(queue_ != nullptr, "the queue pair of what was prepared is there");
    queue_->post(*this);
  }

 private:
  friend class intrusive_list<prepared_receive>;
  friend class receive_queue;
  /// The device is done with all that was posted.
  void leave_queue() noexcept;

  receive_queue* queue_;
  ibv_recv_wr wr_;  // As the device reads it.
  std::array<ibv_sge, receive_slices_max> sges_{};
  receive_queue::prepared_slices its_;
};

inline void receive_queue::post(prepared_receive& buffer) {
  if (!has_room()) [[unlikely]]
    throw_refused(errc::receive_queue_full, buffer.its_.slices.size());
  slot& s = at(tail_);
  s.prepared = &buffer.its_;
  s.state = {};
  ++buffer.its_.slots;
  buffer.wr_.wr_id = wr_id_base_ | tail_;
  if (goes_with_others(buffer.sges_.data(), buffer.wr_.num_sge)) return;
  if (const int rc = post_now(buffer.wr_); rc != 0) [[unlikely]]
    throw_refused(not_posted(rc), buffer.its_.slices.size());
}

}  // namespace cordma
