#pragma once

#include "finding.hpp"
#include "subject.hpp"

#include <cstdint>

namespace doctor {

// Each check only reads `subject`, and adds what it finds. None needs a privilege.

/// The device in use, its port and link layer; the kernel's other devices.
void check_devices(const subject& s, report& r);
/// The files in /dev/infiniband, and whether this process may open them.
void check_device_files(const subject& s, report& r);
/// The kernel's modules: those that user space needs, and those of drivers.
void check_modules(const subject& s, report& r);
/// The row of the GID table that connections use, and why.
void check_gid(const subject& s, report& r);
/// The port's MTU against the network interface's.
void check_mtu(const subject& s, report& r);
/// RLIMIT_MEMLOCK and RLIMIT_NOFILE against the need of one runtime.
void check_limits(const subject& s, report& r);
/// The control groups' limits of RDMA objects and of memory against the need of one runtime.
void check_cgroups(const subject& s, report& r);
/// io_uring or epoll, and what forbids io_uring.
void check_waiting(const subject& s, report& r);
/// ECN, PFC and the traffic class, as far as files tell them.
void check_congestion(const subject& s, report& r);
/// The device's NUMA node against the CPUs of this process.
void check_numa(const subject& s, report& r);
/// The IOMMU, and the relaxed ordering of PCI Express.
void check_pci(const subject& s, report& r);
/// The clock, huge pages, and modules that let devices reach the memory of GPUs.
void check_clock(const subject& s, report& r);
void check_huge_pages(const subject& s, report& r);
void check_peer_memory(const subject& s, report& r);

/// Runs all of them.
void check_all(const subject& s, report& r);

/// Returns the row of the GID table in use, for people; empty: there is none.
std::string used_gid_text(const subject& s);

/// Returns the bytes of locked memory that one runtime with default options needs on any device:
/// the first chunk of its allocator.
[[nodiscard]] std::uint64_t runtime_bytes_min();
/// Returns the same with its completion queue and ring, which some drivers and kernels count.
[[nodiscard]] std::uint64_t runtime_bytes();
/// Objects of the device that one runtime with a connection needs: domain, completion queue, queue
/// pairs, registrations. `rdma.max` calls each an hca_object; rxe under such a limit counted them.
inline constexpr std::uint64_t runtime_objects = 7;
/// Descriptors that one runtime with a connection needs.
inline constexpr std::uint64_t runtime_descriptors = 16;

}  // namespace doctor
