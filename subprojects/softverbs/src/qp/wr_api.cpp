#include "object/soft_verbs.hpp"
#include "qp/queue_pair.hpp"
#include "qp/send_builder.hpp"

#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

// The functions of ibv_wr_*: ibv_wr_start(3). A batch is built behind the posted requests;
// wr_complete posts it as a whole, and the first error drops it. The send queue is not locked
// meanwhile: posted requests execute, and the thread of the batch may poll.

namespace softverbs {
namespace {

queue_pair& of(ibv_qp_ex* handle) { return *reinterpret_cast<queue_pair*>(handle); }

void fail(queue_pair& qp, int error) noexcept {
  if (qp.batch_error == 0) qp.batch_error = error;
}

/// Opens a request. Null: the batch has failed.
send_request* begin(ibv_qp_ex* handle, ibv_wr_opcode opcode, std::uint64_t operation) noexcept {
  queue_pair& qp = of(handle);
  if (qp.batch_error == 0 && (qp.send_ops & operation) == 0) qp.batch_error = EINVAL;
  // The setter decides if data is inline.
  const unsigned flags = handle->wr_flags & ~static_cast<unsigned>(IBV_SEND_INLINE);
  if (qp.batch_error == 0) qp.batch_error = open_request(qp, opcode, handle->wr_id, flags);
  return qp.batch_error == 0 ? &qp.request(qp.sends.built - 1) : nullptr;
}

void begin_remote(ibv_qp_ex* handle, ibv_wr_opcode opcode, std::uint64_t operation,
                  std::uint32_t rkey, std::uint64_t address, std::uint32_t immediate) noexcept {
  send_request* request = begin(handle, opcode, operation);
  if (request == nullptr) return;
  set_remote(of(handle), address, rkey);
  request->immediate = immediate;
}

void begin_atomic(ibv_qp_ex* handle, ibv_wr_opcode opcode, std::uint64_t operation,
                  std::uint32_t rkey, std::uint64_t address, std::uint64_t compare_add,
                  std::uint64_t swap) noexcept {
  send_request* request = begin(handle, opcode, operation);
  if (request == nullptr) return;
  request->remote() = {address, rkey, {compare_add, swap}};
}

void begin_send(ibv_qp_ex* handle, ibv_wr_opcode opcode, std::uint64_t operation,
                std::uint32_t immediate) noexcept {
  if (send_request* request = begin(handle, opcode, operation)) request->immediate = immediate;
}

/// True if the batch has a request for a setter.
bool has_request(queue_pair& qp) noexcept {
  if (qp.batch_error == 0 && qp.sends.built == qp.sends.posted) qp.batch_error = EINVAL;
  return qp.batch_error == 0;
}

void atomic_cmp_swp(ibv_qp_ex* handle, std::uint32_t rkey, std::uint64_t address,
                    std::uint64_t compare, std::uint64_t swap) {
  begin_atomic(handle, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, rkey, address,
               compare, swap);
}

void atomic_fetch_add(ibv_qp_ex* handle, std::uint32_t rkey, std::uint64_t address,
                      std::uint64_t add) {
  begin_atomic(handle, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, rkey,
               address, add, 0);
}

void bind(ibv_qp_ex* handle, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) {
  queue_pair& qp = of(handle);
  if (int error = check_bind(qp, mw, IBV_MW_TYPE_2, *info)) return fail(qp, error);
  if (begin(handle, IBV_WR_BIND_MW, IBV_QP_EX_WITH_BIND_MW) != nullptr)
    set_bind(qp, *mw, rkey, *info);
}

void local_inv(ibv_qp_ex* handle, std::uint32_t rkey) {
  begin_send(handle, IBV_WR_LOCAL_INV, IBV_QP_EX_WITH_LOCAL_INV, rkey);
}

void rdma_read(ibv_qp_ex* handle, std::uint32_t rkey, std::uint64_t address) {
  begin_remote(handle, IBV_WR_RDMA_READ, IBV_QP_EX_WITH_RDMA_READ, rkey, address, 0);
}

void rdma_write(ibv_qp_ex* handle, std::uint32_t rkey, std::uint64_t address) {
  begin_remote(handle, IBV_WR_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE, rkey, address, 0);
}

void rdma_write_imm(ibv_qp_ex* handle, std::uint32_t rkey, std::uint64_t address, __be32 data) {
  begin_remote(handle, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, rkey,
               address, data);
}

void send(ibv_qp_ex* handle) { begin_send(handle, IBV_WR_SEND, IBV_QP_EX_WITH_SEND, 0); }

void send_imm(ibv_qp_ex* handle, __be32 data) {
  begin_send(handle, IBV_WR_SEND_WITH_IMM, IBV_QP_EX_WITH_SEND_WITH_IMM, data);
}

void send_inv(ibv_qp_ex* handle, std::uint32_t rkey) {
  begin_send(handle, IBV_WR_SEND_WITH_INV, IBV_QP_EX_WITH_SEND_WITH_INV, rkey);
}

void send_tso(ibv_qp_ex* handle, void*, std::uint16_t, std::uint16_t) {
  fail(of(handle), EOPNOTSUPP);
}

void atomic_write(ibv_qp_ex* handle, std::uint32_t rkey, std::uint64_t address, const void* word) {
  send_request* const request = begin(handle, IBV_WR_ATOMIC_WRITE, IBV_QP_EX_WITH_ATOMIC_WRITE);
  if (request == nullptr) return;
  request->remote() = {address, rkey, {0, 0}};
  std::memcpy(&request->remote().operand[0], word, sizeof(std::uint64_t));
  request->length = sizeof(std::uint64_t);
}

void set_xrc_srqn(ibv_qp_ex* handle, std::uint32_t number) {
  queue_pair& qp = of(handle);
  if (!has_request(qp)) return;
  if (qp.type() != IBV_QPT_XRC_SEND) return fail(qp, EINVAL);
  qp.queue_of(qp.sends.built - 1) = number;
}

void set_ud_addr(ibv_qp_ex* handle, ibv_ah* ah, std::uint32_t qpn, std::uint32_t qkey) {
  queue_pair& qp = of(handle);
  if (has_request(qp)) fail(qp, set_datagram(qp, ah, qpn, qkey));
}

void set_inline_data_list(ibv_qp_ex* handle, std::size_t count, const ibv_data_buf* buffers) {
  queue_pair& qp = of(handle);
  if (!has_request(qp)) return;
  qp.batch_error = begin_inline(qp);
  for (std::size_t i = 0; i < count && qp.batch_error == 0; ++i)
    qp.batch_error = append_inline(qp, buffers[i].addr, buffers[i].length);
}

void set_inline_data(ibv_qp_ex* handle, void* address, std::size_t length) {
  const ibv_data_buf buffer{address, length};
  set_inline_data_list(handle, 1, &buffer);
}

void set_sge_list(ibv_qp_ex* handle, std::size_t count, const ibv_sge* list) {
  queue_pair& qp = of(handle);
  if (has_request(qp)) fail(qp, set_gather_list(qp, {list, count}));
}

void set_sge(ibv_qp_ex* handle, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
  const ibv_sge sge{address, length, lkey};
  set_sge_list(handle, 1, &sge);
}

/// Starts a batch. Fails in a forked child, where a lost thread may hold the locks.
void start(ibv_qp_ex* handle) {
  queue_pair& qp = of(handle);
  if (qp.local_node->abandoned()) {
    qp.batch_error = EIO;
    return;
  }
  qp.batch.lock();
  qp.batch_error = 0;  // The last batch may have left an error.
  const std::lock_guard send{qp.slot->send};
  qp.in_batch = true;
}

int finish(ibv_qp_ex* handle, bool commit) noexcept {
  queue_pair& qp = of(handle);
  if (qp.local_node->abandoned()) return EIO;
  int error = qp.batch_error;
  {
    const std::lock_guard send{qp.slot->send};
    send_ring& ring = qp.sends;
    // Another thread may have reset the QP.
    if (error == 0 && ring.built != ring.posted && !accepts_sends(qp.state.load())) error = EINVAL;
    qp.in_batch = false;
    if (error == 0 && commit) {
      const std::uint64_t posts = ring.built - std::exchange(ring.posted, ring.built);
      execute_posted(qp, posts);
    } else {
      ring.built = ring.posted;
    }
  }
  qp.batch.unlock();
  return error;
}

void abort_batch(ibv_qp_ex* handle) { finish(handle, false); }

}  // namespace

int verb::wr_complete(ibv_qp_ex* handle) { return finish(handle, true); }

void set_wr_api(queue_pair& qp) noexcept {
  ibv_qp_ex& handle = qp.handle;
  handle.wr_atomic_cmp_swp = atomic_cmp_swp;
  handle.wr_atomic_fetch_add = atomic_fetch_add;
  handle.wr_bind_mw = bind;
  handle.wr_local_inv = local_inv;
  handle.wr_rdma_read = rdma_read;
  handle.wr_rdma_write = rdma_write;
  handle.wr_rdma_write_imm = rdma_write_imm;
  handle.wr_send = send;
  handle.wr_send_imm = send_imm;
  handle.wr_send_inv = send_inv;
  handle.wr_send_tso = send_tso;
  handle.wr_set_ud_addr = set_ud_addr;
  handle.wr_set_xrc_srqn = set_xrc_srqn;
  handle.wr_set_inline_data = set_inline_data;
  handle.wr_set_inline_data_list = set_inline_data_list;
  handle.wr_set_sge = set_sge;
  handle.wr_set_sge_list = set_sge_list;
  handle.wr_start = start;
  handle.wr_complete = verb::wr_complete;
  handle.wr_abort = abort_batch;
  handle.wr_atomic_write = atomic_write;
}

}  // namespace softverbs
