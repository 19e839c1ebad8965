#include "abi/attributes.hpp"
#include "abi/device_list.hpp"
#include "abi/dispatch.hpp"
#include "node/fork_mutex.hpp"
#include "queue/completion_queue.hpp"
#include "wire/no_cancellation.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

// The list of devices, opening and closing, and the attributes of the device.

namespace softverbs {

namespace {

/// IB_UVERBS_DEVICE_ATOMIC_WRITE of the kernel, for which libibverbs has no name.
constexpr std::uint64_t atomic_write_flag = std::uint64_t{1} << 40;
constexpr std::uint64_t nanosecond_clock_khz = 1'000'000;

/// The real library's list behind a list of the program, which may be null: the entry after the
/// final null. The list is a block of its own, because some programs give it to free().
ibv_device**& real_list_of(ibv_device** entries) noexcept {
  while (*entries != nullptr) ++entries;
  return reinterpret_cast<ibv_device**&>(entries[1]);
}

bool hidden() noexcept {
  const char* const setting = std::getenv("SOFTVERBS");
  return setting != nullptr && std::strcmp(setting, "off") == 0;
}

ibv_device** list_real(int* count) {
  const no_cancellation wholly;
  const std::lock_guard lock{real::listing};
  return real::call<"ibv_get_device_list">(ibv_get_device_list, count);
}

/// Prints why opening failed, as libibverbs does: errno names neither a variable nor a process.
ibv_context* open_soft(ibv_device*) {
  try {
    return open_context(context_table());
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "soft0 cannot be opened: %s\n", error.what());
    throw;
  }
}

int close_soft(ibv_context* ctx) {
  close_context(ctx);
  return 0;
}

int describe(const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
             std::size_t attr_bytes) {
  if ((input != nullptr && input->comp_mask != 0) || attr_bytes < sizeof attr->orig_attr)
    return EINVAL;
  ibv_device_attr_ex is{};
  is.orig_attr = limits();
  constexpr std::uint32_t sends =
      IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
  is.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  is.odp_caps.per_transport_caps = {
      .rc_odp_caps = sends | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC,
      .uc_odp_caps = sends | IBV_ODP_SUPPORT_WRITE,
      .ud_odp_caps = sends};
  is.xrc_odp_caps = is.odp_caps.per_transport_caps.rc_odp_caps;
  is.completion_timestamp_mask = ~std::uint64_t{0};
  is.hca_core_clock = nanosecond_clock_khz;
  is.device_cap_flags_ex = is.orig_attr.device_cap_flags;
  is.packet_pacing_caps = limits().pacing;
  if (limits().writes_atomically) is.device_cap_flags_ex |= atomic_write_flag;
  is.phys_port_cnt_ex = is.orig_attr.phys_port_cnt;
  std::memset(attr, 0, attr_bytes);
  std::memcpy(attr, &is, std::min(attr_bytes, sizeof is));
  return 0;
}

/// The clock of completion timestamps, as one count of nanoseconds: programs for hardware read
/// tv_nsec only.
int tell_time(ibv_values_ex* values) {
  if ((values->comp_mask & ~std::uint32_t{IBV_VALUES_MASK_RAW_CLOCK}) != 0) return EOPNOTSUPP;
  if (values->comp_mask == 0) return 0;
  values->raw_clock = {.tv_sec = 0, .tv_nsec = static_cast<long>(completion_timestamp())};
  return 0;
}

}  // namespace

thread_local bool is_soft_hidden = false;

int query_device_ex(ibv_context* ctx, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, std::size_t attr_bytes) {
  return serve("ibv_query_device", ctx, describe, input, attr, attr_bytes);
}

int query_rt_values(ibv_context* ctx, ibv_values_ex* values) {
  return serve("ibv_query_rt_values", ctx, tell_time, values);
}

}  // namespace softverbs

