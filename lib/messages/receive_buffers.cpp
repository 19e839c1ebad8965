#include "receive_buffers.hpp"

#include <algorithm>
#include <new>

namespace cordma::detail {
namespace {

/// Buffers start on lines of the processor's cache.
constexpr std::size_t line = 64;

shared_receives* pool_of(queue_pair& qp) noexcept {
  return qp.share() != nullptr ? &qp.share()->pool() : nullptr;
}

}  // namespace

receive_buffers::receive_buffers(queue_pair& qp, mr_allocator& memory, std::uint32_t depth,
                                 std::size_t frame_bytes)
    : qp_{&qp},
      pool_{pool_of(qp)},
      credit_{pool_ != nullptr ? qp.share()->credit() : depth},
      frame_bytes_{frame_bytes},
      batch_{std::clamp(credit_ / 8, 1u, batch_max)} {
  if (pool_ != nullptr) {
    base_ = pool_->bytes(0).data();
    stride_ = pool_->stride_bytes();
  } else {
    stride_ = (frame_bytes + line - 1) & ~(line - 1);
    own_ = memory.allocate_uninitialized(depth * stride_, line);
    base_ = own_.bytes().data();
  }
  add_nodes(credit_);
  nodes_ = blocks_.front().get();
  for (std::uint32_t n = 0; n < credit_; ++n) nodes_[n].number = n;
}

void receive_buffers::add_nodes(std::uint32_t count) {
  blocks_.reserve(blocks_.size() + 1);
  if (pool_ != nullptr) free_.reserve(node_count_ + count);
  arrived_message* const added =
      blocks_.emplace_back(std::make_unique<arrived_message[]>(count)).get();
  node_count_ += count;
  if (pool_ == nullptr) return;
  for (std::uint32_t n = 0; n < count; ++n) free_.push_back(&added[n]);
}

void receive_buffers::post_all() noexcept {
  if (pool_ != nullptr) return;  // The pool has posted its buffers.
  for (std::uint32_t n = 0; n < credit_; ++n) static_cast<void>(put_back(nodes_[n]));
  post_spare();
}

std::uint32_t receive_buffers::post_spare() noexcept {
  if (spare_count_ == 0) return 0;
  std::array<ibv_sge, batch_max> buffers;
  std::array<ibv_recv_wr, batch_max> wrs;
  for (std::uint32_t i = 0; i < spare_count_; ++i) {
    buffers[i] = {.addr = reinterpret_cast<std::uint64_t>(base_ + spare_[i] * stride_),
                  .length = std::uint32_t(frame_bytes_),
                  .lkey = own_.slice().lkey()};
    wrs[i] = {.wr_id = spare_[i], .next = nullptr, .sg_list = &buffers[i], .num_sge = 1};
  }
  qp_->post_recvs({wrs.data(), spare_count_});
  return std::exchange(spare_count_, 0);
}

const_local_mr_slice receive_buffers::slice(const arrived_message& a, std::size_t offset,
                                            std::size_t length) const {
  if (pool_ != nullptr) return pool_->slice(a.number, offset, length);
  return own_.slice(a.number * stride_ + offset, length);
}

void receive_buffers::release(arrived_message& a) noexcept {
  if (pool_ == nullptr) return;
  free_.push_back(&a);  // Has capacity for all.
  pool_->give_back(a.number);
}

/// Makes the nodes for more frames now: receiving allocates nothing.
bool receive_buffers::try_grow(std::uint32_t most) noexcept {
  if (qp_ == nullptr || credit_ >= most) return false;
  receive_share& share = *qp_->share();
  const std::uint32_t more = share.want(std::min(credit_, most - credit_));
  if (more == 0) return false;
  try {
    if (credit_ + more > node_count_) add_nodes(credit_ + more - node_count_);
  } catch (const std::bad_alloc&) {
    // The peer has not been told: the share shrinks without asking.
    static_cast<void>(share.try_shrink_to(credit_));
    return false;
  }
  credit_ += more;
  return true;
}

bool receive_buffers::try_shrink_to(std::uint32_t credit) noexcept {
  if (qp_ == nullptr || !qp_->share()->try_shrink_to(credit)) return false;
  credit_ = credit;
  return true;
}

}  // namespace cordma::detail
