#include "qp/data_path.hpp"
#include "qp/device_writes.hpp"

namespace softverbs {

bool pin_local(node& local_node, const ibv_pd* pd, const local_part& part, unsigned access,
               pinned& result) noexcept {
  return local_node.keys().pin(part.lkey, pd, 0, access, part.address, part.bytes, result) ==
         key_error::none;
}

bool local_memory_good(queue_pair& qp, std::uint64_t index) noexcept {
  const send_request& request = qp.request(index);
  const bool is_sink = request.opcode == IBV_WR_RDMA_READ || is_fetching(request.opcode);
  const unsigned access = is_sink ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0u;
  sge_cursor cursor{request.sges(), request.sge_count, 0};
  for (;;) {
    const local_part part = cursor.next(message_bytes_max);
    if (part.bytes == 0) return true;
    pinned pin;
    if (!pin_local(*qp.local_node, qp.pd, part, access, pin)) return false;
  }
}

bool gather(queue_pair& qp, std::uint64_t index, std::uint32_t offset, std::byte* to,
            std::uint32_t bytes) noexcept {
  const send_request& request = qp.request(index);
  if (request.inlined) {
    std::copy_n(request.data() + offset, bytes, to);
    return true;
  }
  sge_cursor cursor{request.sges(), request.sge_count, offset};
  while (bytes != 0) {
    const local_part part = cursor.next(bytes);
    pinned pin;
    if (part.bytes == 0 || !pin_local(*qp.local_node, qp.pd, part, 0, pin) ||
        !guarded_copy(to, pin.address(), part.bytes))
      return false;
    to += part.bytes;
    bytes -= part.bytes;
  }
  return true;
}

bool gather_operand(queue_pair& qp, send_request& request) noexcept {
  if (request.sge_count == 0) return true;  // Given when it was posted.
  std::uint64_t& word = request.remote().operand[0];
  return gather(qp, qp.sends.next, 0, reinterpret_cast<std::byte*>(&word), sizeof word);
}

scattered scatter(node& local_node, const ibv_pd* pd, sge_cursor& cursor, const std::byte* from,
                  std::uint32_t bytes) noexcept {
  while (bytes != 0) {
    const local_part part = cursor.next(bytes);
    pinned pin;
    if (part.bytes == 0 || !pin_local(local_node, pd, part, IBV_ACCESS_LOCAL_WRITE, pin))
      return scattered::bad_sink;
    if (!store(local_node, pin.address(), from, part.bytes, no_rkey))
      return readable(from, part.bytes) ? scattered::bad_sink : scattered::bad_source;
    from += part.bytes;
    bytes -= part.bytes;
  }
  return scattered::all;
}

bool scatter_answer(queue_pair& qp, std::uint64_t index, std::uint32_t offset,
                    const std::byte* from, std::uint32_t bytes) noexcept {
  const send_request& request = qp.request(index);
  if (request.opcode == IBV_WR_ATOMIC_WRITE) return true;  // The answer is empty.
  sge_cursor cursor{request.sges(), request.sge_count, offset};
  return scatter(*qp.local_node, qp.pd, cursor, from, bytes) == scattered::all;
}

bool readable(const std::byte* from, std::size_t bytes) noexcept {
  constexpr std::size_t page = 4096;
  std::byte probe{};
  for (std::size_t offset = 0; offset < bytes; offset += page)
    if (!guarded_copy(&probe, from + offset, 1)) return false;
  return bytes == 0 || guarded_copy(&probe, from + bytes - 1, 1);
}

}  // namespace softverbs