using namespace softverbs;

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  int real_count = 0;
  ibv_device** const real_list =
      simulated_host::current() == nullptr ? list_real(&real_count) : nullptr;
  const bool with_soft = !is_soft_hidden && !hidden();
  if (real_list == nullptr && !with_soft) {
    if (count != nullptr) *count = 0;
    return nullptr;  // errno is that of the real library.
  }
  const auto total = static_cast<std::size_t>(real_count) + (with_soft ? 1 : 0);
  constexpr std::size_t extra = 2;  // The null at the end, and the real list.
  auto** const entries = static_cast<ibv_device**>(std::calloc(total + extra, sizeof(ibv_device*)));
  if (entries == nullptr) {
    if (real_list != nullptr) real::call<"ibv_free_device_list">(ibv_free_device_list, real_list);
    return real::failure<ibv_device**>(ENOMEM);
  }
  std::copy_n(real_list, real_count, entries);
  if (with_soft) entries[real_count] = &soft_device;
  real_list_of(entries) = real_list;
  if (count != nullptr) *count = static_cast<int>(total);
  return entries;
}

void ibv_free_device_list(ibv_device** entries) {
  ibv_device** const real_list = real_list_of(entries);
  if (real_list != nullptr) real::call<"ibv_free_device_list">(ibv_free_device_list, real_list);
  std::free(entries);
}

const char* ibv_get_device_name(ibv_device* device) {
  return device == &soft_device ? device->name
                                : real::call<"ibv_get_device_name">(ibv_get_device_name, device);
}

int ibv_get_device_index(ibv_device* device) {
  constexpr int unknown_to_the_kernel = -1;
  return device == &soft_device
             ? unknown_to_the_kernel
             : real::call<"ibv_get_device_index", "IBVERBS_1.9">(ibv_get_device_index, device);
}

__be64 ibv_get_device_guid(ibv_device* device) {
  return device == &soft_device ? limits().node_guid
                                : real::call<"ibv_get_device_guid">(ibv_get_device_guid, device);
}

ibv_context* ibv_open_device(ibv_device* device) {
  if (device != &soft_device) return real::call<"ibv_open_device">(ibv_open_device, device);
  return serve("ibv_open_device", nullptr, open_soft, device);
}

int ibv_close_device(ibv_context* ctx) {
  return dispatch_end<"ibv_close_device">(ctx, close_soft, ctx);
}

ibv_context* ibv_import_device(int command_fd) {
  // Import needs the character device of a kernel driver: contexts of soft0 cannot be shared.
  struct stat file{};
  if (::fstat(command_fd, &file) == 0 && !S_ISCHR(file.st_mode))
    return real::failure<ibv_context*>(EOPNOTSUPP);
  return real::call<"ibv_import_device", "IBVERBS_1.10">(ibv_import_device, command_fd);
}

int ibv_query_device(ibv_context* ctx, ibv_device_attr* attr) {
  const auto query = [](ibv_context*, ibv_device_attr* result) {
    *result = limits();
    return 0;
  };
  return dispatch<"ibv_query_device">(ctx, +query, ctx, attr);
}

// Regions of soft0 are not pinned, so copy-on-write does no harm.

int ibv_fork_init() {
  auto* const real = real::function<"ibv_fork_init", "IBVERBS_1.1", int()>();
  return real != nullptr ? real() : 0;
}

ibv_fork_status ibv_is_fork_initialized() {
  auto* const real = real::function<"ibv_is_fork_initialized", "IBVERBS_1.13", ibv_fork_status()>();
  return real != nullptr ? real() : IBV_FORK_UNNEEDED;
}

int ibv_dontfork_range(void* base, std::size_t bytes) {
  auto* const real = real::function<"ibv_dontfork_range", "IBVERBS_1.1", int(void*, std::size_t)>();
  return real != nullptr ? real(base, bytes) : 0;
}

int ibv_dofork_range(void* base, std::size_t bytes) {
  auto* const real = real::function<"ibv_dofork_range", "IBVERBS_1.1", int(void*, std::size_t)>();
  return real != nullptr ? real(base, bytes) : 0;
}

}  // extern "C"
