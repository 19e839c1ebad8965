#include <cordma/verbs/memory_region.hpp>

#include "failures.hpp"

#include <cordma/detail/base/assert.hpp>

#include <cerrno>
#include <string>

namespace cordma::verbs {
namespace {

constexpr const char* reg_mr = "ibv_reg_mr";
constexpr const char* reg_dmabuf_mr = "ibv_reg_dmabuf_mr";
/// The flags that the kernel takes for a dma-buf (uverbs_std_types_mr.c).
constexpr access dmabuf_flags = access::local_write | access::remote_write | access::remote_read |
                                access::remote_atomic | access::relaxed_ordering;

/// The flags that cordma knows, and those that a device without them ignores (ibv_reg_mr(3)).
constexpr access known_flags = access::local_write | access::remote_write | access::remote_read |
                               access::remote_atomic | access::mw_bind | access::zero_based |
                               access::on_demand | access::hugetlb |
                               access(unsigned{IBV_ACCESS_OPTIONAL_RANGE});

void check_flags(access flags) {
  if (const access unknown = flags & ~known_flags; unknown != access::none) {
    detail::throw_failure(
        errc::not_supported, reg_mr,
        detail::detail_text("access 0x%x is none of rdma-core 44: a flag of a vendor, as that of "
                            "physical addresses, needs the vendor's own library",
                            unsigned(unknown)));
  }
  const bool writes_remotely =
      (flags & (access::remote_write | access::remote_atomic)) != access::none;
  if (writes_remotely && !allows(flags, access::local_write)) {
    detail::throw_errno(
        EINVAL, reg_mr,
        detail::detail_text("%s needs local_write as well", to_string(flags).c_str()));
  }
}

bool pages_on_demand(const protection_domain& pd) noexcept {
  ibv_device_attr_ex attributes{};
  return ibv_query_device_ex(pd.native_handle()->context, nullptr, &attributes) == 0 &&
         (attributes.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0;
}

[[noreturn]] void throw_cannot_register(int error, std::size_t length, access flags,
                                        const protection_domain& pd) {
  const device_limits& limits = pd.limits();
  if (allows(flags, access::on_demand) && !pages_on_demand(pd)) {
    detail::throw_failure(errc::not_supported, reg_mr,
                          "the device has no paging on demand: register without on_demand");
  }
  if (detail::may_be_memlock(error)) {
    const std::string subject = std::to_string((length + 1023) / 1024) + " KiB";
    detail::throw_errno(error, reg_mr,
                        detail::lack_text(error, subject, length, limits.mr_max, "memory regions"));
  }
  if (error == EFAULT) {
    detail::throw_errno(
        error, reg_mr,
        detail::detail_text("%zu bytes: not all of them mapped, or mapped read-only "
                            "and registered for %s",
                            length, to_string(flags).c_str()));
  }
  detail::throw_errno(error, reg_mr,
                      detail::detail_text("%zu bytes for %s", length, to_string(flags).c_str()));
}

[[noreturn]] void throw_no_dmabuf(int error, int fd, std::uint64_t offset, std::size_t length) {
  if (error == EOPNOTSUPP || error == ENOSYS || error == EPROTONOSUPPORT) {
    detail::throw_failure(errc::not_supported, reg_dmabuf_mr,
                          "the device registers no dma-bufs: map it, and register the mapping");
  }
  const char* const why = error == EINVAL  ? "it is no dma-buf, or shorter"
                          : error == EBADF ? "it is not open"
                                           : "the device did not take it";
  detail::throw_errno(error, reg_dmabuf_mr,
                      detail::detail_text("descriptor %d, %zu bytes from %llu: %s", fd, length,
                                          static_cast<unsigned long long>(offset), why));
}

}  // namespace

void memory_region::deregisterer::operator()(ibv_mr* mr) const noexcept {
  const int rc = ibv_dereg_mr(mr);  // EBUSY or EINVAL: a memory window is still bound to it.
  CORDMA_ASSERT(rc != EBUSY && rc != EINVAL, "memory region destroyed under a bound memory window");
}

memory_region::memory_region(protection_domain& pd, void* address, std::size_t length, access flags)
    : address_{static_cast<std::byte*>(address)}, flags_{flags} {
  check_flags(flags);
  detail::check_range(reg_mr, "length", length, 0, pd.limits().mr_size_max_bytes, "the device's");
  mr_.reset(ibv_reg_mr(pd.native_handle(), address, length, unsigned(flags)));
  if (mr_ == nullptr) throw_cannot_register(errno, length, flags, pd);
}

memory_region::memory_region(protection_domain& pd, int fd, std::uint64_t offset,
                             std::size_t length, void* address, access flags)
    : address_{static_cast<std::byte*>(address)}, flags_{flags & dmabuf_flags} {
  check_flags(flags_);
  detail::check_range(reg_dmabuf_mr, "length", length, 0, pd.limits().mr_size_max_bytes,
                      "the device's");
  mr_.reset(ibv_reg_dmabuf_mr(pd.native_handle(), offset, length,
                              reinterpret_cast<std::uint64_t>(address), fd, int(flags_)));
  if (mr_ == nullptr) throw_no_dmabuf(errno, fd, offset, length);
}

int memory_region::deregister() noexcept {
  ibv_mr* const mr = mr_.release();
  const int rc = ibv_dereg_mr(mr);
  if (rc != 0) mr_.reset(mr);
  return rc;
}

void memory_window::deallocator::operator()(ibv_mw* mw) const noexcept {
  const int rc = ibv_dealloc_mw(mw);  // Another errno: the device is gone, which is nobody's bug.
  CORDMA_ASSERT(rc != EBUSY && rc != EINVAL, "memory window ended twice, or in use");
}

memory_window::memory_window(protection_domain& pd, ibv_mw_type type) {
  const device_limits& limits = pd.limits();
  if (!(type == IBV_MW_TYPE_1   ? limits.memory_window_type_1
        : type == IBV_MW_TYPE_2 ? limits.memory_window_type_2
                                : false)) {
    detail::throw_failure(
        errc::not_supported, "ibv_alloc_mw",
        detail::detail_text("the device has no memory windows of type %d (device_limits)",
                            int(type)));
  }
  mw_.reset(ibv_alloc_mw(pd.native_handle(), type));
  if (mw_ == nullptr) {
    detail::throw_errno(
        errno, "ibv_alloc_mw",
        detail::detail_text("the device has %u memory windows in all", pd.limits().mw_max));
  }
}

int memory_window::deallocate() noexcept {
  ibv_mw* const mw = mw_.release();
  const int rc = ibv_dealloc_mw(mw);
  if (rc != 0) mw_.reset(mw);
  return rc;
}

}  // namespace cordma::verbs
