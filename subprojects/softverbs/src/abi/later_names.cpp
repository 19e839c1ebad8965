#include "abi/dispatch.hpp"
#include "node/fork_mutex.hpp"
#include "object/protection_domain.hpp"
#include "object/soft_verbs.hpp"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <unordered_set>

// Names of releases 60 to 64 of rdma-core, whose headers are not needed here. Without these names
// the real library would take soft0's objects for its own. soft0 answers as a driver that does not
// know them, which is what rxe's is.

struct ibv_buf;
struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_mr_init_attr;

namespace softverbs {

namespace {

/// The layout of ibv_mr_init_attr. Programs that were built with a release before 64 have no
/// `buffer`, and do not ask for it.
struct region_request {
  std::size_t bytes;
  int access;
  std::uint64_t mask;
  std::uint64_t iova;
  void* address;
  int fd;
  std::uint64_t fd_offset;
  ibv_dmah* handle;
  ibv_buf* buffer;
};
constexpr std::uint64_t with_iova = 1;
constexpr std::uint64_t with_address = 2;
constexpr std::uint64_t with_fd = 4;
constexpr std::uint64_t with_fd_offset = 8;
constexpr std::uint64_t with_buffer = 32;

/// The layout of ibv_buf.
struct buffer {
  void* address;
  std::size_t bytes;
  ibv_pd* pd;
  int dmabuf_fd;
};

fork_mutex buffers_mutex;
/// Never destroyed: a program may free buffers when it exits.
std::unordered_set<ibv_buf*>& buffers = *new std::unordered_set<ibv_buf*>;

void* alloc_buffer(ibv_pd* pd, std::size_t bytes, ibv_buf** to) {
  void* memory = nullptr;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (const int error = ::posix_memalign(&memory, page, bytes)) return real::failure<void*>(error);
  std::unique_ptr<void, decltype(&std::free)> owner{memory, &std::free};
  auto made = std::make_unique<buffer>(buffer{memory, bytes, pd, -1});
  {
    const std::lock_guard lock{buffers_mutex};
    buffers.insert(reinterpret_cast<ibv_buf*>(made.get()));
  }
  *to = reinterpret_cast<ibv_buf*>(made.release());
  return owner.release();
}

/// True if the range lies in a buffer of this protection domain.
bool is_within(ibv_buf* handle, const ibv_pd* pd, const void* address, std::size_t bytes) {
  const std::lock_guard lock{buffers_mutex};
  if (!buffers.contains(handle)) return false;
  const buffer& whole = *reinterpret_cast<const buffer*>(handle);
  const std::uintptr_t offset =
      reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(whole.address);
  return origin_of(whole.pd) == origin_of(pd) && offset <= whole.bytes &&
         bytes <= whole.bytes - offset;
}

ibv_mr* reg_mr_ex(ibv_pd* pd, const region_request& from) {
  std::uint64_t mask = from.mask;
  const auto access = static_cast<unsigned>(from.access);
  if ((mask & with_buffer) != 0) {
    mask &= ~with_buffer;
    const bool is_address = (mask & (with_address | with_fd | with_fd_offset)) == with_address;
    if (!is_address || !is_within(from.buffer, pd, from.address, from.bytes))
      return real::failure<ibv_mr*>(EINVAL);
  }
  if ((mask & ~(with_iova | with_address | with_fd | with_fd_offset)) != 0)
    return real::failure<ibv_mr*>(EOPNOTSUPP);
  if (mask == (with_fd | with_fd_offset | with_iova))
    return serve("ibv_reg_dmabuf_mr", pd->context, verb::reg_dmabuf_mr, pd, from.fd_offset,
                 from.bytes, from.iova, from.fd, access);
  if ((mask & ~with_iova) != with_address) return real::failure<ibv_mr*>(EINVAL);
  const std::uint64_t iova =
      (mask & with_iova) != 0 ? from.iova : reinterpret_cast<std::uintptr_t>(from.address);
  return serve("ibv_reg_mr", pd->context, verb::reg_mr, pd, from.address, from.bytes, iova, access);
}

}  // namespace

}  // namespace softverbs

using namespace softverbs;

extern "C" {

ibv_dmah* ibv_alloc_dmah(ibv_context* ctx, ibv_dmah_init_attr* attr);
ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attr);
int ibv_query_port_speed(ibv_context* ctx, std::uint32_t port, std::uint64_t* speed);
void* ibv_alloc_buf(ibv_pd* pd, std::size_t bytes, ibv_buf** buf);
void ibv_free_buf(ibv_buf* buf);
ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buf, void* address, std::size_t bytes, int access);

ibv_dmah* ibv_alloc_dmah(ibv_context* ctx, ibv_dmah_init_attr* attr) {
  return real_only<"ibv_alloc_dmah", "IBVERBS_1.15">(ctx, ibv_alloc_dmah, ctx, attr);
}

ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attr) {
  if (is_soft(pd->context)) return reg_mr_ex(pd, *reinterpret_cast<const region_request*>(attr));
  return real::call<"ibv_reg_mr_ex", "IBVERBS_1.15">(ibv_reg_mr_ex, pd, attr);
}

int ibv_query_port_speed(ibv_context* ctx, std::uint32_t port, std::uint64_t* speed) {
  return real_only<"ibv_query_port_speed", "IBVERBS_1.16">(ctx, ibv_query_port_speed, ctx, port,
                                                           speed);
}

void* ibv_alloc_buf(ibv_pd* pd, std::size_t bytes, ibv_buf** buf) {
  if (!is_soft(pd->context))
    return real::call<"ibv_alloc_buf", "IBVERBS_1.17">(ibv_alloc_buf, pd, bytes, buf);
  return without_exceptions<void*>([&] { return alloc_buffer(pd, bytes, buf); });
}

void ibv_free_buf(ibv_buf* buf) {
  bool is_ours = false;
  {
    const std::lock_guard lock{buffers_mutex};
    is_ours = buffers.erase(buf) != 0;
  }
  if (!is_ours) return real::call<"ibv_free_buf", "IBVERBS_1.17">(ibv_free_buf, buf);
  const std::unique_ptr<buffer> owner{reinterpret_cast<buffer*>(buf)};
  std::free(owner->address);
}

ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buf, void* address, std::size_t bytes, int access) {
  if (!is_soft(pd->context))
    return real::call<"ibv_reg_buf_mr", "IBVERBS_1.17">(ibv_reg_buf_mr, pd, buf, address, bytes,
                                                        access);
  return reg_mr_ex(pd,
                   {bytes, access, with_address | with_buffer, 0, address, -1, 0, nullptr, buf});
}

}  // extern "C"
