#pragma once

#include "machine.hpp"

#include <cordma/base/error.hpp>
#include <cordma/connection/connection_options.hpp>
#include <cordma/verbs/device.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace doctor {

/// The limits and rights of this process.
struct process_facts {
  static constexpr std::uint64_t unlimited = ~std::uint64_t{0};

  std::uint64_t memlock_bytes = unlimited;  ///< RLIMIT_MEMLOCK, soft.
  std::uint64_t memlock_bytes_hard = unlimited;
  std::uint64_t descriptors = unlimited;  ///< RLIMIT_NOFILE, soft.
  bool may_lock_all = false;              ///< CAP_IPC_LOCK: RLIMIT_MEMLOCK does not count.
  std::vector<unsigned> cpus{};           ///< The CPUs that this thread may use.
  /// Why no io_uring can be made; none: it can.
  std::optional<cordma::failure> ring_failure{};
  std::string backend_variable{};  ///< CORDMA_IO_BACKEND; empty: unset.
};

struct port_facts {
  cordma::verbs::port_info info{};
  std::vector<cordma::verbs::gid_entry> gids{};
};

struct device_facts {
  cordma::verbs::device_info info{};
  cordma::verbs::device_limits limits{};
  std::vector<port_facts> ports{};
  /// False: a device in user space, such as soft0, which the kernel does not know.
  bool is_in_kernel = false;
  /// The priorities with PFC, one bit for each, of the interface behind the GID; none: unknown.
  std::optional<std::uint8_t> pfc{};
  /// The options of connections, with the variables of the environment: port, GID, traffic class.
  cordma::connection_options options{};

  /// Returns the port that connections use: the one that the options name, else the first ACTIVE
  /// one. Null: there is none.
  [[nodiscard]] const port_facts* port() const noexcept;
  /// Returns the row of the port's table that connections use by default; none: no row is usable.
  [[nodiscard]] std::optional<cordma::verbs::gid_entry> gid() const;
  /// Returns the folder of the device in sysfs.
  [[nodiscard]] std::string folder() const { return "/sys/class/infiniband/" + info.name; }
};

/// The machine, process and device that the checks examine. Tests make one by hand.
struct subject {
  machine files{};
  process_facts process{};
  std::optional<device_facts> device{};             ///< The one that programs would use.
  std::optional<cordma::failure> device_failure{};  ///< Why there is none.
  std::string wanted_device{};                      ///< The name that was asked for; may be empty.

  /// Returns the device if it is one of the kernel's, else null.
  [[nodiscard]] const device_facts* kernel_device() const noexcept {
    return device && device->is_in_kernel ? &*device : nullptr;
  }
  /// Returns the network interface behind the GID in use; empty: there is none, or no name of it.
  [[nodiscard]] std::string netdev() const;
};

/// The device, and the row of its table, that a run examines.
struct chosen_names {
  std::string device{};  ///< Empty: as a program's without a name.
  std::optional<std::uint32_t> gid_index{};
};

/// Reads the facts of this process.
process_facts read_process();
/// Reads this machine. A device that cannot be opened is a fact, too.
subject read_subject(const chosen_names& names, machine files = machine{});

/// Formats bytes for people: "64 KiB", "2.3 MiB", "unlimited".
std::string bytes_text(std::uint64_t bytes);

}  // namespace doctor
